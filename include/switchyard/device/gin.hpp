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

SWITCHYARD_HD GinStatus gin_status(WaitEnd end) {
  switch (end) {
    case WaitEnd::kReady: return GinStatus::kOk;
    case WaitEnd::kPeerGone: return GinStatus::kPeerGone;
    case WaitEnd::kAborted: return GinStatus::kAborted;
    case WaitEnd::kTimeout: break;
  }
  return GinStatus::kTimeout;
}

constexpr int kAnyRank = -1;

template <class P>
class Gin {
 public:
  SWITCHYARD_DEVICE Gin(const P& platform, const DeviceComm& comm, int context)
      : p_(platform), comm_(comm), context_(context % comm.num_contexts) {}

  // Copies local memory of one window into the peer's part of another, then adds to the peer's signal.
  // The source may be reused when `local`'s counter has grown, or after a flush().
  template <class Coop, class Remote = NoAction, class Local = NoAction>
  SWITCHYARD_DEVICE GinStatus put(Coop coop, int peer, const WindowView& to, uint64_t to_offset, const WindowView& from,
                                  uint64_t from_offset, uint64_t num_bytes, Remote remote = {}, Local local = {}) const {
    coop.sync();
    GinStatus status = GinStatus::kOk;
    if (to.reaches(peer)) {
      p_.copy_together(coop, to.lsa(to_offset, peer), from.local(from_offset), num_bytes);
      p_.drain();
      coop.sync();
      if (coop.thread_rank() == 0) {
        add_signal(peer, remote);
        if (counter_of(local) != nullptr) p_.add_release_thread(counter_of(local), uint64_t{1});
      }
    } else if (coop.thread_rank() == 0) {
      status = net_put_pieces({peer, to.id, to_offset, from.id, from_offset, num_bytes, 0, 0, 0, counter_of(local)}, remote);
    }
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
    const NetPut put = with_signal({peer, to.id, to_offset, 0, 0, sizeof(T), 0, 0, 0, nullptr}, remote);
    return net_put_value(p_, comm_.net, context_, put, bits) ? GinStatus::kOk : GinStatus::kFailed;
  }

  SWITCHYARD_DEVICE GinStatus signal(int peer, SignalAdd action) const {
    if (comm_.resources.reaches(peer)) {
      add_signal(peer, action);
      return GinStatus::kOk;
    }
    const NetPut put = with_signal({peer, 0, 0, 0, 0, 0, 0, 0, 0, nullptr}, action);
    return net_put(p_, comm_.net, context_, put) ? GinStatus::kOk : GinStatus::kFailed;
  }

  // Sources of all earlier puts of this context may be reused. Says nothing about the peer.
  SWITCHYARD_DEVICE GinStatus flush() const {
    p_.drain();
    return net_flush(p_, comm_.net, context_) ? GinStatus::kOk : GinStatus::kFailed;
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
      return is_gone(p_, comm_, looked_at);
    };
    return gin_status(wait_for_peers(p_, arrived, gone, comm_.timeout_ns, comm_.abort));
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
  SWITCHYARD_DEVICE uint64_t* counter_of(NoAction) const { return nullptr; }
  SWITCHYARD_DEVICE uint64_t* counter_of(CounterAdd action) const {
    return &comm_.counters[context_ * comm_.num_counters + action.counter];
  }
  SWITCHYARD_DEVICE NetPut with_signal(const NetPut& put, NoAction) const { return put; }
  SWITCHYARD_DEVICE NetPut with_signal(NetPut put, SignalAdd action) const {
    put.signal_region = comm_.resources.id;
    put.signal_offset = comm_.signal_offset(context_, action.signal);
    put.signal_value = action.value;
    return put;
  }
  // What one descriptor can't hold goes in several, the signal with the last.
  template <class Remote>
  SWITCHYARD_DEVICE GinStatus net_put_pieces(NetPut put, Remote remote) const {
    NetPut last = with_signal(put, remote);
    while (last.num_bytes > ProxyPost::kMaxBytes) {
      put = last;
      put.num_bytes = kPieceBytes;
      put.signal_value = 0;
      put.counter = nullptr;
      if (!net_put(p_, comm_.net, context_, put)) return GinStatus::kFailed;
      last.to_offset += kPieceBytes;
      last.from_offset += kPieceBytes;
      last.num_bytes -= kPieceBytes;
    }
    return net_put(p_, comm_.net, context_, last) ? GinStatus::kOk : GinStatus::kFailed;
  }
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 31;

  const P& p_;
  const DeviceComm& comm_;
  int context_;
};

}  // namespace switchyard
