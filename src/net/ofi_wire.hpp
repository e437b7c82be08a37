// What ranks say to each other over libfabric, bit by bit (docs/networks.md). Nothing of it is trusted where it
// arrives.
#pragma once
#include <cstdint>

#include "net/ofi_fabric.hpp"
#include "net/signal_order.hpp"

namespace switchyard {

// What a write carries to the target: who, which number, and, where a provider carries 64 bits, a signal if it is small.
//   value 16 | word 20 | sequence 14 | rank 14
// `word` numbers the 8-byte words of the first regions; a signal that does not fit travels as a message of its own. Without a
// signal all of it is within 32 bits, which is what many providers carry.
constexpr int kRankBits = 14, kWordBits = 20, kValueBits = 16;
constexpr uint32_t kNoWord = (1u << kWordBits) - 1;
static_assert(kRankBits + kSequenceBits + kWordBits + kValueBits == 64);

struct CompletionData {
  uint32_t rank, sequence, word, value;

  uint64_t pack() const {
    const uint64_t signal = word == kNoWord ? 0 : uint64_t(value) << kWordBits | word;
    return signal << (kSequenceBits + kRankBits) | uint64_t(sequence) << kRankBits | rank;
  }
  static CompletionData unpack(uint64_t bits) {
    const uint64_t signal = bits >> (kSequenceBits + kRankBits);
    const auto value = uint32_t(signal >> kWordBits);
    return {uint32_t(bits) & ((1u << kRankBits) - 1), uint32_t(bits >> kRankBits) & kSequenceMask,
            value == 0 ? kNoWord : uint32_t(signal) & kNoWord, value};
  }
};

// A signal that does not fit into completion data.
struct SignalMessage {
  uint32_t rank;
  uint32_t sequence;
  uint32_t region;
  uint32_t tag;  // of the rail that it is sent to: who is not of this job does not know it
  uint64_t offset;
  uint64_t value;
};
static_assert(sizeof(SignalMessage) == 32);

// A rank's end of one rail, as it tells the others.
struct RailOffer {
  OfiFabric::Name name;
  uint64_t num_data_bytes;  // of completion data that it carries
  uint32_t protocol;        // of the provider: who speaks another does not understand it
  uint32_t protocol_version;
  uint32_t tag;  // of messages to it
  uint32_t reserved;

  bool understands(const RailOffer& peer) const {
    return protocol == peer.protocol && protocol_version == peer.protocol_version;
  }
};

// Where a region is on one rail, as its owner tells the others.
struct RegionOffer {
  uint64_t key;
  uint64_t base;  // added to offsets
  uint64_t num_bytes;
};

}  // namespace switchyard
