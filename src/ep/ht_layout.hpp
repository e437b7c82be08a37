// All address arithmetic of the high-throughput protocol: the payload window and the memory of a handle. Shared by host and
// device code.
//
// Payload window of a rank:
//
//   inbox      [num_ranks source][max_tokens] rows      tokens for this rank that are not written in place; a block has one writer:
//                                                       the source, or the rank of this node that forwards for it
//   meta       [num_ranks source][max_tokens] entries   what each row of the inbox, or written in place, is: ids or slots, weights
//   outbox     [max_slots] rows                         expert results of this rank, read by the ranks of its node
//   gradients  [max_slots][topk or 1] float             weight gradients of this rank, read by the ranks of its node
//   transit    [num_ranks][kNumRailChunks] chunks       rows that ranks of other nodes put here, in rings
//   departure  [num_ranks][kNumRailChunks] chunks       rows on their way to them
//
// It is addressed for the worst case and touched where it is used: the memory behind it follows what is received.
#pragma once
#include "ep/epoch.hpp"

namespace switchyard::ep {

constexpr int kNumRailChunks = 4;

struct HtLayout {
  int32_t num_ranks;
  int32_t max_tokens;
  int32_t spans_nodes;
  uint64_t max_slots;      // rows that this rank can receive
  uint64_t max_row_bytes;  // of tokens and scales
  uint64_t chunk_bytes;    // of a ring between nodes

  static constexpr uint64_t kPage = 4096;
  SWITCHYARD_HD static constexpr uint64_t paged(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  SWITCHYARD_HD uint64_t inbox(int source) const { return uint64_t(source) * paged(max_tokens * max_row_bytes); }
  SWITCHYARD_HD uint64_t meta(int source) const {
    return inbox(num_ranks) + uint64_t(source) * paged(uint64_t(max_tokens) * kMaxTopk * kEntryBytes);
  }
  SWITCHYARD_HD uint64_t outbox() const { return meta(num_ranks); }
  SWITCHYARD_HD uint64_t gradients() const { return outbox() + paged(max_slots * max_row_bytes); }
  SWITCHYARD_HD uint64_t transit(int peer) const {
    const uint64_t flat = uint64_t(num_ranks) * uint64_t(max_tokens) * kMaxTopk;
    return gradients() + paged((flat > max_slots ? flat : max_slots) * sizeof(float)) + uint64_t(peer) * ring_bytes();
  }
  SWITCHYARD_HD uint64_t departure(int peer) const { return transit(num_ranks) + uint64_t(peer) * ring_bytes(); }
  SWITCHYARD_HD uint64_t payload_bytes() const { return spans_nodes ? departure(num_ranks) : transit(0); }
  SWITCHYARD_HD uint64_t ring_bytes() const { return kNumRailChunks * chunk_bytes; }

  // One of a row's top-k entries in the meta block: what, and its weight.
  static constexpr uint64_t kEntryBytes = sizeof(int32_t) + sizeof(float);
};

// The board of a peer (epoch.hpp): three messages that it posts during an update, of these words each.
struct HtBoard {
  int32_t max_local;  // experts of the rank that has most

  enum Message { kCounts = 0, kPlaces = 1, kKept = 2 };
  SWITCHYARD_HD int first(Message message) const { return message * num_message_words(); }
  SWITCHYARD_HD int num_message_words() const { return expert(max_local); }
  SWITCHYARD_HD int num_words() const { return first(Message(3)); }

  static constexpr int kRows = 0;
  static constexpr int kNote = 1;
  // Of the reader (counts, kept counts) or of the peer (places).
  SWITCHYARD_HD static constexpr int expert(int local) { return 2 + local; }
};

// What an update counts, in group memory.
struct HtNumbers {
  int32_t num_ranks;
  int32_t num_experts;

