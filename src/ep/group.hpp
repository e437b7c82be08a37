// Group: the ranks of a communicator that dispatch and combine together. What every algorithm needs is here: the agreement on the
// configuration, the control window (epoch.hpp), masks, the order of operations, what went wrong. The algorithms are
// LlGroup (ll_group.hpp) and HtGroup (ht_group.hpp).
//
// THREADS    calls on one group and its handles are made by one thread at a time; abort the communicator to end a wait.
// OWNERSHIP  handles point to their group and must be destroyed first; the communicator must outlive the group.
// ERRORS     bad arguments are refused before anything is posted; what fails later is reported by the stream, by the
//            communicator's async_error() and by the group's next call.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "ep/admission.hpp"
#include "ep/allocation.hpp"
#include "ep/launch.hpp"
#include "ep/placement.hpp"
#include "switchyard/ep/config.hpp"

namespace switchyard::ep {

class Group : protected OperationObserver {
 public:
  // COLLECTIVE. Ranks must agree on the configuration; a rank that differs makes all fail, naming it.
  static Result<std::unique_ptr<Group>> create(Communicator& comm, const GroupConfig& config);
  // As close(), whose error is logged.
  ~Group() override = default;
  // COLLECTIVE. Waits for what was posted, then for the other ranks, and gives everything back, whatever it returns: the
  // first error. Afterwards the group may only be destroyed.
  Status close();

  Communicator& comm() const { return comm_; }
  const GroupConfig& config() const { return config_; }
  bool is_low_latency() const { return config_.algorithm == Algorithm::kLowLatency; }
  int rank() const { return comm_.rank(); }
  int num_ranks() const { return comm_.num_ranks(); }
  int max_tokens() const { return int(config_.max_tokens_per_rank); }
  int num_experts() const { return int(config_.num_experts); }
  int num_local_experts(int rank) const { return placement_.num_local[size_t(rank)]; }
  // Those of this rank, in local order.
  std::vector<int> local_experts() const;
  // Rows of one expert's block of a low-latency expert-major tensor.
  size_t rows_per_expert() const { return size_t(num_ranks()) * size_t(max_tokens()); }
  bool zero_copy_required() const { return config_.zero_copy == ZeroCopy::kOn; }
  uint64_t timeout_ns() const { return timeout_ns_; }
  bool is_verbose() const { return is_verbose_; }  // NCCL_EP_DEBUG

  // Waits for what was posted, however it ends: nothing uses a handle's memory any more.
  void drain() const;

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
  // High throughput only. REQUIRES  idle streams.
  virtual RailTraffic rail_traffic() const { return {}; }
  // Handles that are alive; they must go before the group.
  int num_handles() const { return num_handles_; }
  void count_handle(int change) { num_handles_ += change; }
  // Memory of a handle. What is retired is freed when everything posted so far has run; nobody waits for that, unless much of it has
  // come together.
  Result<void*> allocate(size_t num_bytes);
  void retire(void* memory);

 protected:
  Group(Communicator& comm, const GroupConfig& config);
  // COLLECTIVE. What all ranks need before anything else; fills the view. `state`: of the algorithm, zero but for what it begins
  // with, num_state_bytes of it.
  Status make_control(GroupView& view, int board_words, GroupState& state, size_t num_state_bytes);
  // Ends what a destructor of an algorithm has to end before its members go.
  void close_or_log();

  // Memory that the ranks of the node reach, and the network knows: a window.
  struct Shared {
    void* memory = nullptr;
    Window* window = nullptr;
  };
  // COLLECTIVE.
  Result<Shared> share(size_t num_bytes);
  // REQUIRES  this rank uses it no more.
  Status unshare(Shared shared, bool peers_are_done);
  // Memory of this rank's kernels, given back with the group; what it holds is undefined.
  Result<char*> carve(size_t num_bytes);

  // Operations run in the order in which they were issued, whatever streams they were issued to.
  Status order(StreamRef stream);
  // BLOCKING  until everything posted so far has run. What went wrong in it is for the streams to tell.
  Status await_posted() const;
  // Operations end by their own time limit, which may be microseconds, or by that of a post to the network; the host waits until
  // that has surely happened.
  Deadline drained() const { return Deadline::after_ns(2 * timeout_ns_ + comm_.timeout_ns() + kSecond); }
  virtual Status post_admission(Admission what, uint64_t admit_tag, StreamRef stream) = 0;
  virtual bool any_staged() const { return false; }

  Communicator& comm_;
  const GroupConfig config_;
  const uint64_t timeout_ns_;
  const Placement placement_;

 private:
  Status agree_on_config();
  void free_retired_if_idle();
  Status operation_failed() override;
  Status operation_faulty() override;
  Result<GroupState> read_state() const;
  // What a peer wrote for this rank on line 0 (epoch.hpp).
  Result<uint64_t> told_by(int peer, uint64_t PeerLine::* word) const;
  bool any_peer_failed() const;
  Status describe_failure(uint64_t word) const;
  Status require_masks() const;
  Result<bool> expelled(const GroupState& state) const;
  Status await_admission(StreamRef stream);

  Allocator allocator_;
  const bool is_verbose_;
  bool closed_ = false;
  Shared control_;
  ControlLayout control_layout_{};
  GroupState* state_ = nullptr;  // kernels alone see it
  Report* report_ = nullptr;     // kernels write it, the host reads it
  const uint32_t* const abort_;  // of the communicator
  int32_t* mask_ = nullptr;      // kernels'
  std::vector<Shared> shared_;
  std::vector<void*> carved_;
  static constexpr size_t kMaxRetired = 64;
  std::vector<void*> retired_;

  std::vector<StreamRef> streams_;  // ever used, newest last: what close() waits for
  int num_handles_ = 0;
  std::vector<bool> masked_by_caller_;  // by rank, in the last mask_update() since the last mask_clean()
  mutable std::mutex mutex_;            // guards failure_
  Status failure_;
};

}  // namespace switchyard::ep
