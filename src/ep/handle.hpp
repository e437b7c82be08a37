// Handle: one routing (top-k indices) on a group, and the record of what its last dispatch received.
//
// THREADS    as its group.
// OWNERSHIP  keeps pointers to the caller's index data, which dispatch and combine read in stream order; owns its record
//            unless the caller gave memory for it.
// ERRORS     everything is checked before anything is posted; a refused call leaves outputs untouched.
#pragma once
#include <deque>
#include <memory>

#include "ep/group.hpp"

namespace switchyard::ep {

class Handle {
 public:
  // Bytes of caller-owned handle memory that a handle of this shape needs.
  static Result<size_t> memory_bytes(const Group& group, Layout layout, int topk);
  // COLLECTIVE when the group's buffer has to grow. `memory`: device memory of at least memory_bytes(), or null.
  static Result<std::unique_ptr<Handle>> create(Group& group, Layout layout, int topk, void* memory,
                                                size_t num_memory_bytes);
  ~Handle();

  // Local: remembers where the indices are. REQUIRES  [n, topk], int32 or int64, n <= max tokens.
  Status update(const Tensor& topk_idx);
  Status dispatch(const DispatchArgs& args, StreamRef stream);
  Status combine(const CombineArgs& args, StreamRef stream);
  // Runs the receive half of the oldest staged operation of this handle on `stream`; nothing staged: does nothing.
  Status complete(StreamRef stream);

  Group& group() const { return group_; }
  Layout layout() const { return layout_; }
  int topk() const { return topk_; }
  bool has_routing() const { return has_routing_; }
  bool has_record() const { return has_record_; }
  int num_tokens() const { return num_tokens_; }
  size_t num_staged() const { return staged_.size(); }

 private:
  Handle(Group& group, Layout layout, int topk) : group_(group), layout_(layout), topk_(topk) { group.count_handle(1); }
  LlOp base_op() const;
  Status run(LlOp& op, bool send_only, StreamRef stream);

  Group& group_;
  const Layout layout_;
  const int topk_;
  bool has_routing_ = false;
  int num_tokens_ = 0;
  const void* topk_idx_ = nullptr;
  bool indices_are_64_ = false;
  int32_t* record_ = nullptr;
  bool owns_record_ = false;
  bool has_record_ = false;  // a dispatch wrote it, maybe one of an earlier handle over the same memory
  std::deque<LlOp> staged_;
};

}  // namespace switchyard::ep
