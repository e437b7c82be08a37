// Handle: one routing (top-k indices) on a group, and what its operations need to remember. LlHandle (ll_handle.hpp) and HtHandle
// (ht_handle.hpp) are the kinds.
//
// THREADS    as its group.
// OWNERSHIP  owns its memory unless the caller gave some; either is used until what was posted has run, also when the handle is
//            gone. What it keeps of the caller's is said at update().
// ERRORS     everything is checked before anything is posted; a refused call leaves outputs untouched.
#pragma once
#include <memory>

#include "ep/group.hpp"

namespace switchyard::ep {

class Handle {
 public:
  // Bytes of caller-owned handle memory that a handle of this shape needs.
  static Result<size_t> memory_bytes(const Group& group, Layout layout, int topk);
  // Low latency: COLLECTIVE when the group's buffer has to grow; high throughput: local.
  static Result<std::unique_ptr<Handle>> create(Group& group, Layout layout, int topk, const HandleConfig& config = {});
  virtual ~Handle();

  // REQUIRES  [n, topk], int32 or int64, n <= max tokens.
  // Low latency: local; remembers where the indices are, and dispatch and combine read them in stream order.
  // High throughput: COLLECTIVE, in stream order; plans where every row goes and writes the counters that `info` asks for. The
  // indices may be reused once it has run.
  virtual Status update(const Tensor& topk_idx, const LayoutInfo& info = {}, StreamRef stream = {}) = 0;
  virtual Status dispatch(const DispatchArgs& args, StreamRef stream) = 0;
  virtual Status combine(const CombineArgs& args, StreamRef stream) = 0;
  // Runs the receive half of the oldest staged operation of this handle on `stream`; nothing staged: does nothing.
  virtual Status complete(StreamRef stream) = 0;

  Group& group() const { return group_; }
  Layout layout() const { return layout_; }
  int topk() const { return topk_; }

 protected:
  Handle(Group& group, Layout layout, int topk);
  // The caller's memory if it fits, else some of the group's allocator.
  Status take_memory(const HandleConfig& config, size_t num_bytes);
  void* memory() const { return memory_; }
  bool owns_memory() const { return owns_memory_; }

 private:
  Group& group_;
  const Layout layout_;
  const int topk_;
  void* memory_ = nullptr;
  bool owns_memory_ = false;
};

}  // namespace switchyard::ep
