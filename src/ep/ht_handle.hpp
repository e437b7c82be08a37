// HtHandle: a handle of a high-throughput group. Its memory holds the plan that its last update made; another handle over the same
// memory can follow it.
#pragma once
#include <optional>

#include "ep/handle.hpp"
#include "ep/ht_group.hpp"

namespace switchyard::ep {

class HtHandle final : public Handle {
 public:
  static Result<size_t> memory_bytes(const HtGroup& group, Layout layout, int topk);
  // Local.
  static Result<std::unique_ptr<Handle>> create(HtGroup& group, Layout layout, int topk, const HandleConfig& config);

  Status update(const Tensor& topk_idx, const LayoutInfo& info, StreamRef stream) override;
  Status dispatch(const DispatchArgs& args, StreamRef stream) override;
  Status combine(const CombineArgs& args, StreamRef stream) override;
  // Nothing is ever staged.
  Status complete(StreamRef stream) override;

  HtGroup& ht_group() const { return group_; }
  // Of the plan, as far as this handle knows: nothing where another handle over the same memory made it. Kernels compare it, too.
  std::optional<size_t> num_tokens() const { return num_tokens_; }
  bool may_have_plan() const { return updated_ || !owns_memory(); }
  // Rows that output tensors need: the budget, or in eager mode what will come, which makes the host wait for the update.
  Result<size_t> required_rows();

 private:
  HtHandle(HtGroup& group, Layout layout, int topk, size_t alignment)
      : Handle(group, layout, topk), group_(group), alignment_(alignment) {}
  HtOp base_op(HtKind kind, size_t num_tokens) const;
  // What this handle knows of the plan in its memory is forgotten if there was an update since that may have changed it.
  void look_for_updates();
  bool gains_by_window(const HtOp& op) const;
  int32_t* record() const { return static_cast<int32_t*>(memory()); }

  HtGroup& group_;
  const size_t alignment_;
  bool updated_ = false;
  std::optional<size_t> num_tokens_;
  std::optional<size_t> eager_rows_;
  uint64_t known_at_ = 0;  // HtGroup::num_updates() when these two were right
};

}  // namespace switchyard::ep
