// Errors and devices of the host flavour's CUDA runtime.
#include "capi/host_cuda.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "capi/c_result.hpp"
#include "platform/host/device.hpp"

namespace switchyard::host_cuda {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "an argument is out of its range"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "memory could not be allocated"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "the runtime could not start"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "no such direction of a copy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "there is no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "there is no device of this ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "not a context of this process"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem", "the operating system refused a call"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "no such stream or event, or it was destroyed"},
    {cudaErrorNotReady, "cudaErrorNotReady", "the work asked about has not finished yet"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "the stream's queue stayed full"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "an operation in the stream failed"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "not allowed at this moment"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported on CPUs"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* find_error(cudaError_t code) {
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

// A device that supports everything the expert-parallel API offers: numbers as of a large GPU of compute capability
// 10.0, so that programs which size launches and buffers by them choose sensible values.
struct Attribute {
  int attribute;
  int value;
};
constexpr Attribute kAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
    {cudaDevAttrTotalConstantMemory, 64 << 10},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrClockRate, 1'000'000},  // kHz: one cycle is one nanosecond
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrMultiProcessorCount, 148},
    {cudaDevAttrIntegrated, 1},  // shares the host's memory
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrComputeMode, 0},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrEccEnabled, 0},
    {cudaDevAttrPciDeviceId, 0},
    {cudaDevAttrMemoryClockRate, 1'000'000},
    {cudaDevAttrGlobalMemoryBusWidth, 8192},
    {cudaDevAttrL2CacheSize, 126 << 20},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrAsyncEngineCount, 4},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrPciDomainId, 0},
    {cudaDevAttrComputeCapabilityMajor, 10},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrStreamPrioritiesSupported, 0},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrHostNativeAtomicSupported, 1},
    {cudaDevAttrPageableMemoryAccess, 1},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
    {cudaDevAttrHostRegisterSupported, 1},
    {102, 1},  // driver: virtual memory management
    {103, 1},  // driver: memory as a file descriptor
    {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
    {110, 1},  // driver: network access to such memory
    {cudaDevAttrReservedSharedMemoryPerBlock, 1 << 10},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrGPUDirectRDMASupported, 1},
    {cudaDevAttrGPUDirectRDMAFlushWritesOptions, 1},
    {cudaDevAttrGPUDirectRDMAWritesOrdering, 200},  // visible to all devices without a flush
    {cudaDevAttrClusterLaunch, 1},
    {124, 1},  // driver: dma-buf
    {cudaDevAttrIpcEventSupport, 0},
    {cudaDevAttrMemSyncDomainCount, 1},
    {128, 1},  // driver: fabric handles
    {cudaDevAttrNumaId, -1},
    {132, 1},  // driver: multicast
    {cudaDevAttrHostNumaId, 0},
};

}  // namespace

cudaError_t report(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) last_error = code;
  return code;
}

cudaError_t report(const Status& status, const char* call, cudaError_t code) {
  if (status.ok()) return cudaSuccess;
  capi::set_last_error(text(call, ": ", status.to_string()));
  log(LogLevel::kInfo, call, ": ", status.to_string());
  return report(code);
}

cudaError_t device_attribute(int* value, int attribute, int device_ordinal) {
  if (value == nullptr) return cudaErrorInvalidValue;
  if (Device::find(device_ordinal) == nullptr) return cudaErrorInvalidDevice;
  if (attribute == cudaDevAttrPciBusId) {
    *value = device_ordinal;  // so that no two devices look like one
    return cudaSuccess;
  }
  for (const Attribute& known : kAttributes) {
    if (known.attribute != attribute) continue;
    *value = known.value;
    return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

size_t total_memory_bytes() { return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE)); }

}  // namespace switchyard::host_cuda

using namespace switchyard;
using host_cuda::report;

