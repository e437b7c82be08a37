// Memory and streams of a CUDA device, whichever is the current one of the calling thread.
//
// Nothing here may wait for kernels that the caller did not name: ranks that share a GPU wait for each other inside
// kernels, and a call that waits for all of them (as cudaFree, cudaFreeHost and copies on the default stream do) may
// never return, or keep the launch away that everybody waits for. So memory comes from a pool that gives nothing back
// to the driver, pinned memory is kept for the next who asks, and copies have a stream of their own.
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/checked.hpp"
#include "platform/cuda/on_device.hpp"
#include "platform/host/wait.hpp"
#include "platform/runtime.hpp"

namespace switchyard {
namespace {

Status check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return {};
  return Status::device_error(text(what, ": ", cudaGetErrorString(error)));
}

cudaStream_t stream_of(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle); }

// Pinned host memory that kernels can write; freed blocks wait here for the next of their size.
class PinnedBlocks {
 public:
  Result<void*> take(size_t num_bytes) {
    const size_t size = round_up(num_bytes, kGranule);
    {
      const std::lock_guard lock(mutex_);
      std::vector<void*>& free = free_[size];
      if (!free.empty()) {
        void* block = free.back();
        free.pop_back();
        sizes_[block] = size;
        return block;
      }
    }
    void* block = nullptr;
    SWITCHYARD_TRY(check(cudaHostAlloc(&block, size, cudaHostAllocPortable | cudaHostAllocMapped),
                         text("allocating ", size, " bytes of pinned memory")));
    const std::lock_guard lock(mutex_);
    sizes_[block] = size;
    return block;
  }
  // Makes no call to CUDA: stream callbacks use it.
  Status give_back(void* block) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(block);
    if (found == sizes_.end()) return Status::invalid_argument(text("free: ", block, " is no pinned memory in use"));
    free_[found->second].push_back(block);
    sizes_.erase(found);
    return {};
  }

 private:
  static constexpr size_t kGranule = 4096;
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;              // of blocks in use
  std::map<size_t, std::vector<void*>> free_;  // by size
};

PinnedBlocks& pinned_blocks() {
  static PinnedBlocks& blocks = *new PinnedBlocks;  // never destroyed, as cuda_runtime()
  return blocks;
}

