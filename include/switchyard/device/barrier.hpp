// Barriers: every member has arrived, and what it wrote before by load and store is visible. Puts over the network are
// announced by their own signals and by nothing else.
//
// An epoch per barrier index lives in memory between calls; every member stores epoch + 1 into its word at each other
// member and waits for theirs. Nothing is reset, so a fast member can be one epoch ahead and no more.
#pragma once
#include "switchyard/device/comm.hpp"
#include "switchyard/device/wait.hpp"

namespace switchyard {

enum class BarrierResult { kOk, kTimeout, kFailed, kPeerGone, kAborted };

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
    advance_to(epoch);
    return result;
  }

  // My partners on the other nodes, over the network. Nodes may have different sizes: partners are my rail peers and those
  // whose rail peer I am, so that whoever waits for a rank is waited for by it.
  SWITCHYARD_DEVICE BarrierResult rail() {
    return meet([&](int node, int local) {
      return local == comm_.lsa.rank % comm_.node_size[node] || comm_.lsa.rank == local % comm_.lsa.num_ranks;
    });
  }

  // Everybody: the node comes together, its first rank meets the other nodes' first ranks, and tells the node how that went, and
  // who was missing. Ranks whose time is up before they are told name the one they waited for.
  SWITCHYARD_DEVICE BarrierResult world() {
    const BarrierResult result = lsa();
    if (comm_.num_nodes == 1) return result;
    if (result != BarrierResult::kOk) {
      advance_to(next_epoch());  // two a call, however it ends: nobody takes one step of another for the other
      return result;
    }
    return comm_.lsa.rank == 0 ? let_go(meet([](int /*node*/, int local) { return local == 0; })) : await_release();
  }

  // After a barrier that failed: the rank that was waited for, or that the network does not reach.
  SWITCHYARD_DEVICE int missing() const { return missing_; }

 private:
  SWITCHYARD_DEVICE uint64_t next_epoch() const { return p_.load_relaxed(&comm_.barrier_epochs[index_]) + 1; }
  SWITCHYARD_DEVICE void advance_to(uint64_t epoch) { p_.store_relaxed(&comm_.barrier_epochs[index_], epoch); }
  SWITCHYARD_DEVICE uint64_t* inbox(int at_rank, int from) const {
    return comm_.resources.lsa_as<uint64_t>(comm_.barrier_offset(index_, from), at_rank);
  }
  SWITCHYARD_DEVICE void arrive(int world_rank, uint64_t epoch) {
    p_.store_release(inbox(world_rank, comm_.world.rank), epoch);  // release; pairs with the acquire in heard()
  }
  SWITCHYARD_DEVICE bool heard(int world_rank, uint64_t epoch) const {
    return rolling_at_least(p_.load_acquire(inbox(comm_.world.rank, world_rank)), epoch);
  }
  // `rank`: who is waited for at the moment, as long as ready() is false; ready() moves it on.
  template <class Ready>
  SWITCHYARD_DEVICE BarrierResult wait(const int& rank, Ready ready) {
    const auto gone = [&] { return is_gone(p_, comm_, rank); };
    const WaitEnd end = wait_for_peers(p_, ready, gone, comm_.timeout_ns, comm_.abort);
    if (end != WaitEnd::kReady) missing_ = rank;
    switch (end) {
      case WaitEnd::kReady: return BarrierResult::kOk;
      case WaitEnd::kPeerGone: return BarrierResult::kPeerGone;
      case WaitEnd::kAborted: return BarrierResult::kAborted;
      case WaitEnd::kTimeout: break;
    }
    return BarrierResult::kTimeout;
  }

  // Ranks of other nodes: each adds 1 to its word at the partner. Words of other nodes count how often the two have met,
  // words of this node carry epochs; both only grow. Partners must agree that they are: is_partner(node, local index).
  template <class IsPartner>
  SWITCHYARD_DEVICE BarrierResult meet(IsPartner is_partner) {
    const auto is_partner_rank = [&](int rank) {
      const int node = comm_.node_of(rank);
      return node != comm_.node && is_partner(node, rank - comm_.node_first[node]);
    };
    for (int rank = 0; rank < comm_.world.num_ranks; ++rank) {
      if (!is_partner_rank(rank)) continue;
      p_.store_relaxed(num_met(rank), p_.load_relaxed(num_met(rank)) + 1);
      const NetPut arrival{rank, 0, 0, 0, 0, 0, comm_.resources.id, comm_.barrier_offset(index_, comm_.world.rank), 1, nullptr};
      if (net_signal(p_, comm_.net, arrival)) continue;
      missing_ = rank;
      return BarrierResult::kFailed;
    }
    int rank = 0;
    return wait(rank, [&] {
      while (rank < comm_.world.num_ranks && (!is_partner_rank(rank) || heard(rank, p_.load_relaxed(num_met(rank))))) {
        ++rank;
      }
      if (rank == comm_.world.num_ranks) return true;
      p_.net_progress(comm_.net);
      return false;
    });
  }
  SWITCHYARD_DEVICE uint64_t* num_met(int rank) const {
    return &comm_.barrier_epochs[comm_.num_barriers + index_ * comm_.world.num_ranks + rank];
  }

  // How the meeting of the first ranks went, beside the word that says that it is over: it is written again only when the whole node
  // has come to the next barrier, and so is through with this one.
  SWITCHYARD_DEVICE uint64_t* verdict(int at_rank) const { return inbox(at_rank, comm_.lsa.world_rank(0)) + 1; }
  SWITCHYARD_DEVICE BarrierResult let_go(BarrierResult result) {
    const uint64_t epoch = next_epoch();
    for (int member = 1; member < comm_.lsa.num_ranks; ++member) {
      const int rank = comm_.lsa.world_rank(member);
      if (p_.lane() == 0) p_.write(verdict(rank), uint64_t(result) | uint64_t(missing_ + 1) << 32);
      arrive(rank, epoch);
    }
    advance_to(epoch);
    return result;
  }
  SWITCHYARD_DEVICE BarrierResult await_release() {
    const uint64_t epoch = next_epoch();
    const int first = comm_.lsa.world_rank(0);
    const BarrierResult result = wait(first, [&] { return heard(first, epoch); });
    advance_to(epoch);
    if (result != BarrierResult::kOk) return result;
    const uint64_t told = p_.read(verdict(comm_.world.rank));
    missing_ = int(told >> 32) - 1;
    return BarrierResult(uint32_t(told));
  }

  SWITCHYARD_DEVICE BarrierResult wait_for_members(uint64_t epoch) {
    int member = 0, rank = comm_.lsa.world_rank(0);
    return wait(rank, [&] {
      while (member < comm_.lsa.num_ranks && heard(comm_.lsa.world_rank(member), epoch)) ++member;
      rank = comm_.lsa.world_rank(member < comm_.lsa.num_ranks ? member : 0);
      return member == comm_.lsa.num_ranks;
    });
  }

  const P& p_;
  const DeviceComm& comm_;
  int index_;
  int missing_ = -1;
};

}  // namespace switchyard