extern "C" {

cudaError_t cudaGetLastError(void) { return std::exchange(host_cuda::last_error, cudaSuccess); }

cudaError_t cudaPeekAtLastError(void) { return host_cuda::last_error; }

const char* cudaGetErrorString(cudaError_t error) {
  const auto* known = host_cuda::find_error(error);
  return known != nullptr ? known->text : "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
  const auto* known = host_cuda::find_error(error);
  return known != nullptr ? known->name : "unrecognized error code";
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return report(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return report(cudaErrorInvalidValue);
  *count = Device::kNumDevices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return report(Device::set_current(device), "cudaSetDevice", cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return report(cudaErrorInvalidValue);
  *device = Device::current().ordinal();
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize(void) {
  return host_cuda::guarded_cuda("cudaDeviceSynchronize", [] {
    return report(Device::current().synchronize(Deadline::never()), "cudaDeviceSynchronize", cudaErrorLaunchFailure);
  });
}

cudaError_t cudaDeviceReset(void) { return cudaDeviceSynchronize(); }

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device) {
  return report(host_cuda::device_attribute(value, attr, device));
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  constexpr int kLength = 13;  // "0000:00:00.0" and its end
  if (pciBusId == nullptr || len < kLength) return report(cudaErrorInvalidValue);
  if (Device::find(device) == nullptr) return report(cudaErrorInvalidDevice);
  std::snprintf(pciBusId, size_t(len), "0000:%02x:00.0", unsigned(device));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  if (leastPriority != nullptr) *leastPriority = 0;
  if (greatestPriority != nullptr) *greatestPriority = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  if (canAccessPeer == nullptr) return report(cudaErrorInvalidValue);
  if (Device::find(device) == nullptr || Device::find(peerDevice) == nullptr) return report(cudaErrorInvalidDevice);
  *canAccessPeer = device != peerDevice;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  if (flags != 0) return report(cudaErrorInvalidValue);
  return Device::find(peerDevice) == nullptr ? report(cudaErrorInvalidDevice) : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return report(cudaErrorInvalidValue);
  if (Device::find(device) == nullptr) return report(cudaErrorInvalidDevice);
  const auto get = [device](int attribute) {
    int value = 0;
    host_cuda::device_attribute(&value, attribute, device);
    return value;
  };
  *prop = {};
  std::snprintf(prop->name, sizeof(prop->name), "Switchyard host device %d", device);
  prop->totalGlobalMem = host_cuda::total_memory_bytes();
  prop->sharedMemPerBlock = size_t(get(cudaDevAttrMaxSharedMemoryPerBlock));
  prop->regsPerBlock = get(cudaDevAttrMaxRegistersPerBlock);
  prop->warpSize = get(cudaDevAttrWarpSize);
  prop->maxThreadsPerBlock = get(cudaDevAttrMaxThreadsPerBlock);
  for (int dimension = 0; dimension < 3; ++dimension) {
    prop->maxThreadsDim[dimension] = get(cudaDevAttrMaxBlockDimX + dimension);
    prop->maxGridSize[dimension] = get(cudaDevAttrMaxGridDimX + dimension);
  }
  prop->totalConstMem = size_t(get(cudaDevAttrTotalConstantMemory));
  prop->major = get(cudaDevAttrComputeCapabilityMajor);
  prop->minor = get(cudaDevAttrComputeCapabilityMinor);
  prop->multiProcessorCount = get(cudaDevAttrMultiProcessorCount);
  prop->integrated = get(cudaDevAttrIntegrated);
  prop->canMapHostMemory = get(cudaDevAttrCanMapHostMemory);
  prop->concurrentKernels = get(cudaDevAttrConcurrentKernels);
  prop->ECCEnabled = get(cudaDevAttrEccEnabled);
  prop->pciBusID = get(cudaDevAttrPciBusId);
  prop->pciDeviceID = get(cudaDevAttrPciDeviceId);
  prop->pciDomainID = get(cudaDevAttrPciDomainId);
  prop->asyncEngineCount = get(cudaDevAttrAsyncEngineCount);
  prop->unifiedAddressing = get(cudaDevAttrUnifiedAddressing);
  prop->memoryBusWidth = get(cudaDevAttrGlobalMemoryBusWidth);
  prop->l2CacheSize = get(cudaDevAttrL2CacheSize);
  prop->maxThreadsPerMultiProcessor = get(cudaDevAttrMaxThreadsPerMultiProcessor);
  prop->streamPrioritiesSupported = get(cudaDevAttrStreamPrioritiesSupported);
  prop->sharedMemPerMultiprocessor = size_t(get(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  prop->regsPerMultiprocessor = get(cudaDevAttrMaxRegistersPerMultiprocessor);
  prop->managedMemory = get(cudaDevAttrManagedMemory);
  prop->cooperativeLaunch = get(cudaDevAttrCooperativeLaunch);
  prop->sharedMemPerBlockOptin = size_t(get(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  prop->maxBlocksPerMultiProcessor = get(cudaDevAttrMaxBlocksPerMultiprocessor);
  prop->memoryPoolsSupported = get(cudaDevAttrMemoryPoolsSupported);
  prop->gpuDirectRDMASupported = get(cudaDevAttrGPUDirectRDMASupported);
  prop->clusterLaunch = get(cudaDevAttrClusterLaunch);
  return cudaSuccess;
}

}  // extern "C"
