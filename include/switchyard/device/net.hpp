// How a kernel reaches the network, for peers that load and store don't reach. There are two backends:
//
//   direct  the kernel's own thread calls the plugin (CPUs);
//   proxy   the kernel writes a descriptor into a ring (device/proxy_ring.hpp), and a worker on the host gives it to the
//           plugin. Signals and barriers that need not follow data have a ring of their own, so that they don't stand
//           behind bulk data.
//
// Kernels don't see which one it is.
#pragma once
#include <cstdint>

#include "switchyard/device/proxy_ring.hpp"

namespace switchyard {

// A write into the peer's part of a window, and then a signal: an addition to one of its words.
struct NetPut {
  int peer;
  uint32_t to_region;  // a window's id
  uint64_t to_offset;
  uint32_t from_region;
  uint64_t from_offset;
  uint64_t num_bytes;      // 0: a signal only
  uint32_t signal_region;  // where signals live at the peer
  uint64_t signal_offset;
  uint64_t signal_value;        // 0: no signal
  uint64_t* counter = nullptr;  // + 1 when the source may be reused; null: nobody wants to know
};

// What a kernel on a CPU calls; false: it failed for good.
struct NetCalls {
  bool (*put)(void* target, const NetPut& put);
  bool (*put_value)(void* target, const NetPut& put, uint64_t value);
  bool (*flush)(void* target);
  bool (*progress)(void* target);  // who waits for the network helps it along; true: it is busy
  bool (*usable)(void* target, int peer);
};

struct NetPath {
  void* target = nullptr;           // of the calls; null: there is no network
  const NetCalls* calls = nullptr;  // of the host
  ProxyRing* rings = nullptr;       // null: direct. [num_rings] one per context, and the reserved one behind them
  int32_t num_rings = 0;
  uint64_t timeout_ns = 0;  // limit of a wait for room in a ring
  const uint32_t* abort = nullptr;

  SWITCHYARD_HD bool exists() const { return target != nullptr; }
  SWITCHYARD_HD ProxyRing& ring(int context) const { return rings[context % num_rings]; }
  SWITCHYARD_HD ProxyRing& reserved_ring() const { return rings[num_rings]; }
};

// The calls below are made by one thread.

// While a ring has no room, or until it is flushed: helps, and looks out for the end.
template <class P>
struct RingPatience {
  const P& p;
  const NetPath& net;
  uint64_t since_ns = 0;
  uint32_t num_pauses = 0;

  SWITCHYARD_DEVICE bool operator()() {
    p.net_progress(net);
    p.pause_thread(num_pauses++);
    const uint64_t now = p.now_ns();
    if (since_ns == 0) since_ns = now;
    return now - since_ns < net.timeout_ns && p.load_relaxed_thread(net.abort) == 0;
  }
};

template <class P>
SWITCHYARD_DEVICE bool net_put(const P& p, const NetPath& net, int context, const NetPut& put) {
  if (!net.exists()) return false;
  if (net.rings == nullptr) return p.net_put(net, put);
  ProxyRing* ring = &net.ring(context);
  // A signal must follow the data of its context; where that is with the network already, it need not wait in line.
  if (put.num_bytes == 0 && ring->is_drained(p)) ring = &net.reserved_ring();
  return ring->post(p, ProxyPost::put(put), RingPatience<P>{p, net});
}

template <class P>
SWITCHYARD_DEVICE bool net_put_value(const P& p, const NetPath& net, int context, const NetPut& put, uint64_t value) {
  if (!net.exists()) return false;
  if (net.rings == nullptr) return p.net_put_value(net, put, value);
  return net.ring(context).post(p, ProxyPost::put_value(put, value), RingPatience<P>{p, net});
}

// A signal that need not follow anything.
template <class P>
SWITCHYARD_DEVICE bool net_signal(const P& p, const NetPath& net, const NetPut& put) {
  if (!net.exists()) return false;
  if (net.rings == nullptr) return p.net_put(net, put);
  return net.reserved_ring().post(p, ProxyPost::put(put), RingPatience<P>{p, net});
}

// Until the sources of everything posted to this context are reusable.
template <class P>
SWITCHYARD_DEVICE bool net_flush(const P& p, const NetPath& net, int context) {
  if (!net.exists()) return true;
  if (net.rings == nullptr) return p.net_flush(net);
  return net.ring(context).flush(p, RingPatience<P>{p, net});
}

}  // namespace switchyard
