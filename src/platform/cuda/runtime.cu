// Memory and streams of the current CUDA device.
//
// Nothing here may wait for kernels that the caller did not name: ranks that share a GPU wait for each other inside
// kernels, and a call that waits for all of them (as cudaFree, cudaFreeHost and copies on the default stream do) may
// never return, or keep the launch away that everybody waits for. So memory comes from a pool that gives nothing back
// to the driver, pinned memory is kept for the next who asks, and copies have a stream of their own.
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/checked.hpp"
#include "platform/host/wait.hpp"
#include "platform/runtime.hpp"

namespace switchyard {
namespace {

Status check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return {};
  return Status::device_error(text(what, ": ", cudaGetErrorString(error)));
}

cudaStream_t stream_of(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle); }

// What the runtime has on one device; made with the first use of that device, never destroyed: kernels of streams
// nobody destroyed may still use the memory while the process exits.
struct DeviceParts {
  cudaMemPool_t pool = nullptr;
  cudaStream_t copies = nullptr;
};

Result<DeviceParts> make_parts(int ordinal) {
  DeviceParts parts;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, ordinal};
  SWITCHYARD_TRY(check(cudaMemPoolCreate(&parts.pool, &properties), text("memory pool of device ", ordinal)));
  uint64_t keep_all = ~uint64_t{0};
  SWITCHYARD_TRY(check(cudaMemPoolSetAttribute(parts.pool, cudaMemPoolAttrReleaseThreshold, &keep_all),
                       text("memory pool of device ", ordinal)));
  SWITCHYARD_TRY(check(cudaStreamCreateWithFlags(&parts.copies, cudaStreamNonBlocking),
                       text("copy stream of device ", ordinal)));
  return parts;
}

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
  static PinnedBlocks& blocks = *new PinnedBlocks;  // never destroyed, as DeviceParts
  return blocks;
}

class CudaRuntime final : public Runtime {
 public:
  Kind kind() const override { return Kind::kCuda; }

  Result<void*> allocate(size_t num_bytes) override {
    SWITCHYARD_ASSIGN(const DeviceParts parts, current_parts());
    const std::string what = text("allocating ", num_bytes, " bytes of device memory");
    void* memory = nullptr;
    SWITCHYARD_TRY(check(cudaMallocFromPoolAsync(&memory, num_bytes, parts.pool, parts.copies), what));
    SWITCHYARD_TRY(check(cudaMemsetAsync(memory, 0, num_bytes, parts.copies), what));
    SWITCHYARD_TRY(check(cudaStreamSynchronize(parts.copies), what));
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
    SWITCHYARD_ASSIGN(const DeviceParts parts, current_parts());
    return check(cudaFreeAsync(memory, parts.copies), "freeing device memory");
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

  Status order_after(StreamRef later, StreamRef earlier) override {
    if (later == earlier) return {};
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
  Result<DeviceParts> current_parts() {
    int ordinal = 0;
    SWITCHYARD_TRY(check(cudaGetDevice(&ordinal), "finding the current CUDA device"));
    const std::lock_guard lock(mutex_);
    const auto found = parts_.find(ordinal);
    if (found != parts_.end()) return found->second;
    SWITCHYARD_ASSIGN(const DeviceParts parts, make_parts(ordinal));
    parts_[ordinal] = parts;
    return parts;
  }

  Status copy_now(void* to, const void* from, size_t num_bytes) {
    SWITCHYARD_ASSIGN(const DeviceParts parts, current_parts());
    SWITCHYARD_TRY(copy_async(to, from, num_bytes, StreamRef{parts.copies}));
    return check(cudaStreamSynchronize(parts.copies), text("copying ", num_bytes, " bytes"));
  }

  std::mutex mutex_;  // guards the two maps
  std::map<int, DeviceParts> parts_;
  std::map<const char*, size_t> allocations_;
};

}  // namespace

Runtime& cuda_runtime() {
  static CudaRuntime& runtime = *new CudaRuntime;  // never destroyed: everything made through it points to it
  return runtime;
}

}  // namespace switchyard
