// HtGroup: a group that does high-throughput operations.
//
// Memory (docs/protocol.md), beside the control window: a payload window (ht_layout.hpp), made with the group, addressed for the
// worst case and touched as far as rows come.
#pragma once
#include "ep/group.hpp"
#include "ep/ht_launch.hpp"

namespace switchyard::ep {

class HtGroup final : public Group {
 public:
  // COLLECTIVE.
  static Result<std::unique_ptr<Group>> create(Communicator& comm, const GroupConfig& config);
  ~HtGroup() override;

  // The caller looks how many rows come before it makes the tensors for them.
  bool is_eager() const { return config_.max_recv_tokens_per_rank == 0; }
  bool drops() const { return config_.overflow == Overflow::kDrop; }
  // May the ranks of a node write and read the caller's windows? Not with masks: a rank that was given up on may write late.
  bool may_work_in_place() const { return !config_.enable_mask && config_.zero_copy != ZeroCopy::kOff; }
  HtRecord record_layout(int topk) const;
  RailTraffic rail_traffic() const override;
  // Of eager groups, whose slots have no other bound.
  static constexpr size_t kMaxEagerAlignment = 4096;

  HtOp new_operation(Layout layout, int topk) const;
  Status post(const HtOp& op, StreamRef stream);
  // Updates posted so far, of all handles: two of them may have the same memory.
  uint64_t num_updates() const { return num_updates_; }
  struct Plan {
    size_t num_rows;  // that come
    size_t num_tokens;
  };
  // BLOCKING  until what was posted has run. What is in the memory of the operation's handle; an error where that is no plan that
  // such an operation can follow.
  Result<Plan> look_at_plan(const HtOp& op);

 private:
  HtGroup(Communicator& comm, const GroupConfig& config);
  Status make_state();
  Result<uint64_t> max_slots() const;
  Status post_admission(Admission what, uint64_t admit_tag, StreamRef stream) override;

  const std::unique_ptr<HtLauncher> launcher_;
  HtGroupView view_{};
  const uint64_t number_;  // no two groups of a process have the same
  uint64_t num_updates_ = 0;
};

}  // namespace switchyard::ep