  SWITCHYARD_HD int rows_to(int rank) const { return rank; }                       // tokens with an expert there
  SWITCHYARD_HD int kept_to(int rank) const { return num_ranks + rank; }           // the same, what is dropped left out
  SWITCHYARD_HD int row_place(int rank) const { return 2 * num_ranks + rank; }     // flat: slot of my first one; -1: the rank is gone
  SWITCHYARD_HD int is_here(int rank) const { return 3 * num_ranks + rank; }       // 1: its counts have come
  SWITCHYARD_HD int named(int rank) const { return 4 * num_ranks + rank; }         // 1 + the last token with an expert there
  SWITCHYARD_HD int reached(int rank) const { return 5 * num_ranks + rank; }       // 1 + the last token with a row there
  SWITCHYARD_HD int count(int expert) const { return 6 * num_ranks + expert; }     // tokens that name it
  SWITCHYARD_HD int seen(int expert) const { return count(num_experts) + expert; }  // 1 + the last token that names it
  SWITCHYARD_HD int kept(int expert) const { return seen(num_experts) + expert; }
  SWITCHYARD_HD int place(int expert) const { return kept(num_experts) + expert; }  // expert-major: slot of my first one
  SWITCHYARD_HD int num_words() const { return place(num_experts); }
};

// The plan of a handle, in its memory. An entry is (token, k).
//   uint64 plan_tag         of the update that made it
//   int32  valid            HtOp::plan_stamp of what made it: it may be used by whoever has the same
//   int32  num_tokens       of this rank
//   int32  num_slots        rows that this rank receives: padded, at most the budget
//   int32  reserved
//   uint64 mask             digest of who was masked; 0: somebody was masked while the plan was made, after rows were counted
//   int32  expert[entries]  id; -1 none; -2 - k: repeats entry k of its token
//   int32  slot[entries]    row at the expert's rank, -1 none (elsewhere in the token, or dropped). Flat: at the first entry of each rank
//   int32  index[entries]   at the first entry of each rank: which of my rows there it is, counted over what is not dropped; else -1
//   int32  received[ranks]  rows of each source that are not dropped
//   int32  base[ranks]      flat: rows of the sources before
//   int32  zone[locals][ranks + 2]  expert-major: first slot of each expert, end of its rows of each source, end of its padding; all
//                                   within the budget
//   int32  rail_rows[rail sources]                  rows that I forward for each
//   int32  rail[rail sources][max_tokens][3][topk]  expert, slot and index of each entry of such a row on this node
struct HtRecord {
  int32_t num_ranks;
  int32_t max_tokens;
  int32_t topk;
  int32_t max_local;
  int32_t num_rail_sources;

  enum Column { kExpert = 0, kSlot = 1, kIndex = 2 };
  SWITCHYARD_HD size_t plan_tag() const { return 0; }
  SWITCHYARD_HD size_t valid() const { return 2; }
  SWITCHYARD_HD size_t num_tokens() const { return 3; }
  SWITCHYARD_HD size_t num_slots() const { return 4; }
  SWITCHYARD_HD size_t mask() const { return 6; }
  SWITCHYARD_HD size_t entry(Column column, size_t idx) const { return 8 + column * num_entries() + idx; }
  SWITCHYARD_HD size_t received(int source) const { return entry(Column(3), 0) + source; }
  SWITCHYARD_HD size_t base(int source) const { return received(num_ranks) + source; }
  SWITCHYARD_HD size_t zone_first(int local) const { return base(num_ranks) + size_t(local) * (num_ranks + 2); }
  SWITCHYARD_HD size_t zone_end(int local, int source) const { return zone_first(local) + 1 + source; }
  SWITCHYARD_HD size_t zone_padded_end(int local) const { return zone_end(local, num_ranks); }
  SWITCHYARD_HD size_t rail_rows(int idx) const { return zone_first(max_local) + idx; }
  SWITCHYARD_HD size_t rail(int idx, int row, Column column, int k) const {
    return rail_rows(num_rail_sources) + ((size_t(idx) * max_tokens + row) * 3 + column) * topk + k;
  }
  SWITCHYARD_HD size_t num_words() const { return rail(num_rail_sources, 0, kExpert, 0); }
  SWITCHYARD_HD size_t num_entries() const { return size_t(max_tokens) * topk; }
};

}  // namespace switchyard::ep
