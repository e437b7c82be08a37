// What callers choose: configurations of groups, handles and calls. Zero means default, as in the C API.
#pragma once
#include <cstdint>

#include "switchyard/ep/tensor.hpp"

namespace switchyard::ep {

enum class Algorithm { kLowLatency = 0, kHighThroughput = 1 };
enum class Layout { kUnset = 0, kExpertMajor = 1, kRankMajor = 2, kFlat = 3 };
enum class Overflow { kAuto = 0, kTrap = 1, kDrop = 2 };  // of a receive budget; kAuto is kTrap
enum class ZeroCopy { kAuto = 0, kOff = 1, kOn = 2 };
enum class PassDirection { kForward = 0, kBackward = 1 };
enum class IdKind { kAuto = 0, kLocal = 1, kGlobal = 2 };
enum class DispatchQuant { kNone = 0, kForward = 1, kFusedFp8 = 2 };
enum class CombineQuant { kNone = 0, kNvfp4 = 1 };

// Memory for the library's own buffers; both null: the platform's allocator. Windows never come from here, because
// other processes must be able to map them.
struct AllocConfig {
  int (*allocate)(void** memory, size_t num_bytes, void* context) = nullptr;
  int (*free)(void* memory, void* context) = nullptr;
  void* context = nullptr;
};

struct GroupConfig {
  Algorithm algorithm = Algorithm::kLowLatency;
  uint32_t num_experts = 0;
  uint32_t max_tokens_per_rank = 0;
  uint32_t max_recv_tokens_per_rank = 0;  // high throughput: rows that a rank receives at most; 0: the caller looks first (eager)
  uint32_t max_token_bytes = 0;
  uint64_t buffer_bytes = 0;  // of each rank's payload window; 0: as the handles need
  uint32_t num_topk = 0;
  bool enable_mask = false;
  uint64_t timeout_ns = 0;
  ZeroCopy zero_copy = ZeroCopy::kAuto;
  Overflow overflow = Overflow::kAuto;
  AllocConfig alloc{};
};

struct HandleConfig {
  size_t expert_alignment = 0;  // high throughput, expert-major: rows of an expert are padded to a multiple; 0 and 1: no padding
  void* memory = nullptr;       // device memory of at least Handle::memory_bytes(), which must outlive the handle and what was posted with it; null: the group's
  size_t num_memory_bytes = 0;
};

struct LayoutInfo {
  Tensor expert_counters;
  Tensor src_rank_counters;
  Tensor expert_offsets;
  Tensor recv_total_counter;
  IdKind id_kind = IdKind::kAuto;
};

struct DispatchArgs {
  Tensor tokens, topk_weights, scales;                               // inputs
  Tensor out_tokens, out_topk_weights, out_scales, out_topk_idx;     // outputs
  LayoutInfo layout_info;
  bool has_layout_info = false;
  bool send_only = false;
  bool round_scales = false;
  PassDirection direction = PassDirection::kForward;
  DispatchQuant quant = DispatchQuant::kNone;
};

struct CombineArgs {
  Tensor tokens, topk_weights, scales;    // inputs
  Tensor out_tokens, out_topk_weights;    // expert-major reads its weights from out_topk_weights, as the C API says
  bool send_only = false;
  PassDirection direction = PassDirection::kForward;
  CombineQuant quant = CombineQuant::kNone;
};

}  // namespace switchyard::ep