class CudaRuntime final : public Runtime {
 public:
  static Result<std::unique_ptr<CudaRuntime>> create(int ordinal) {
    int num_devices = 0;
    SWITCHYARD_TRY(check(cudaGetDeviceCount(&num_devices), "counting CUDA devices"));
    if (ordinal < 0 || ordinal >= num_devices) {
      return Status::invalid_argument(text("CUDA device ", ordinal, ": this process sees ", num_devices, " of them"));
    }
    const OnDevice on(ordinal);
    std::unique_ptr<CudaRuntime> runtime(new CudaRuntime(ordinal));
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, ordinal};
    const std::string what = text("memory pool of device ", ordinal);
    SWITCHYARD_TRY(check(cudaMemPoolCreate(&runtime->pool_, &properties), what));
    uint64_t keep_all = ~uint64_t{0};
    SWITCHYARD_TRY(check(cudaMemPoolSetAttribute(runtime->pool_, cudaMemPoolAttrReleaseThreshold, &keep_all), what));
    SWITCHYARD_TRY(check(cudaStreamCreateWithFlags(&runtime->copies_, cudaStreamNonBlocking),
                         text("copy stream of device ", ordinal)));
    return Result<std::unique_ptr<CudaRuntime>>(std::move(runtime));
  }

  DeviceId device() const override { return {DeviceKind::kCuda, ordinal_}; }

  Result<void*> allocate(size_t num_bytes) override {
    const OnDevice on(ordinal_);
    const std::string what = text("allocating ", num_bytes, " bytes of device memory");
    void* memory = nullptr;
    SWITCHYARD_TRY(check(cudaMallocFromPoolAsync(&memory, num_bytes, pool_, copies_), what));
    SWITCHYARD_TRY(check(cudaMemsetAsync(memory, 0, num_bytes, copies_), what));
    SWITCHYARD_TRY(check(cudaStreamSynchronize(copies_), what));
    const std::lock_guard lock(mutex_);
    allocations_[static_cast<char*>(memory)] = num_bytes;
    return memory;
  }
  Status free(void* memory) override {
    {
      const std::lock_guard lock(mutex_);
      if (allocations_.erase(static_cast<char*>(memory)) == 0) {
        return Status::invalid_argument(text("free: ", memory, " is not the start of an allocation of this process"));
      }
    }
    const OnDevice on(ordinal_);
    return check(cudaFreeAsync(memory, copies_), "freeing device memory");
  }

  Result<void*> allocate_shared(size_t num_bytes) override {
    SWITCHYARD_ASSIGN(void* block, pinned_blocks().take(num_bytes));
    std::memset(block, 0, num_bytes);
    return block;
  }
  Status free_shared(void* memory) override { return pinned_blocks().give_back(memory); }

  Status upload(void* to, const void* from, size_t num_bytes) override { return copy_now(to, from, num_bytes); }
  Status download(void* to, const void* from, size_t num_bytes) override { return copy_now(to, from, num_bytes); }

  Status copy_async(void* to, const void* from, size_t num_bytes, StreamRef stream) override {
    return check(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDefault, stream_of(stream)),
                 text("copying ", num_bytes, " bytes"));
  }
  Status upload_async(void* to, const void* from, size_t num_bytes, StreamRef stream) override {
    SWITCHYARD_ASSIGN(void* block, pinned_blocks().take(num_bytes));
    std::memcpy(block, from, num_bytes);
    Status copied = copy_async(to, block, num_bytes, stream);
    if (!copied.ok()) {
      SWITCHYARD_TRY(pinned_blocks().give_back(block));
      return copied;
    }
    const auto give_back = [](void* used) { static_cast<void>(pinned_blocks().give_back(used)); };
    return check(cudaLaunchHostFunc(stream_of(stream), give_back, block), "queueing a stream callback");
  }

  Result<StreamRef> create_stream(const std::string& name) override {
    const OnDevice on(ordinal_);
    cudaStream_t stream = nullptr;
    SWITCHYARD_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), text("making stream ", name)));
    return StreamRef{stream};
  }
  Status destroy_stream(StreamRef stream) override {
    return check(cudaStreamDestroy(stream_of(stream)), "destroying a stream");
  }
  Status synchronize(StreamRef stream, Deadline deadline) override {
    cudaError_t state = cudaErrorNotReady;
    const auto finished = [&] { return (state = cudaStreamQuery(stream_of(stream))) != cudaErrorNotReady; };
    if (wait_until(finished, deadline) == WaitResult::kReady) return check(state, "waiting for a stream");
    return Status::invalid_usage("a CUDA stream has not finished by the deadline; a kernel still waits or computes");
  }

  bool has_finished(StreamRef stream) override { return cudaStreamQuery(stream_of(stream)) != cudaErrorNotReady; }

  Status order_after(StreamRef later, StreamRef earlier) override {
    if (later == earlier) return {};
    const OnDevice on(ordinal_);
    cudaEvent_t event = nullptr;
    SWITCHYARD_TRY(check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
    cudaError_t error = cudaEventRecord(event, stream_of(earlier));
    if (error == cudaSuccess) error = cudaStreamWaitEvent(stream_of(later), event, 0);
    const cudaError_t destroyed = cudaEventDestroy(event);  // takes effect when the event has happened
    return check(error != cudaSuccess ? error : destroyed, "ordering two streams");
  }

  std::optional<Allocation> find(const void* address) override {
    const auto* byte = static_cast<const char*>(address);
    const std::lock_guard lock(mutex_);
    const auto after = allocations_.upper_bound(byte);
    if (after == allocations_.begin()) return std::nullopt;
    const auto& [base, num_bytes] = *std::prev(after);
    if (size_t(byte - base) >= num_bytes) return std::nullopt;
    return Allocation{const_cast<char*>(base), num_bytes, -1};
  }

 private:
  explicit CudaRuntime(int ordinal) : ordinal_(ordinal) {}

  Status copy_now(void* to, const void* from, size_t num_bytes) {
    const OnDevice on(ordinal_);
    SWITCHYARD_TRY(copy_async(to, from, num_bytes, StreamRef{copies_}));
    return check(cudaStreamSynchronize(copies_), text("copying ", num_bytes, " bytes"));
  }

  const int ordinal_;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t copies_ = nullptr;
  std::mutex mutex_;  // guards the map
  std::map<const char*, size_t> allocations_;
};

}  // namespace

// Never destroyed: everything made through it points to it, and kernels of streams nobody destroyed may still use its
// memory while the process exits.
Result<Runtime*> cuda_runtime(int ordinal) {
  static std::mutex& mutex = *new std::mutex;
  static auto& runtimes = *new std::map<int, std::unique_ptr<CudaRuntime>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaRuntime>& runtime = runtimes[ordinal];
  if (runtime == nullptr) {
    SWITCHYARD_ASSIGN(runtime, CudaRuntime::create(ordinal));
  }
  return runtime.get();
}

}  // namespace switchyard
