// The library's kernels over the model: one low-latency or high-throughput operation, the meetings of a collective, barriers, Gin,
// descriptor rings, the order of signals from a network. Behind function pointers, so that a scenario runs the same way over
// the sources as they are (kernels<0>()) and over deliberately broken copies of them.
#pragma once
#include <cstdint>
#include <functional>

#include "coll/pipeline.hpp"
#include "ep/ht_kernel.hpp"
#include "ep/ll_kernel.hpp"
#include "model/kernel_platform.hpp"
#include "net/signal_order.hpp"
#include "switchyard/device/barrier.hpp"
#include "switchyard/device/gin.hpp"

namespace switchyard::model {

// A BasicProxyRing of some size.
struct RingKernels {
  bool (*post)(const ModelPlatform& platform, void* ring, const ProxyPost& what);
  bool (*flush)(const ModelPlatform& platform, void* ring);
  bool (*take)(const ModelPlatform& platform, const void* ring, uint64_t ticket, ProxyDescriptor& out);
  void (*done)(const ModelPlatform& platform, void* ring, uint64_t ticket);
  void (*flushed)(const ModelPlatform& platform, void* ring, uint64_t ticket);
};

// Eight numbers, so that a few writes go round them.
using SmallSignalOrder = BasicSignalOrder<3, 4>;
using SmallSentOrder = BasicSentOrder<3, 2>;

struct Kernels {
  void (*low_latency)(const ModelPlatform& platform, int warp_idx, int num_warps, const ep::LlOp& op);
  void (*high_throughput)(const ModelPlatform& platform, const ep::HtOp& op);
  // So many steps of a collective, before which ranks announce something unless `told` is null. before(bank), after(bank): in a
  // step, what to stage and what to take.
  bool (*meetings)(const ModelPlatform& platform, const coll::View& view, uint64_t about, const coll::Announcement* told,
                   coll::Announcement* heard, int num_steps, const std::function<void(int)>& before,
                   const std::function<void(int)>& after);
  BarrierResult (*lsa_barrier)(const ModelPlatform& platform, const DeviceComm& comm);
  BarrierResult (*world_barrier)(const ModelPlatform& platform, const DeviceComm& comm);
  // Both add 1 to signal 0 of context 0 at the peer.
  GinStatus (*put)(const ModelPlatform& platform, const DeviceComm& comm, int peer, const WindowView& to,
                   uint64_t to_offset, const WindowView& from, uint64_t from_offset, uint64_t num_bytes);
  GinStatus (*put_value)(const ModelPlatform& platform, const DeviceComm& comm, int peer, const WindowView& to,
                         uint64_t to_offset, uint64_t value);
  GinStatus (*wait_signal)(const ModelPlatform& platform, const DeviceComm& comm, uint64_t least);
  RingKernels ring_of_2, ring_of_4, proxy_ring;
  bool (*net_put)(const ModelPlatform& platform, const NetPath& net, const NetPut& put);
  // What an endpoint does with a write that has arrived: signals that are due are added to `word`.
  bool (*arrive)(const ModelPlatform& platform, SmallSignalOrder& order, uint32_t sequence, const Signal& signal,
                 uint64_t* word);
};

template <int kTag, class Ring>
struct RingKernelsOf {
  using Platform = ProducerPlatform<kTag>;

  static bool post(const ModelPlatform& base, void* ring, const ProxyPost& what) {
    const Platform p(base);
    return static_cast<Ring*>(ring)->post(p, what, [&] { return p.pause_thread(0), true; });
  }
  static bool flush(const ModelPlatform& base, void* ring) {
    const Platform p(base);
    return static_cast<Ring*>(ring)->flush(p, [&] { return p.pause_thread(0), true; });
  }
  static bool take(const ModelPlatform& base, const void* ring, uint64_t ticket, ProxyDescriptor& out) {
    return static_cast<const Ring*>(ring)->take(Platform(base), ticket, out);
  }
  static void done(const ModelPlatform& base, void* ring, uint64_t ticket) {
    static_cast<Ring*>(ring)->done(Platform(base), ticket);
  }
  static void flushed(const ModelPlatform& base, void* ring, uint64_t ticket) {
    static_cast<Ring*>(ring)->flushed(Platform(base), ticket);
  }
  static constexpr RingKernels all() { return {post, flush, take, done, flushed}; }
};

template <int kTag>
struct KernelsOf {
  using Platform = KernelPlatform<kTag>;

