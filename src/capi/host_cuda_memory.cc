// Memory and copies of the host flavour's CUDA runtime.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "capi/host_cuda.hpp"
#include "platform/host/device.hpp"
#include "platform/host/memory.hpp"

using namespace switchyard;
using host_cuda::guarded_cuda;
using host_cuda::report;
using host_cuda::stream_handle;

namespace {

using Kind = DeviceMemory::Kind;

// CUDA copies this much of pageable memory aside before an asynchronous copy returns; more waits for the stream.
constexpr size_t kMaxStagedBytes = 64 << 10;

cudaError_t allocate(void** pointer, size_t num_bytes, Kind kind, const char* call) {
  if (pointer == nullptr) return report(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (num_bytes == 0) return cudaSuccess;
  return guarded_cuda(call, [&] {
    auto memory = DeviceMemory::instance().allocate(num_bytes, kind, Device::current().ordinal());
    if (!memory.ok()) return report(memory.status(), call, cudaErrorMemoryAllocation);
    *pointer = memory.value();
    return cudaSuccess;
  });
}

// As CUDA does, waits for the device that the memory belongs to: an operation that still uses it must not lose it.
cudaError_t release(void* pointer, Kind kind, const char* call) {
  if (pointer == nullptr) return cudaSuccess;
  const auto found = DeviceMemory::instance().find(pointer);
  if (!found || found->base != pointer || found->kind != kind) return report(cudaErrorInvalidValue);
  const Status waited =
      switchyard::guarded([&] { return Device::find(found->device_ordinal)->synchronize(Deadline::never()); });
  const cudaError_t freed = report(DeviceMemory::instance().free(pointer), call, cudaErrorInvalidValue);
  return waited.ok() ? freed : report(waited, call, cudaErrorLaunchFailure);
}

bool is_pageable(const void* pointer) { return !DeviceMemory::instance().find(pointer).has_value(); }

cudaError_t check_copy(const void* dst, const void* src, size_t num_bytes, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  return num_bytes != 0 && (dst == nullptr || src == nullptr) ? cudaErrorInvalidValue : cudaSuccess;
}

// Posts a callable to the stream behind a handle and, where asked for, waits until it has run.
template <class Callable>
cudaError_t post(cudaStream_t handle, Callable callable, bool and_wait, const char* call) {
  auto stream = Device::stream_for_post(stream_handle(handle));
  if (!stream.ok()) return report(stream.status(), call, cudaErrorInvalidResourceHandle);
  if (const Status posted = stream.value()->post(std::move(callable)); !posted.ok()) {
    return report(posted, call, cudaErrorLaunchOutOfResources);
  }
  return and_wait ? cudaStreamSynchronize(handle) : cudaSuccess;
}

size_t available_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key; meminfo >> key; meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (size_t num_kib; key == "MemAvailable:" && meminfo >> num_kib) return num_kib << 10;
  }
  return size_t(sysconf(_SC_AVPHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** devPtr, size_t size) { return allocate(devPtr, size, Kind::kDevice, "cudaMalloc"); }

cudaError_t cudaFree(void* devPtr) { return release(devPtr, Kind::kDevice, "cudaFree"); }

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int) {
  return allocate(pHost, size, Kind::kPinnedHost, "cudaHostAlloc");
}

cudaError_t cudaMallocHost(void** ptr, size_t size) { return cudaHostAlloc(ptr, size, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* ptr) { return release(ptr, Kind::kPinnedHost, "cudaFreeHost"); }

cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
  if (pDevice == nullptr || flags != 0 || is_pageable(pHost)) return report(cudaErrorInvalidValue);
  *pDevice = pHost;
  return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** devPtr, size_t size, unsigned int) {
  return allocate(devPtr, size, Kind::kDevice, "cudaMallocManaged");
}

cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t stream) {
  return guarded_cuda("cudaMallocAsync", [&]() -> cudaError_t {
    // Memory that is there before its turn in the stream is there at its turn.
    const auto found = Device::find_stream(stream_handle(stream));
    if (!found.ok()) return report(found.status(), "cudaMallocAsync", cudaErrorInvalidResourceHandle);
    return allocate(devPtr, size, Kind::kDevice, "cudaMallocAsync");
  });
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t stream) {
  return guarded_cuda("cudaFreeAsync", [&]() -> cudaError_t {
    if (devPtr == nullptr) return cudaSuccess;
    const auto found = DeviceMemory::instance().find(devPtr);
    if (!found || found->base != devPtr || found->kind != Kind::kDevice) return report(cudaErrorInvalidValue);
    const auto free_it = [devPtr](Stream& self) {
      if (Status freed = DeviceMemory::instance().free(devPtr); !freed.ok()) self.fail(std::move(freed));
    };
    return post(stream, free_it, false, "cudaFreeAsync");
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return guarded_cuda("cudaMemGetInfo", [&]() -> cudaError_t {
    if (free == nullptr || total == nullptr) return report(cudaErrorInvalidValue);
    *free = available_memory_bytes();
    *total = host_cuda::total_memory_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* ptr) {
  if (attributes == nullptr || ptr == nullptr) return report(cudaErrorInvalidValue);
  void* const address = const_cast<void*>(ptr);
  const auto found = DeviceMemory::instance().find(ptr);
  if (!found) {
    *attributes = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, address};
  } else if (found->kind == Kind::kPinnedHost) {
    *attributes = {cudaMemoryTypeHost, found->device_ordinal, address, address};
  } else {
    *attributes = {cudaMemoryTypeDevice, found->device_ordinal, address, nullptr};
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
  return guarded_cuda("cudaMemcpyAsync", [&]() -> cudaError_t {
    if (const cudaError_t error = check_copy(dst, src, count, kind); error != cudaSuccess) return report(error);
    if (count == 0) return cudaSuccess;
    const bool pageable_src = is_pageable(src), pageable_dst = is_pageable(dst);
    if (pageable_src && !pageable_dst && count <= kMaxStagedBytes) {
      std::unique_ptr<char[]> staged(new (std::nothrow) char[count]);
      if (!staged) return report(cudaErrorMemoryAllocation);
      std::memcpy(staged.get(), src, count);
      auto copy = [dst, count, staged = std::move(staged)] { std::memcpy(dst, staged.get(), count); };
      return post(stream, std::move(copy), false, "cudaMemcpyAsync");
    }
    return post(stream, [=] { std::memcpy(dst, src, count); }, pageable_src || pageable_dst, "cudaMemcpyAsync");
  });
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind) {
  return guarded_cuda("cudaMemcpy", [&]() -> cudaError_t {
    if (const cudaError_t error = check_copy(dst, src, count, kind); error != cudaSuccess) return report(error);
    // In the order of the default stream, but on this thread: it would only wait for a worker to do the same.
    if (const cudaError_t waited = cudaStreamSynchronize(nullptr); waited != cudaSuccess) return waited;
    if (count != 0) std::memcpy(dst, src, count);
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return guarded_cuda("cudaMemsetAsync", [&]() -> cudaError_t {
    if (devPtr == nullptr && count != 0) return report(cudaErrorInvalidValue);
    if (count == 0) return cudaSuccess;
    return post(stream, [=] { std::memset(devPtr, value, count); }, false, "cudaMemsetAsync");
  });
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  return guarded_cuda("cudaMemset", [&]() -> cudaError_t {
    if (devPtr == nullptr && count != 0) return report(cudaErrorInvalidValue);
    if (const cudaError_t waited = cudaStreamSynchronize(nullptr); waited != cudaSuccess) return waited;
    if (count != 0) std::memset(devPtr, value, count);
    return cudaSuccess;
  });
}

}  // extern "C"
