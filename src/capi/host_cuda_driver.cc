// The host flavour's names of the CUDA driver API, on top of those of the runtime, whose error codes it shares.
#include "capi/host_cuda.hpp"
#include "host/cuda.h"
#include "platform/host/device.hpp"
#include "platform/host/memory.hpp"

#include <cstdio>

using namespace switchyard;

namespace {

CUresult result(cudaError_t code) { return static_cast<CUresult>(code); }

// A context is its device: its handle is the device's address.
CUcontext context_of(Device& device) { return reinterpret_cast<CUcontext>(&device); }

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int* driverVersion) { return result(cudaDriverGetVersion(driverVersion)); }

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = cudaGetErrorName(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Device::find(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) { return result(cudaGetDeviceCount(count)); }

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  cudaDeviceProp properties;
  const cudaError_t got = cudaGetDeviceProperties(&properties, dev);
  if (got == cudaSuccess) std::snprintf(name, size_t(len), "%s", properties.name);
  return result(got);
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return result(host_cuda::device_attribute(pi, attrib, dev));
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Device::find(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = host_cuda::total_memory_bytes();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* const device = Device::find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pctx = context_of(*device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return Device::find(dev) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = context_of(Device::current());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  for (int ordinal = 0; ordinal < Device::kNumDevices; ++ordinal) {
    if (context_of(*Device::find(ordinal)) == ctx) return result(cudaSetDevice(ordinal));
  }
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice(CUdevice* device) { return result(cudaGetDevice(device)); }

CUresult cuCtxSynchronize(void) { return result(cudaDeviceSynchronize()); }

CUresult cuMemAlloc(CUdeviceptr* dptr, size_t bytesize) {
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = nullptr;
  const cudaError_t allocated = cudaMalloc(&memory, bytesize);
  *dptr = reinterpret_cast<CUdeviceptr>(memory);
  return result(allocated);
}

CUresult cuMemFree(CUdeviceptr dptr) { return result(cudaFree(pointer(dptr))); }

CUresult cuMemGetAddressRange(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  const auto found = DeviceMemory::instance().find(pointer(dptr));
  if (!found) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = reinterpret_cast<CUdeviceptr>(found->base);
  if (psize != nullptr) *psize = found->num_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return result(cudaMemcpy(pointer(dstDevice), srcHost, ByteCount, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return result(cudaMemcpy(dstHost, pointer(srcDevice), ByteCount, cudaMemcpyDeviceToHost));
}

CUresult cuStreamSynchronize(CUstream hStream) { return result(cudaStreamSynchronize(hStream)); }

}  // extern "C"
