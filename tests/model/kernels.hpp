// The library's kernels over the model: one low-latency operation, barriers, Gin. Behind function pointers, so that a
// scenario runs the same way over the sources as they are (kernels<0>()) and over deliberately broken copies of them.
#pragma once
#include <cstdint>

#include "ep/ll_kernel.hpp"
#include "model/kernel_platform.hpp"
#include "switchyard/device/barrier.hpp"
#include "switchyard/device/gin.hpp"

namespace switchyard::model {

struct Kernels {
  void (*low_latency)(const ModelPlatform& platform, int warp_idx, int num_warps, const ep::LlOp& op);
  BarrierResult (*lsa_barrier)(const ModelPlatform& platform, const DeviceComm& comm);
  BarrierResult (*world_barrier)(const ModelPlatform& platform, const DeviceComm& comm);
  // Both add 1 to signal 0 of context 0 at the peer.
  GinStatus (*put)(const ModelPlatform& platform, const DeviceComm& comm, int peer, const WindowView& to,
                   uint64_t to_offset, const WindowView& from, uint64_t from_offset, uint64_t num_bytes);
  GinStatus (*put_value)(const ModelPlatform& platform, const DeviceComm& comm, int peer, const WindowView& to,
                         uint64_t to_offset, uint64_t value);
  GinStatus (*wait_signal)(const ModelPlatform& platform, const DeviceComm& comm, uint64_t least);
};

template <int kTag>
struct KernelsOf {
  using Platform = KernelPlatform<kTag>;

  // What a stream's task does (src/ep/ll_launch_host.cc).
  static void low_latency(const ModelPlatform& base, int warp_idx, int num_warps, const ep::LlOp& op) {
    const Platform p(base, warp_idx, num_warps);
    if (op.group.masks_enabled && op.part != ep::LlPart::kReceive) ep::run_admission(p, op);
    if (op.kind == ep::LlKind::kDispatch) ep::run_dispatch(p, op);
    else ep::run_combine(p, op);
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
};

template <int kTag>
constexpr Kernels kernels() {
  using Of = KernelsOf<kTag>;
  return {Of::low_latency, Of::lsa_barrier, Of::world_barrier, Of::put, Of::put_value, Of::wait_signal};
}

}  // namespace switchyard::model
