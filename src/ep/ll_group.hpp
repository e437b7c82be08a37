// LlGroup: a group that does low-latency operations.
//
// Memory (docs/protocol.md), beside the control window: a payload window, made or grown when a handle needs it; device-resident
// plans and counters.
#pragma once
#include <array>

#include "ep/group.hpp"
#include "ep/ll_launch.hpp"

namespace switchyard::ep {

class LlGroup final : public Group {
 public:
  // COLLECTIVE.
  static Result<std::unique_ptr<Group>> create(Communicator& comm, const GroupConfig& config);
  ~LlGroup() override;

  // May peers write and read the caller's windows? Not with masks: a rank that was given up on may write late. And not
  // over the network, which knows the group's own windows only.
  bool may_work_in_place() const { return !config_.enable_mask && config_.zero_copy != ZeroCopy::kOff && comm_.topology().num_nodes() == 1; }

  // Makes sure that the payload window holds a handle of this shape. COLLECTIVE when it has to grow.
  Status reserve(Layout layout, int topk);

  // An operation of this group, to be filled in and posted.
  LlOp new_operation() const;
  Status post(const LlOp& op, StreamRef stream);
  // Staged operations: at most two per group. Returns a slot, or why there is none.
  Result<int> open_staged();
  void close_staged(int slot);
  // The operation will never be completed: gives its slot back, and nothing touches its tensors any more.
  void forget_staged(int slot);

 private:
  LlGroup(Communicator& comm, const GroupConfig& config);
  Status make_state();
  Status make_payload(uint64_t inbox_block_bytes, uint64_t outbox_block_bytes);
  Status check_next_bank() const;
  bool any_staged() const override;
  Status post_admission(Admission what, uint64_t admit_tag, StreamRef stream) override;

  const std::unique_ptr<LlLauncher> launcher_;
  LlGroupView view_{};
  Shared payload_;
  uint64_t num_issued_ = 0;                    // dispatches and combines: each takes the bank that comes next
  std::array<uint64_t, kMaxStaged> staged_{};  // by slot: which of them still holds its bank; 0 none
};

}  // namespace switchyard::ep
