// Group: the ranks of a communicator that dispatch and combine together, with the memory they do it in.
//
// Memory (docs/protocol.md): a control window, made with the group; a payload window, made or grown when a handle needs
// it; device-resident state, plan and mask.
//
// THREADS    calls on one group and its handles are made by one thread at a time; abort the communicator to end a wait.
// OWNERSHIP  handles point to their group and must be destroyed first; the communicator must outlive the group.
// ERRORS     bad arguments are refused before anything is posted; what fails later is reported by the stream, by the
//            communicator's async_error() and by the group's next call.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "ep/allocation.hpp"
#include "switchyard/ep/config.hpp"
#include "ep/ll_launch.hpp"
#include "ep/placement.hpp"

namespace switchyard::ep {

class Handle;

class Group final : private LlObserver {
 public:
  // COLLECTIVE. Ranks must agree on the configuration; a rank that differs makes all fail, naming it.
  static Result<std::unique_ptr<Group>> create(Communicator& comm, const GroupConfig& config);
  // As close(), whose error is logged.
  ~Group() override;
  // COLLECTIVE. Waits for what was posted, then for the other ranks, and gives everything back, whatever it returns: the
  // first error. Afterwards the group may only be destroyed.
  Status close();

  Communicator& comm() const { return comm_; }
  const GroupConfig& config() const { return config_; }
  int rank() const { return comm_.rank(); }
  int num_ranks() const { return comm_.num_ranks(); }
  int max_tokens() const { return int(config_.max_tokens_per_rank); }
  int num_experts() const { return int(config_.num_experts); }
  int num_local_experts(int rank) const { return placement_.num_local[size_t(rank)]; }
  // Rows of one expert's block of an expert-major tensor.
  size_t rows_per_expert() const { return size_t(num_ranks()) * size_t(max_tokens()); }
  bool zero_copy_required() const { return config_.zero_copy == ZeroCopy::kOn; }
  uint64_t timeout_ns() const { return timeout_ns_; }
  bool is_verbose() const { return is_verbose_; }  // NCCL_EP_DEBUG
  // May peers write and read the caller's windows? Not with masks: a rank that was given up on may write late. And not
  // over the network, which knows the group's own windows only.
  bool may_work_in_place() const { return !config_.enable_mask && comm_.topology().num_nodes() == 1; }

  // Makes sure that the payload window holds a handle of this shape. COLLECTIVE when it has to grow.
  Status reserve(Layout layout, int topk);

  // An operation of this group, to be filled in and posted.
  LlOp new_operation() const;
  Status post(const LlOp& op, StreamRef stream);
  // Staged operations: at most two per group. Returns a slot, or why there is none.
  Result<int> open_staged();
  void close_staged(int slot);
  // Waits for what was posted, however it ends: nothing uses a handle's memory any more.
  void drain() const;
  // The operation will never be completed: gives its slot back, and nothing touches its tensors any more.
  void forget_staged(int slot);

  // Masks (docs/errors.md). All refuse a group without them.
  Status mask_query(int32_t* device_mask, StreamRef stream);
  Status mask_update(const int32_t* host_mask, StreamRef stream);
  // COLLECTIVE over the ranks that this rank has not masked; afterwards nobody is masked, and those who were re-admitted
  // go on with the others.
  Status mask_clean(StreamRef stream);
  Result<int> async_error() const;
  Status error_clear();

  // Ok, or why the group can't be used any more.
  Status health();
  // What the library holds for this group on this rank, in bytes of touched memory.
  size_t memory_bytes() const;
  // Handles that are alive; they must go before the group.
  int num_handles() const { return num_handles_; }
  void count_handle(int change) { num_handles_ += change; }
  Result<void*> allocate(size_t num_bytes) { return allocator_.allocate(num_bytes); }
  void free(void* memory) { allocator_.free(memory); }

 private:
  Group(Communicator& comm, const GroupConfig& config, uint64_t timeout_ns);
  Status agree_on_config();
  Status make_state();
  Status make_payload(uint64_t inbox_block_bytes, uint64_t outbox_block_bytes);
  bool any_staged() const;
  Status order(StreamRef stream);
  // Operations end by their own time limit, which may be microseconds; the host waits until that has surely happened.
  Deadline drained() const { return Deadline::after_ns(2 * timeout_ns_ + kSecond); }
  Status check_next_bank() const;
  Status operation_failed() override;
  Status operation_faulty() override;
  Result<LlState> read_state() const;
  // What a peer wrote for this rank on line 0 (ll_layout.hpp).
  Result<uint64_t> told_by(int peer, uint64_t LlLine::* word) const;
  bool any_peer_failed() const;
  Status describe_failure(uint64_t word) const;
  Status require_masks() const;
  Result<bool> expelled(const LlState& state) const;
  Status await_admission(StreamRef stream);

  Communicator& comm_;
  const GroupConfig config_;
  const uint64_t timeout_ns_;
  const Placement placement_;
  Allocator allocator_;

  const bool is_verbose_;
  bool closed_ = false;
  const std::unique_ptr<LlLauncher> launcher_;
  LlGroupView view_{};
  std::vector<void*> owned_;  // allocations behind the view, freed by the destructor
  LlState* state_ = nullptr;    // kernels alone see it
  LlReport* report_ = nullptr;  // kernels write it, the host reads it
  Window* control_window_ = nullptr;
  Window* payload_window_ = nullptr;
  void* control_memory_ = nullptr;
  void* payload_memory_ = nullptr;

  std::vector<StreamRef> streams_;  // ever used, newest last: what the destructor waits for
  uint64_t num_issued_ = 0;                    // dispatches and combines: each takes the bank that comes next
  std::array<uint64_t, kMaxStaged> staged_{};  // by slot: which of them still holds its bank; 0 none
  int num_handles_ = 0;
  std::vector<bool> masked_by_caller_;  // by rank, in the last mask_update() since the last mask_clean()
  mutable std::mutex mutex_;  // guards failure_
  Status failure_;
};

}  // namespace switchyard::ep
