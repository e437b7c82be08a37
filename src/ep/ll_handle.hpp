// LlHandle: a handle of a low-latency group, with the record of what its last dispatch received.
//
// OWNERSHIP  keeps pointers to the caller's index data, which dispatch and combine read in stream order.
#pragma once
#include <deque>

#include "ep/handle.hpp"
#include "ep/ll_group.hpp"

namespace switchyard::ep {

class LlHandle final : public Handle {
 public:
  static Result<size_t> memory_bytes(const LlGroup& group, Layout layout, int topk);
  static Result<std::unique_ptr<Handle>> create(LlGroup& group, Layout layout, int topk, const HandleConfig& config);
  ~LlHandle() override;

  Status update(const Tensor& topk_idx, const LayoutInfo& info, StreamRef stream) override;
  Status dispatch(const DispatchArgs& args, StreamRef stream) override;
  Status combine(const CombineArgs& args, StreamRef stream) override;
  Status complete(StreamRef stream) override;

  bool has_routing() const { return has_routing_; }
  bool has_record() const { return has_record_; }
  int num_tokens() const { return num_tokens_; }
  size_t num_staged() const { return staged_.size(); }

 private:
  LlHandle(LlGroup& group, Layout layout, int topk) : Handle(group, layout, topk), group_(group) {}
  LlOp base_op() const;
  Status run(LlOp& op, bool send_only, StreamRef stream);

  LlGroup& group_;
  bool has_routing_ = false;
  int num_tokens_ = 0;
  const void* topk_idx_ = nullptr;
  bool indices_are_64_ = false;
  bool has_record_ = false;  // a dispatch wrote it, maybe one of an earlier handle over the same memory
  std::deque<LlOp> staged_;
};

}  // namespace switchyard::ep
