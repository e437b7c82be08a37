// What ranks say to each other over libfabric, bit by bit (docs/networks.md). Nothing of it is trusted where it
// arrives.
#pragma once
#include <cstdint>

#include "net/signal_order.hpp"

namespace switchyard {

// What a write carries to the target, in 64 bits: who, which number, and a signal if it is small.
//   rank 14 | sequence 14 | word 20 | value 16
// `word` numbers the 8-byte words of the first regions; a signal that does not fit travels as a message of its own.
constexpr int kRankBits = 14, kWordBits = 20, kValueBits = 16;
constexpr uint32_t kNoWord = (1u << kWordBits) - 1;
static_assert(kRankBits + kSequenceBits + kWordBits + kValueBits == 64);

struct CompletionData {
  uint32_t rank, sequence, word, value;

  uint64_t pack() const {
    return uint64_t(rank) << (64 - kRankBits) | uint64_t(sequence) << (kWordBits + kValueBits) |
           uint64_t(word) << kValueBits | value;
  }
  static CompletionData unpack(uint64_t bits) {
    return {uint32_t(bits >> (64 - kRankBits)), uint32_t(bits >> (kWordBits + kValueBits)) & kSequenceMask,
            uint32_t(bits >> kValueBits) & kNoWord, uint32_t(bits & ((1u << kValueBits) - 1))};
  }
};

// A signal that does not fit into completion data.
struct SignalMessage {
  uint32_t rank;
  uint32_t sequence;
  uint32_t region;
  uint32_t reserved;
  uint64_t offset;
  uint64_t value;
};
static_assert(sizeof(SignalMessage) == 32);

// Where a region is on one rail, as its owner tells the others.
struct RegionOffer {
  uint64_t key;
  uint64_t base;  // added to offsets
  uint64_t num_bytes;
};

}  // namespace switchyard
