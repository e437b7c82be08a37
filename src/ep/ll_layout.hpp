// All address arithmetic of the low-latency protocol's payload window. Shared by host and device code.
//
//   inbox   [2 banks][num_ranks source][max_tokens] messages   written by the source: header | token row | scale row
//   outbox  [2 banks][num_ranks reader][rows per reader]       written by the rank itself, read by the reader
//
// A block of the inbox belongs to one source for ever, whatever handle is in use: a source that was given up on and
// writes late can only damage its own block, which nobody reads any more. Nobody but the owner writes an outbox.
// The boards of the control window hold, for expert-major output written in place, the peer's row counts per expert.
#pragma once
#include "ep/epoch.hpp"

namespace switchyard::ep {

struct LlLayout {
  int32_t num_ranks;
  int32_t spans_nodes;          // some ranks are reached over the network only
  uint64_t inbox_block_bytes;   // capacity of one source's block
  uint64_t outbox_block_bytes;  // capacity of one reader's block

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
