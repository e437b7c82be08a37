// Gin: one-sided puts and signals to any rank, started by the kernel.
//
// The one ordering rule: a signal becomes visible at the peer after all earlier puts of the same (context, peer), and
// says nothing about anything else: not about other contexts, not about other peers.
// Peers whose memory this kernel reaches by load and store are written directly; the others go to the network plugin,
// which applies the signal at the target after the data (net/net.hpp).
//
// A call is made by all threads of a cooperative group together. The data may have been written by any of them: the
// group is synchronised before it is read.
#pragma once
#include <cstdint>

#include "switchyard/device/comm.hpp"
#include "switchyard/device/coop.hpp"
#include "switchyard/device/wait.hpp"

namespace switchyard {

struct NoAction {};
struct SignalAdd {
  int signal;
  uint64_t value = 1;
};
struct CounterAdd {
  int counter;
};

enum class GinStatus { kOk, kTimeout, kPeerGone, kFailed, kAborted };

constexpr int kAnyRank = -1;

template <class P>
class Gin {
 public:
  SWITCHYARD_DEVICE Gin(const P& platform, const DeviceComm& comm, int context)
      : p_(platform), comm_(comm), context_(context % comm.num_contexts) {}

  // Copies local memory of one window into the peer's part of another, then adds to the peer's signal.
  // Returns when the source may be reused.
  template <class Coop, class Remote = NoAction, class Local = NoAction>
  SWITCHYARD_DEVICE GinStatus put(Coop coop, int peer, const WindowView& to, uint64_t to_offset, const WindowView& from,
                                  uint64_t from_offset, uint64_t num_bytes, Remote remote = {}, Local local = {}) const {
    coop.sync();
    GinStatus status = GinStatus::kOk;
    if (to.reaches(peer)) {
      p_.copy_together(coop, to.lsa(to_offset, peer), from.local(from_offset), num_bytes);
      p_.drain();
      coop.sync();
      if (coop.thread_rank() == 0) add_signal(peer, remote);
    } else if (coop.thread_rank() == 0) {
      status = net_put(peer, to.id, to_offset, from.id, from_offset, num_bytes, remote);
    }
    if (coop.thread_rank() == 0) count(local);
    coop.sync();
    return status;
  }

  // Writes one value; the bytes travel with the call.
  template <class T, class Remote = NoAction>
  SWITCHYARD_DEVICE GinStatus put_value(int peer, const WindowView& to, uint64_t to_offset, T value,
                                        Remote remote = {}) const {
    static_assert(sizeof(T) <= 8);
    if (to.reaches(peer)) {
      p_.store_relaxed_thread(to.template lsa_as<T>(to_offset, peer), value);
      add_signal(peer, remote);
      return GinStatus::kOk;
    }
    uint64_t bits = 0;
    for (unsigned i = 0; i < sizeof(T); ++i) {
      reinterpret_cast<unsigned char*>(&bits)[i] = reinterpret_cast<const unsigned char*>(&value)[i];
    }
    const SignalAdd action = as_signal(remote);
    const bool posted = p_.net_put_value(comm_.net, peer, to.id, to_offset, bits, sizeof(T), comm_.resources.id,
                                         comm_.signal_offset(context_, action.signal), action.value);
    return posted ? GinStatus::kOk : GinStatus::kFailed;
  }

  SWITCHYARD_DEVICE GinStatus signal(int peer, SignalAdd action) const {
    if (comm_.resources.reaches(peer)) {
      add_signal(peer, action);
      return GinStatus::kOk;
    }
    return net_put(peer, 0, 0, 0, 0, 0, action);
  }

  // Sources of all earlier puts of this context may be reused. Says nothing about the peer.
  SWITCHYARD_DEVICE GinStatus flush() const {
    p_.drain();
    if (comm_.net.endpoint == nullptr) return GinStatus::kOk;
    return p_.net_flush(comm_.net) ? GinStatus::kOk : GinStatus::kFailed;
  }

  SWITCHYARD_DEVICE uint64_t read_signal(int signal) const {
    // acquire; pairs with the release in add_signal()
    return p_.load_acquire(comm_.resources.local_as<uint64_t>(comm_.signal_offset(context_, signal)));
  }
  // BLOCKING  until the signal reached `least`, the communicator's time limit has passed or it was aborted, or the rank
  //           that the signal is to come `from` is gone. kAnyRank: until any rank is gone, since it may have been the one.
  SWITCHYARD_DEVICE GinStatus wait_signal(int signal, uint64_t least, int from = kAnyRank) const {
    const auto arrived = [&] {
      if (rolling_at_least(read_signal(signal), least)) return true;
      p_.net_progress(comm_.net);
      return false;
    };
    int looked_at = from;
    const auto gone = [&] {
      if (from == kAnyRank) looked_at = (looked_at + 1) % comm_.world.num_ranks;  // one a look
      return p_.raised(&comm_.peer_state[looked_at]);
    };
    switch (wait_for_peers(p_, arrived, gone, comm_.timeout_ns, comm_.abort)) {
      case WaitEnd::kReady: return GinStatus::kOk;
      case WaitEnd::kPeerGone: return GinStatus::kPeerGone;
      case WaitEnd::kAborted: return GinStatus::kAborted;
      case WaitEnd::kTimeout: break;
    }
    return GinStatus::kTimeout;
  }
  SWITCHYARD_DEVICE uint64_t read_counter(int counter) const {
    return p_.load_acquire(&comm_.counters[context_ * comm_.num_counters + counter]);
  }

 private:
  SWITCHYARD_DEVICE void add_signal(int, NoAction) const {}
  SWITCHYARD_DEVICE void add_signal(int peer, SignalAdd action) const {
    // release; pairs with the acquire in read_signal(). The puts before it were drained.
    p_.add_release_thread(comm_.resources.lsa_as<uint64_t>(comm_.signal_offset(context_, action.signal), peer),
                          action.value);
  }
  SWITCHYARD_DEVICE void count(NoAction) const {}
  SWITCHYARD_DEVICE void count(CounterAdd action) const {
    p_.add_release_thread(&comm_.counters[context_ * comm_.num_counters + action.counter], uint64_t{1});
  }
  // To the network a value of 0 means no signal.
  SWITCHYARD_DEVICE static SignalAdd as_signal(NoAction) { return {0, 0}; }
  SWITCHYARD_DEVICE static SignalAdd as_signal(SignalAdd action) { return action; }
  template <class Remote>
  SWITCHYARD_DEVICE GinStatus net_put(int peer, uint32_t to, uint64_t to_offset, uint32_t from, uint64_t from_offset,
                                      uint64_t num_bytes, Remote remote) const {
    const SignalAdd action = as_signal(remote);
    const bool posted = p_.net_put(comm_.net, peer, to, to_offset, from, from_offset, num_bytes, comm_.resources.id,
                                   comm_.signal_offset(context_, action.signal), action.value);
    return posted ? GinStatus::kOk : GinStatus::kFailed;
  }

  const P& p_;
  const DeviceComm& comm_;
  int context_;
};

}  // namespace switchyard
