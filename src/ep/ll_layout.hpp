// All address arithmetic of the low-latency protocol's two windows. Shared by host and device code.
//
// Control window of a rank: what its peers tell it. One line per (bank, peer), written by that peer alone; and, for
// expert-major output written in place, the peer's row counts per expert.
//
//   lines   [2 banks][num_ranks]               LlLine, one cache line pair each
//   counts  [2 banks][num_ranks][num_experts]  int32
//
// Payload window of a rank: rows.
//
//   inbox   [2 banks][num_ranks source][max_tokens] messages   written by the source: header | token row | scale row
//   outbox  [2 banks][num_ranks reader][rows per reader]       written by the rank itself, read by the reader
//
// A block of the inbox belongs to one source for ever, whatever handle is in use: a source that was given up on and
// writes late can only damage its own block, which nobody reads any more. Nobody but the owner writes an outbox.
#pragma once
#include <cstddef>
#include <cstdint>

#include "switchyard/platform/hd.hpp"

namespace switchyard::ep {

constexpr int kMaxTopk = 64;
constexpr int kNumBanks = 2;

// A tag is (generation << kEpochBits) | epoch: it only grows, and a re-admitted rank's old tags never match again.
constexpr int kEpochBits = 40;
constexpr uint64_t kEpochMask = (uint64_t{1} << kEpochBits) - 1;

// What one peer tells one rank about one bank. Each field group is published by its tag with release.
struct LlLine {
  uint64_t consent;       // tag: "I reached this dispatch; write my output in place" (fields below are valid)
  uint64_t token_offset;  // where in the window of that id my output tokens start
  uint64_t scale_offset;
  uint32_t token_window;  // 0: my output is not in a window; use my inbox
  uint32_t scale_window;
  uint64_t arrival;   // tag: everything I had for you is in place
  uint32_t num_rows;  // messages in your inbox (dispatch) or rows in my outbox (combine)
  uint32_t flags;     // kRowsInPlace
  uint64_t about;     // of the arrival: a digest of the operation, its shape and, for a combine, which dispatch it answers
  uint64_t done;      // tag: I consumed this bank; it may be written again
  uint64_t expelled;  // tag, line 0 only: I gave up on you in this epoch; nothing more will come from me
  uint64_t admit;     // tag, line 0 only: you were re-admitted; go on after this epoch
  uint64_t held_up;   // tag, line 0 only: I have waited long in this epoch, for somebody
  uint64_t failed;    // line 0 only: why I failed for good, as LlReport::failure says it; nothing more will come from me
};
static_assert(sizeof(LlLine) == 96 && offsetof(LlLine, arrival) == 32 && offsetof(LlLine, done) == 56);

constexpr uint32_t kRowsInPlace = 1;  // token rows went straight to your output window; the inbox has headers only

struct LlLayout {
  static constexpr size_t kLineStride = 128;  // two cache lines: the adjacent-line prefetcher pairs them

  int32_t num_ranks;
  int32_t num_experts;
  int32_t spans_nodes;          // some ranks are reached over the network only
  uint64_t inbox_block_bytes;   // capacity of one source's block
  uint64_t outbox_block_bytes;  // capacity of one reader's block

  SWITCHYARD_HD size_t line(int bank, int peer) const { return (size_t(bank) * num_ranks + peer) * kLineStride; }
  SWITCHYARD_HD size_t counts(int bank, int peer) const {
    return line(kNumBanks, 0) + (size_t(bank) * num_ranks + peer) * num_experts * sizeof(int32_t);
  }
  // What I told a rank that only the network reaches: the lines it keeps for me, as they are there.
  SWITCHYARD_HD size_t told(int bank, int peer) const {
    return counts(kNumBanks, 0) + (size_t(bank) * num_ranks + peer) * kLineStride;
  }
  SWITCHYARD_HD size_t control_bytes() const { return spans_nodes ? told(kNumBanks, 0) : counts(kNumBanks, 0); }

  SWITCHYARD_HD size_t inbox(int bank, int source) const {
    return (size_t(bank) * num_ranks + source) * inbox_block_bytes;
  }
  SWITCHYARD_HD size_t outbox(int bank, int reader) const {
    return inbox(kNumBanks, 0) + (size_t(bank) * num_ranks + reader) * outbox_block_bytes;
  }
  // Over the network: messages on their way out, and results on their way back in.
  SWITCHYARD_HD size_t departure(int bank, int dest) const {
    return outbox(kNumBanks, 0) + (size_t(bank) * num_ranks + dest) * inbox_block_bytes;
  }
  SWITCHYARD_HD size_t returned(int bank, int owner) const {
    return departure(kNumBanks, 0) + (size_t(bank) * num_ranks + owner) * outbox_block_bytes;
  }
  SWITCHYARD_HD size_t payload_bytes() const {
    return spans_nodes ? returned(kNumBanks, 0) : outbox(kNumBanks, 0);
  }
};

// Header of one message in an inbox: who it is for, in the sender's order of k.
//   int32 token | int32 reserved | int32 expert[topk] (global ids, -1 none) | float weight[topk] (rank-major only)
struct LlMessage {
  int32_t topk;
  bool has_weights;

  SWITCHYARD_HD static constexpr size_t align16(size_t bytes) { return (bytes + 15) / 16 * 16; }
  SWITCHYARD_HD size_t expert(int k) const { return 8 + size_t(k) * 4; }
  SWITCHYARD_HD size_t weight(int k) const { return expert(topk) + size_t(k) * 4; }
  SWITCHYARD_HD size_t header_bytes() const { return align16(has_weights ? weight(topk) : expert(topk)); }
  SWITCHYARD_HD size_t stride(size_t payload_bytes) const { return header_bytes() + align16(payload_bytes); }
};

}  // namespace switchyard::ep