  // What a stream's task does (src/ep/ll_launch_host.cc).
  static void low_latency(const ModelPlatform& base, int warp_idx, int num_warps, const ep::LlOp& op) {
    const Platform p(base, warp_idx, num_warps);
    if (op.group.masks_enabled && op.part != ep::LlPart::kReceive) ep::run_admission(p, op.group, ep::Admission::kAdopt, 0);
    if (op.kind == ep::LlKind::kDispatch) ep::run_dispatch(p, op);
    else ep::run_combine(p, op);
  }
  static void high_throughput(const ModelPlatform& base, const ep::HtOp& op) {
    const Platform p(base, 0, 1, std::as_bytes(std::span(op.group.rail_ends, 2 * size_t(op.group.num_ranks))));
    ep::run_ht(p, op);
  }
  static bool meetings(const ModelPlatform& base, const coll::View& view, uint64_t about, const coll::Announcement* told,
                       coll::Announcement* heard, int num_steps, const std::function<void(int)>& before,
                       const std::function<void(int)>& after) {
    const Platform p(base, 0, 1);
    coll::Context<Platform> c(p, view, about);
    if (told != nullptr && !c.greet(told, heard)) return false;
    for (int step = 0; step < num_steps; ++step) {
      before(c.bank());
      if (!c.meet()) return false;
      after(c.previous_bank());
    }
    return true;
  }
  static BarrierResult lsa_barrier(const ModelPlatform& base, const DeviceComm& comm) {
    const Platform p(base, 0, 1);
    return Barrier<Platform>(p, comm, 0).lsa();
  }
  static BarrierResult world_barrier(const ModelPlatform& base, const DeviceComm& comm) {
    const Platform p(base, 0, 1);
    return Barrier<Platform>(p, comm, 0).world();
  }
  static GinStatus put(const ModelPlatform& base, const DeviceComm& comm, int peer, const WindowView& to,
                       uint64_t to_offset, const WindowView& from, uint64_t from_offset, uint64_t num_bytes) {
    const Platform p(base, 0, 1);
    return Gin<Platform>(p, comm, 0).put(CoopThread{}, peer, to, to_offset, from, from_offset, num_bytes, SignalAdd{0},
                                         CounterAdd{0});
  }
  static GinStatus put_value(const ModelPlatform& base, const DeviceComm& comm, int peer, const WindowView& to,
                             uint64_t to_offset, uint64_t value) {
    const Platform p(base, 0, 1);
    return Gin<Platform>(p, comm, 0).put_value(peer, to, to_offset, value, SignalAdd{0});
  }
  static GinStatus wait_signal(const ModelPlatform& base, const DeviceComm& comm, uint64_t least) {
    const Platform p(base, 0, 1);
    return Gin<Platform>(p, comm, 0).wait_signal(0, least);
  }
  static bool net_put(const ModelPlatform& base, const NetPath& net, const NetPut& put) {
    const ProducerPlatform<kTag> p(base);
    return switchyard::net_put(p, net, 0, put);
  }
  // As OfiEndpoint::arrived().
  static bool arrive(const ModelPlatform& base, SmallSignalOrder& order, uint32_t sequence, const Signal& signal,
                     uint64_t* word) {
    const Platform p(base, 0, 1);
    return order.arrive(sequence, signal, [&](const Signal& due) { p.add_release_thread(word, due.value); });
  }
};

// Which of them: a mutant compiles only what its fault is in.
enum KernelParts : unsigned { kLowLatency = 1, kHighThroughput = 2, kRuntime = 4, kCollectives = 8, kAllKernels = 15 };

template <int kTag, unsigned kParts = kAllKernels>
constexpr Kernels kernels() {
  using Of = KernelsOf<kTag>;
  Kernels some{};
  if constexpr ((kParts & kLowLatency) != 0) some.low_latency = Of::low_latency;
  if constexpr ((kParts & kHighThroughput) != 0) some.high_throughput = Of::high_throughput;
  if constexpr ((kParts & kCollectives) != 0) some.meetings = Of::meetings;
  if constexpr ((kParts & kRuntime) != 0) {
    some.lsa_barrier = Of::lsa_barrier;
    some.world_barrier = Of::world_barrier;
    some.put = Of::put;
    some.put_value = Of::put_value;
    some.wait_signal = Of::wait_signal;
    some.ring_of_2 = RingKernelsOf<kTag, BasicProxyRing<2>>::all();
    some.ring_of_4 = RingKernelsOf<kTag, BasicProxyRing<4>>::all();
    some.proxy_ring = RingKernelsOf<kTag, ProxyRing>::all();
    some.net_put = Of::net_put;
    some.arrive = Of::arrive;
  }
  return some;
}

}  // namespace switchyard::model
