// What one low-latency operation gets to know: plain structs, passed by value to the kernel.
#pragma once
#include <cstdint>

#include "ep/ll_layout.hpp"
#include "switchyard/device/comm.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard::ep {

constexpr int kMaxStaged = kNumBanks;  // staged operations in flight: each holds a bank

// Counters and flags of one bank's operation; zero between operations (the last warp out clears them).
struct LlBankState {
  uint64_t plan_ready;      // not 0 when the send plan of this operation is complete, and which way rows go
  uint64_t num_scanned;     // sources whose headers have been turned into slots
  uint64_t all_arrived;     // 1 when every peer's combine rows are there (or given up)
  uint64_t warps_finished;  // warps that are through with the operation
};

struct LlState : GroupState {
  uint64_t staged_tag[kMaxStaged];  // of the operations whose receive half is still to come, by slot
  LlBankState bank[kNumBanks];
};

struct LlGroupView : GroupView {
  LlLayout layout;
  char* const* payload;  // [num_ranks] payload window of every rank
  uint32_t payload_id;   // as the network knows it
  uint64_t* counters;    // [2 banks][num_ranks] rows sent so far to each peer
  int32_t* plan;         // [2 banks] LlPlan arrays
  char* scratch;         // [num_warps][scratch_bytes] one row per warp, for fused quantisation
  uint64_t scratch_bytes;

  SWITCHYARD_HD LlState& ll_state() const { return *static_cast<LlState*>(state); }
};

enum class LlKind : int32_t { kDispatch = 0, kCombine = 1 };
enum class LlPart : int32_t { kSend = 1, kReceive = 2, kBoth = 3 };
enum class LlQuant : int32_t { kNone = 0, kForward = 1, kFusedFp8 = 2, kNvfp4 = 3 };

// Per-handle record of what was received, for the combine that follows; lives in handle memory.
//   uint64 dispatch_tag                        of the dispatch that filled it
//   int32 num_received[num_ranks]              messages of this source, | kInPlaceBit when its rows came in place
//   int32 first_row[num_ranks][max_tokens]     rows of this source before this message (expert-major outbox index)
//   int32 slot[num_ranks][max_tokens][topk]    expert-major output row of (message, k), -1 not here
//   int32 final_slot[max_tokens][topk]         output rows of my own tokens at their owners, when I placed them
constexpr int32_t kInPlaceBit = 1 << 30;

struct LlRecord {
  int32_t num_ranks;
  int32_t max_tokens;
  int32_t topk;

  SWITCHYARD_HD size_t dispatch_tag() const { return 0; }
  SWITCHYARD_HD size_t num_received(int source) const { return dispatch_tag() + 2 + source; }
  SWITCHYARD_HD size_t first_row(int source, int message) const {
    return num_received(num_ranks) + size_t(source) * max_tokens + message;
  }
  SWITCHYARD_HD size_t slot(int source, int message, int k) const {
    return first_row(num_ranks, 0) + (size_t(source) * max_tokens + message) * topk + k;
  }
  SWITCHYARD_HD size_t final_slot(int token, int k) const { return slot(num_ranks, 0, 0) + size_t(token) * topk + k; }
  SWITCHYARD_HD size_t num_words() const { return final_slot(max_tokens, 0); }
};

// The sender's plan of one operation, one per bank, in group memory. An entry is (token, k).
//   int32 dest[max_tokens * kMaxTopk]    rank the entry's row goes to; -1 none, or another entry already sends it
//   int32 index[max_tokens * kMaxTopk]   message (or outbox row) index at that rank
//   int32 expert[max_tokens * kMaxTopk]  global expert id, -1 invalid
//   int32 slot[max_tokens * kMaxTopk]    row inside the expert at its owner, in-place expert-major only
//   int32 num_to[num_ranks]              entries with that dest
//   int32 expert_count[num_experts]      my rows per expert
//   int32 expert_base[num_experts]       rows of lower-ranked sources per expert
struct LlPlan {
  int32_t num_entries;  // capacity: max_tokens * kMaxTopk
  int32_t num_ranks;
  int32_t num_experts;

  SWITCHYARD_HD size_t dest(int entry) const { return entry; }
  SWITCHYARD_HD size_t index(int entry) const { return dest(num_entries) + entry; }
  SWITCHYARD_HD size_t expert(int entry) const { return index(num_entries) + entry; }
  SWITCHYARD_HD size_t slot(int entry) const { return expert(num_entries) + entry; }
  SWITCHYARD_HD size_t num_to(int rank) const { return slot(num_entries) + rank; }
  SWITCHYARD_HD size_t expert_count(int id) const { return num_to(num_ranks) + id; }
  SWITCHYARD_HD size_t expert_base(int id) const { return expert_count(num_experts) + id; }
  SWITCHYARD_HD size_t num_words() const { return expert_base(num_experts); }
};

// One operation.
struct LlOp {
  LlGroupView group;
  LlKind kind;
  LlPart part;
  LlQuant quant;
  int32_t slot;  // of a staged operation in LlState::staged_tag
  int32_t topk;
  int32_t num_tokens;
  int32_t num_local;  // experts of this rank
  int32_t expert_major;
  int32_t indices_are_64;
  int32_t global_ids;    // rank-major: report global instead of local expert ids
  int32_t round_scales;  // fused FP8
  DType dtype;           // of rows
  uint32_t num_elements; // of a row in `dtype` (combine) or BF16 input (fused FP8)
  uint32_t token_bytes;  // of a token row as it travels
  uint32_t scale_bytes;  // of a scale row as it travels
  uint32_t input_bytes;  // of a row of `tokens`
  int32_t in_place;      // dispatch: offer my output window; combine: peers read my input window
  const void* topk_idx;
  const float* weights_in;  // dispatch rank-major: input weights; combine expert-major: weights
  const char* tokens;       // dispatch: [num_tokens] input rows; combine: expert results
  const char* scales;
  char* out_tokens;
  char* out_scales;
  float* out_weights;
  int32_t* out_idx;
  int32_t* out_counts;      // expert-major: per local expert; rank-major: per source (may be null)
  int32_t* record;          // handle memory, LlRecord
  char* const* token_windows;  // [num_ranks] bases of the window of my output (dispatch) or input (combine)
  char* const* scale_windows;
  uint64_t token_window_offset;
  uint64_t scale_window_offset;
  uint32_t token_window_id;  // 0 none
  uint32_t scale_window_id;
};

}  // namespace switchyard::ep
