// Barriers: every member has arrived, and what it wrote before is visible.
//
// An epoch per barrier index lives in memory between calls; every member stores epoch + 1 into its word at each other
// member and waits for theirs. Nothing is reset, so a fast member can be one epoch ahead and no more.
#pragma once
#include "switchyard/device/comm.hpp"
#include "switchyard/device/wait.hpp"

namespace switchyard {

enum class BarrierResult { kOk, kTimeout, kFailed };

// One barrier index, used by one warp of each member at a time.
template <class P>
class Barrier {
 public:
  SWITCHYARD_DEVICE Barrier(const P& platform, const DeviceComm& comm, int index)
      : p_(platform), comm_(comm), index_(index) {}

  // Ranks of this node, by load and store.
  SWITCHYARD_DEVICE BarrierResult lsa() {
    const uint64_t epoch = next_epoch();
    for (int member = 0; member < comm_.lsa.num_ranks; ++member) arrive(comm_.lsa.world_rank(member), epoch);
    const BarrierResult result = wait_for_members(epoch);
    p_.store_relaxed(&comm_.barrier_epochs[index_], epoch);
    return result;
  }

  // My partners on the other nodes, over the network: each adds 1 to its word at the partner. Words of other nodes
  // count rail barriers, words of this node carry epochs; both only grow.
  SWITCHYARD_DEVICE BarrierResult rail() {
    uint64_t* count = &comm_.barrier_epochs[comm_.num_barriers + index_];
    const uint64_t goal = p_.load_relaxed(count) + 1;
    p_.store_relaxed(count, goal);
    for (int node = 0; node < comm_.num_nodes; ++node) {
      if (node == comm_.node) continue;
      const bool posted = p_.net_put(comm_.net, comm_.rail_peer(node), 0, 0, 0, 0, 0, comm_.resources.id,
                                     comm_.barrier_offset(index_, comm_.world.rank), uint64_t{1});
      if (!posted) return BarrierResult::kFailed;
    }
    int node = 0;
    return wait([&] {
      while (node < comm_.num_nodes && (node == comm_.node || heard(comm_.rail_peer(node), goal))) ++node;
      if (node < comm_.num_nodes) p_.net_progress(comm_.net);
      return node == comm_.num_nodes;
    });
  }

  // Everybody: the node comes together, its first rank meets the other nodes' first ranks, the node is let go.
  SWITCHYARD_DEVICE BarrierResult world() {
    BarrierResult result = lsa();
    if (comm_.num_nodes == 1 || result != BarrierResult::kOk) return result;
    if (comm_.lsa.rank == 0) result = rail();
    const BarrierResult released = lsa();
    return result == BarrierResult::kOk ? released : result;
  }

 private:
  SWITCHYARD_DEVICE uint64_t next_epoch() const { return p_.load_relaxed(&comm_.barrier_epochs[index_]) + 1; }
  SWITCHYARD_DEVICE uint64_t* inbox(int at_rank, int from) const {
    return comm_.resources.lsa_as<uint64_t>(comm_.barrier_offset(index_, from), at_rank);
  }
  SWITCHYARD_DEVICE void arrive(int world_rank, uint64_t epoch) {
    p_.store_release(inbox(world_rank, comm_.world.rank), epoch);  // release; pairs with the acquire in heard()
  }
  SWITCHYARD_DEVICE bool heard(int world_rank, uint64_t epoch) const {
    return rolling_at_least(p_.load_acquire(inbox(comm_.world.rank, world_rank)), epoch);
  }
  template <class Ready>
  SWITCHYARD_DEVICE BarrierResult wait(Ready ready) {
    return wait_until(p_, ready, comm_.timeout_ns, comm_.abort) ? BarrierResult::kOk : BarrierResult::kTimeout;
  }

  SWITCHYARD_DEVICE BarrierResult wait_for_members(uint64_t epoch) {
    int member = 0;
    return wait([&] {
      while (member < comm_.lsa.num_ranks && heard(comm_.lsa.world_rank(member), epoch)) ++member;
      return member == comm_.lsa.num_ranks;
    });
  }

  const P& p_;
  const DeviceComm& comm_;
  int index_;
};

}  // namespace switchyard
