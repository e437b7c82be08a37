// The C++ face of expert parallelism: groups and handles that own, tensors with type and shape.
//
//   switchyard::ep::EpGroup group(comm, {.num_experts = 256, .max_tokens_per_rank = 128, .max_token_bytes = 14336});
//   switchyard::ep::EpHandle handle(group, switchyard::ep::Layout::kExpertMajor, topk);
//   handle.update(Tensor::of(topk_idx, DType::kInt64, {num_tokens, topk}));
//   handle.dispatch(dispatch_args, stream);
//   ... the experts run ...
//   handle.combine(combine_args, stream);
//
// Semantics are the C API's (nccl_ep.h, docs/ep.md).
//
// THREADS    calls on one group and its handles come from one thread at a time.
// OWNERSHIP  a handle must go before its group, a group before its Comm.
// ERRORS     switchyard::Error; a refused call has posted and written nothing.
#pragma once
#include <memory>
#include <vector>

#include "switchyard/comm.hpp"
#include "switchyard/ep/config.hpp"

namespace switchyard::ep {

class Group;
class Handle;

class EpGroup {
 public:
  // COLLECTIVE. Ranks must agree on the configuration.
  EpGroup(const Comm& comm, const GroupConfig& config);
  // COLLECTIVE. Waits for what was launched and for the other ranks.
  ~EpGroup();
  EpGroup(EpGroup&&) noexcept;
  // COLLECTIVE. What the destructor does, but throws what went wrong. REQUIRES  no handles; only the destructor afterwards.
  void close();

  int num_local_experts() const;
  // This rank's experts, by their numbers among all, in the order of the layouts.
  std::vector<int> local_experts() const;
  // Must dispatch look at how many rows come before it can start (high throughput without a budget)?
  bool is_eager() const;
  // Rows of one expert's block of an expert-major tensor.
  size_t rows_per_expert() const;
  // Touched memory that the library holds for this group on this rank.
  size_t memory_bytes() const;

  // Masks (docs/errors.md); the group must have been made with enable_mask.
  void mask_query(int32_t* device_mask, StreamRef stream);
  void mask_update(const int32_t* host_mask, StreamRef stream);
  void mask_clean(StreamRef stream);
  bool async_error() const;
  void error_clear();

  Group& internal() const { return *group_; }

 private:
  std::unique_ptr<Group> group_;
};

class EpHandle {
 public:
  // Low latency: COLLECTIVE when the group's buffer has to grow; high throughput: local.
  EpHandle(EpGroup& group, Layout layout, int topk, const HandleConfig& config = {});
  // Waits for nobody, unless half of a staged operation is dropped or the memory of many handles waits to be freed: the group's memory
  // is freed when what was posted has run, and the caller's (HandleConfig::memory) must stay that long.
  ~EpHandle();
  EpHandle(EpHandle&&) noexcept;
  // Of HandleConfig::memory, at least.
  static size_t memory_bytes(const EpGroup& group, Layout layout, int topk);

  // Low latency: remembers where the indices are, and dispatch and combine read them in stream order.
  void update(const Tensor& topk_idx);
  // High throughput: COLLECTIVE, in stream order. Plans where every row goes, and writes the counters that `info` names.
  void update(const Tensor& topk_idx, const LayoutInfo& info, StreamRef stream);
  void dispatch(const DispatchArgs& args, StreamRef stream);
  void combine(const CombineArgs& args, StreamRef stream);
  // The receive half of the oldest staged operation; without one, nothing.
  void complete(StreamRef stream);

 private:
  std::unique_ptr<Handle> handle_;
};

// What a layer's tokens look like.
struct BatchShape {
  size_t max_tokens, hidden, topk;
  int num_experts;
  DType dtype;
};
// Throws, naming what is wrong, unless x is [tokens, hidden] and aligned to 16 bytes, topk_idx [tokens, topk] int32 or int64, and topk_weights
// [tokens, topk] float32.
void check_batch(const Tensor& x, const Tensor& topk_idx, const Tensor& topk_weights, const BatchShape& shape);
// Throws unless the indices are nothing but -1 and numbers of experts. Operations find that out, too, but only when the other ranks have got
// this one's rows already. REQUIRES  memory of the host, and what check_batch() let pass.
void check_indices(const Tensor& topk_idx, int num_experts);

// Multiplies each row by its weight: float32 weights [rows], tokens [rows, hidden] of FP32, FP16 or BF16, in place where out is tokens.
// Computed in FP32 and rounded once. What a caller owes to a high-throughput combine.
void weigh_rows(const Tensor& tokens, const Tensor& weights, const Tensor& out);

}  // namespace switchyard::ep
