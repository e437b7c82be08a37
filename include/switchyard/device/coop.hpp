// Cooperative groups: the threads that make a call together. Any type with these three methods works, so that one body
// serves a thread, a warp or a block.
#pragma once
#include "switchyard/platform/hd.hpp"

namespace switchyard {

struct CoopThread {
  SWITCHYARD_DEVICE int thread_rank() const { return 0; }
  SWITCHYARD_DEVICE int size() const { return 1; }
  SWITCHYARD_DEVICE void sync() const {}
};

#if defined(__CUDACC__)
// A power of two of neighbouring lanes.
template <int kSize>
struct CoopTile {
  static_assert(kSize > 0 && kSize <= 32 && (kSize & (kSize - 1)) == 0);
  SWITCHYARD_DEVICE int thread_rank() const { return int(threadIdx.x) % kSize; }
  SWITCHYARD_DEVICE int size() const { return kSize; }
  SWITCHYARD_DEVICE void sync() const {
    const unsigned base = (threadIdx.x % 32) / kSize * kSize;
    __syncwarp(kSize == 32 ? 0xffffffffu : ((1u << (kSize % 32)) - 1) << base);
  }
};
using CoopWarp = CoopTile<32>;

struct CoopCta {
  SWITCHYARD_DEVICE int thread_rank() const { return int(threadIdx.x); }
  SWITCHYARD_DEVICE int size() const { return int(blockDim.x); }
  SWITCHYARD_DEVICE void sync() const { __syncthreads(); }
};
#else
// A warp or a block of the host platform is one thread.
using CoopWarp = CoopThread;
using CoopCta = CoopThread;
#endif

}  // namespace switchyard
