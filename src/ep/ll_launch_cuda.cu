#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "base/log.hpp"
#include "ep/ll_kernel.hpp"
#include "ep/ll_launch.hpp"
#include "platform/cuda/on_device.hpp"
#include "switchyard/platform/cuda.hpp"

namespace switchyard::ep {
namespace {

// Warps of a kernel wait for each other and for the kernels of peers, which may share this GPU: all blocks must be
// resident at once. 16 blocks let eight ranks have one multiprocessor a block on a GPU that has 128 of them.
constexpr int kNumBlocks = 16;
constexpr int kNumThreads = 512;

// A launch without a group only makes the driver load the kernel.
__global__ void __launch_bounds__(kNumThreads) ll_dispatch_kernel(const __grid_constant__ LlOp op) {
  if (op.group.state != nullptr) run_dispatch(CudaPlatform(), op);
}
__global__ void __launch_bounds__(kNumThreads) ll_combine_kernel(const __grid_constant__ LlOp op) {
  if (op.group.state != nullptr) run_combine(CudaPlatform(), op);
}
struct AdmissionOp {
  GroupView group;
  Admission what;
  uint64_t admit_tag;
};
__global__ void __launch_bounds__(CudaPlatform::kLanes) ll_admission_kernel(const __grid_constant__ AdmissionOp op) {
  if (op.group.state != nullptr) run_admission(CudaPlatform(), op.group, op.what, op.admit_tag);
}

template <class Op>
Status start(void (*kernel)(Op), int num_blocks, int num_threads, const Op& op, cudaStream_t stream) {
  void* arguments[] = {const_cast<Op*>(&op)};
  const cudaError_t error = cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(unsigned(num_blocks)),
                                             dim3(unsigned(num_threads)), arguments, 0, stream);
  if (error == cudaSuccess) return {};
  return Status::device_error(
      text("rank ", op.group.rank, ": launching a low-latency kernel: ", cudaGetErrorString(error)));
}

Status check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return Status::device_error(text("preparing the low-latency kernels: ", what, ": ", cudaGetErrorString(error)));
}

Status load_kernel(void (*kernel)(LlOp), const cudaDeviceProp& device) {
  int blocks_per_processor = 0;
  SWITCHYARD_TRY(check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                           &blocks_per_processor, reinterpret_cast<const void*>(kernel), kNumThreads, 0),
                       "occupancy"));
  if (blocks_per_processor * device.multiProcessorCount < kNumBlocks) {
    return Status::device_error(text(device.name, " holds ", blocks_per_processor * device.multiProcessorCount,
                                     " blocks of a low-latency kernel at once, needed are ", kNumBlocks));
  }
  return start(kernel, 1, CudaPlatform::kLanes, LlOp{}, nullptr);
}

// Loading a kernel, and growing the memory behind its stack at its first launch, wait for everything that runs on the
// device; a peer's kernel that waits for ours would then wait for ever. So each is launched once before any that waits.
Status prepare_device(int ordinal) {
  cudaDeviceProp device{};
  SWITCHYARD_TRY(check(cudaGetDeviceProperties(&device, ordinal), "device properties"));
  SWITCHYARD_TRY(load_kernel(ll_dispatch_kernel, device));
  SWITCHYARD_TRY(load_kernel(ll_combine_kernel, device));
  SWITCHYARD_TRY(start(ll_admission_kernel, 1, CudaPlatform::kLanes, AdmissionOp{}, nullptr));
  return check(cudaStreamSynchronize(nullptr), "first launch");
}

Status prepare_once(int ordinal) {
  static std::mutex mutex;
  static std::map<int, Status> prepared;  // by device; process-wide, because kernels are loaded once per process
  const std::lock_guard lock(mutex);
  const auto found = prepared.find(ordinal);
  if (found != prepared.end()) return found->second;
  const OnDevice on(ordinal);
  return prepared[ordinal] = prepare_device(ordinal);
}

class CudaLauncher final : public LlLauncher {
 public:
  explicit CudaLauncher(int ordinal) : ordinal_(ordinal) {}

  Status launch(const LlOp& op, StreamRef stream) override {
    SWITCHYARD_TRY(prepare_once(ordinal_));
    const OnDevice on(ordinal_);
    const auto cuda_stream = static_cast<cudaStream_t>(stream.handle);
    if (op.group.masks_enabled && op.part != LlPart::kReceive) {
      SWITCHYARD_TRY(launch_admission(op.group, Admission::kAdopt, 0, stream));
    }
    if (op.kind == LlKind::kDispatch) return start(ll_dispatch_kernel, kNumBlocks, kNumThreads, op, cuda_stream);
    return start(ll_combine_kernel, kNumBlocks, kNumThreads, op, cuda_stream);
  }
  Status launch_admission(const GroupView& group, Admission what, uint64_t admit_tag, StreamRef stream) override {
    SWITCHYARD_TRY(prepare_once(ordinal_));
    const OnDevice on(ordinal_);
    return start(ll_admission_kernel, 1, CudaPlatform::kLanes, AdmissionOp{group, what, admit_tag},
                 static_cast<cudaStream_t>(stream.handle));
  }
  void forget(int /*slot*/) override {}  // nothing runs between operations
  int num_warps() const override { return kNumBlocks * kNumThreads / CudaPlatform::kLanes; }

 private:
  const int ordinal_;
};

}  // namespace

// Called when a group is made, before any of its operations is launched.
std::unique_ptr<LlLauncher> make_cuda_launcher(const Runtime& runtime) {
  const int ordinal = runtime.device().ordinal;
  if (const Status prepared = prepare_once(ordinal); !prepared.ok()) log(LogLevel::kWarn, prepared.to_string());
  return std::make_unique<CudaLauncher>(ordinal);
}

}  // namespace switchyard::ep
