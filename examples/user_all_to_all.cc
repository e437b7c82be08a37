// A kernel of your own on the device API: an all-to-all between the ranks of a node, by load and store. One source: a
// C++ compiler builds it for CPUs, nvcc (through user_all_to_all.cu) for GPUs.
//
//   switchyard run -n 4 -- user_all_to_all
#include <cstdio>

#include "switchyard/comm.hpp"
#include "switchyard/device/barrier.hpp"
#if defined(__CUDACC__)
#include "switchyard/platform/cuda.hpp"
#else
#include "switchyard/platform/host.hpp"
#endif

using namespace switchyard;  // NOLINT: an example

// Block p of my `from` goes to block [my rank] of rank p's `to`. Run by one warp a rank; false: somebody did not come.
template <class P>
SWITCHYARD_DEVICE bool all_to_all(const P& p, const DeviceComm& comm, const WindowView& from, const WindowView& to,
                                  uint64_t block_bytes) {
  Barrier<P> barrier(p, comm, 0);
  // Nobody still reads what came in the last round.
  if (barrier.lsa() != BarrierResult::kOk) return false;
  for (int step = 0; step < comm.lsa.num_ranks; ++step) {
    const int peer = (comm.lsa.rank + step) % comm.lsa.num_ranks;  // everybody begins with another one
    char* place = to.lsa(uint64_t(comm.lsa.rank) * block_bytes, comm.lsa.world_rank(peer));
    p.push(from.local(uint64_t(peer) * block_bytes), &place, 1, block_bytes);
  }
  p.drain();
  return barrier.lsa() == BarrierResult::kOk;  // all blocks have arrived, mine at the others' and theirs here
}

#if defined(__CUDACC__)

__global__ void all_to_all_kernel(DeviceComm comm, WindowView from, WindowView to, uint64_t block_bytes, int* arrived) {
  const bool all = all_to_all(CudaPlatform{}, comm, from, to, block_bytes);
  if (threadIdx.x == 0) *arrived = all;
}

// `arrived`: memory that kernels can write.
cudaError_t launch_all_to_all(const DeviceComm& comm, const WindowView& from, const WindowView& to,
                              uint64_t block_bytes, int* arrived, cudaStream_t stream) {
  all_to_all_kernel<<<1, CudaPlatform::kLanes, 0, stream>>>(comm, from, to, block_bytes, arrived);
  return cudaGetLastError();
}

#else

int main() try {
  constexpr uint64_t kBlockWords = 4096, kBlockBytes = kBlockWords * sizeof(uint64_t);
  const Comm comm = Comm::from_environment();
  const DeviceComm device = comm.device_comm({.num_barriers = 1});
  const auto num_blocks = uint64_t(device.lsa.num_ranks), me = uint64_t(device.lsa.rank);
  const uint64_t num_bytes = uint64_t(comm.num_ranks()) * kBlockBytes;  // one size everywhere, even if nodes differ
  const SymmetricMemory from(comm, num_bytes), to(comm, num_bytes);
  auto* const sent = static_cast<uint64_t*>(from.data());
  auto* const received = static_cast<uint64_t*>(to.data());
  HostStream stream;
  uint64_t num_wrong = 0;
  for (uint64_t round = 0; round < 100; ++round) {
    const auto word = [&](uint64_t source, uint64_t target, uint64_t i) {
      return round << 48 | source << 32 | target << 16 | i;
    };
    for (uint64_t i = 0; i < num_blocks * kBlockWords; ++i) sent[i] = word(me, i / kBlockWords, i % kBlockWords);
    bool arrived = false;
    stream.launch([&](const HostPlatform& p) { arrived = all_to_all(p, device, from.view(), to.view(), kBlockBytes); });
    stream.synchronize();
    for (uint64_t i = 0; i < num_blocks * kBlockWords; ++i) {
      num_wrong += !arrived || received[i] != word(i / kBlockWords, me, i % kBlockWords);
    }
  }
  std::printf("user_all_to_all: rank %d of %d, blocks of %lu bytes, 100 rounds: %lu wrong words\n", comm.rank(),
              comm.num_ranks(), static_cast<unsigned long>(kBlockBytes), static_cast<unsigned long>(num_wrong));
  return num_wrong == 0 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "user_all_to_all: %s\n", error.what());
  return 1;
}

#endif
