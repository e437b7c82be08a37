#include "gpu/gin_gpu.hpp"

#include <numeric>
#include <vector>

#include "switchyard/device/barrier.hpp"
#include "switchyard/device/gin.hpp"
#include "switchyard/platform/cuda.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumThreads = 256;
constexpr int kNumRounds = 20;
constexpr uint64_t kMaxBytes = 1 << 16;
constexpr uint64_t kValueOffset = kMaxBytes;  // behind the copied bytes

// A block sends to the next rank, with a signal, and waits for what the rank before sent; then a value goes the same way.
__global__ void ring_kernel(DeviceComm comm, WindowView from, WindowView to, uint64_t num_bytes, uint64_t round,
                            int* status) {
  const CudaPlatform p;
  const Gin<CudaPlatform> gin(p, comm, 0);
  const int next = (comm.world.rank + 1) % comm.world.num_ranks;
  GinStatus result = GinStatus::kOk;
  if (threadIdx.x < CudaPlatform::kLanes) {
    // Nobody sends before everybody's host has looked at what came in the last round.
    Barrier<CudaPlatform> barrier(p, comm, 0);
    if (barrier.world() != BarrierResult::kOk) result = GinStatus::kTimeout;
  }
  const GinStatus sent = gin.put(CoopCta(), next, to, 0, from, 0, num_bytes, SignalAdd{0}, CounterAdd{0});
  if (threadIdx.x == 0) {
    const GinStatus put = gin.put_value(next, to, kValueOffset, round << 8 | uint64_t(comm.world.rank), SignalAdd{1});
    if (put != GinStatus::kOk) result = put;
  }
  __syncwarp();
  for (const GinStatus status_of : {sent, gin.wait_signal(0, round), gin.wait_signal(1, round)}) {
    if (result == GinStatus::kOk) result = status_of;
  }
  const bool counted = gin.read_counter(0) == round;
  if (threadIdx.x == 0) *status = int(result) + (counted ? 0 : 100);
}

std::string run_ring(GpuRanks& ranks, int rank) {
  Communicator& comm = ranks.comm(rank);
  Runtime& runtime = comm.runtime();
  const auto fault = [&](const Status& status) { return text("rank ", rank, ": ", status.to_string()); };
  DeviceCommRequirements requirements;
  requirements.num_signals = 2;
  requirements.num_counters = 1;
  requirements.num_barriers = 1;
  const auto device = comm.create_device_comm(requirements);
  if (!device.ok()) return fault(device.status());
  Window* windows[2];
  void* memory[2];
  for (int i = 0; i < 2; ++i) {
    const auto allocated = runtime.allocate(kMaxBytes + sizeof(uint64_t));
    if (!allocated.ok()) return fault(allocated.status());
    memory[i] = allocated.value();
    const auto window = comm.register_window(memory[i], kMaxBytes + sizeof(uint64_t));
    if (!window.ok()) return fault(window.status());
    windows[i] = window.value();
  }
  const auto status_memory = runtime.allocate(sizeof(int));
  if (!status_memory.ok()) return fault(status_memory.status());
  auto* const status = static_cast<int*>(status_memory.value());

  const int before = (rank + ranks.size() - 1) % ranks.size();
  for (int round = 1; round <= kNumRounds; ++round) {
    const uint64_t num_bytes = round % 3 == 0 ? kMaxBytes : round % 3 == 1 ? 4 * uint64_t(round) : 2 * uint64_t(round) + 1;
    const auto byte_of = [&](int source, size_t i) { return uint8_t(source * 31 + round * 7 + int(i % 251)); };
    std::vector<uint8_t> bytes(num_bytes), received(num_bytes);
    for (size_t i = 0; i < num_bytes; ++i) bytes[i] = byte_of(rank, i);
    if (const Status sent = runtime.upload(memory[0], bytes.data(), num_bytes); !sent.ok()) return fault(sent);
    ring_kernel<<<1, kNumThreads, 0, ranks.stream(rank)>>>(device.value(), comm.view(*windows[0]), comm.view(*windows[1]), num_bytes,
                                                           uint64_t(round), status);
    if (const std::string launched = fault_of(cudaGetLastError()); !launched.empty()) return launched;
    if (const Status done = runtime.synchronize(ranks.stream_ref(rank), comm.deadline()); !done.ok()) return fault(done);
    int result = -1;
    uint64_t value = 0;
    for (const Status& copied :
         {runtime.download(&result, status, sizeof(result)), runtime.download(received.data(), memory[1], num_bytes),
          runtime.download(&value, static_cast<char*>(memory[1]) + kValueOffset, sizeof(value))}) {
      if (!copied.ok()) return fault(copied);
    }
    if (result != 0) return text("rank ", rank, ", round ", round, ": the kernel ended with ", result);
    for (size_t i = 0; i < num_bytes; ++i) {
      if (received[i] != byte_of(before, i)) return text("rank ", rank, ", round ", round, ": byte ", i, " differs");
    }
    if (value != (uint64_t(round) << 8 | uint64_t(before))) return text("rank ", rank, ", round ", round, ": wrong value");
  }
  for (int i = 0; i < 2; ++i) {
    if (const Status gone = comm.deregister_window(windows[i]); !gone.ok()) return fault(gone);
    if (const Status freed = runtime.free(memory[i]); !freed.ok()) return fault(freed);
  }
  const Status freed = runtime.free(status);
  return freed.ok() ? "" : fault(freed);
}

}  // namespace

std::string run_gin(GpuRanks& ranks) {
  if (!ranks.fault().empty()) return ranks.fault();
  // As every kernel that waits: loaded before any of them does (ll_launch_cuda.cu).
  cudaFuncAttributes attributes{};
  const std::string loaded = fault_of(cudaFuncGetAttributes(&attributes, ring_kernel));
  if (!loaded.empty()) return loaded;
  return ranks.on_all([&](int rank) { return run_ring(ranks, rank); });
}

}  // namespace switchyard::testing
