/* The CUDA driver API for machines without one: the few names that expert-parallel programs use beside the runtime.
 * Conventions as in cuda_runtime.h. Error codes equal the runtime's, as they do in CUDA.
 */
#ifndef SWITCHYARD_HOST_CUDA_H
#define SWITCHYARD_HOST_CUDA_H

#include "driver_types.h"

#define CUDA_VERSION 13000
#define CUDAAPI

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;

typedef enum cudaError_enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_OPERATING_SYSTEM = 304,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999
} CUresult;

/* Beyond the runtime's attributes, whose numbers the driver shares. */
typedef enum CUdevice_attribute_enum {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
  CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
  CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128,
  CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132
} CUdevice_attribute;

#define cuInit syhost_cuInit
#define cuDriverGetVersion syhost_cuDriverGetVersion
#define cuGetErrorString syhost_cuGetErrorString
#define cuGetErrorName syhost_cuGetErrorName
#define cuDeviceGet syhost_cuDeviceGet
#define cuDeviceGetCount syhost_cuDeviceGetCount
#define cuDeviceGetName syhost_cuDeviceGetName
#define cuDeviceGetAttribute syhost_cuDeviceGetAttribute
#define cuDeviceTotalMem syhost_cuDeviceTotalMem
#define cuDevicePrimaryCtxRetain syhost_cuDevicePrimaryCtxRetain
#define cuDevicePrimaryCtxRelease syhost_cuDevicePrimaryCtxRelease
#define cuCtxGetCurrent syhost_cuCtxGetCurrent
#define cuCtxSetCurrent syhost_cuCtxSetCurrent
#define cuCtxGetDevice syhost_cuCtxGetDevice
#define cuCtxSynchronize syhost_cuCtxSynchronize
#define cuMemAlloc syhost_cuMemAlloc
#define cuMemFree syhost_cuMemFree
#define cuMemGetAddressRange syhost_cuMemGetAddressRange
#define cuMemcpyHtoD syhost_cuMemcpyHtoD
#define cuMemcpyDtoH syhost_cuMemcpyDtoH
#define cuStreamSynchronize syhost_cuStreamSynchronize

#ifdef __cplusplus
extern "C" {
#endif

/* Nothing to initialise; accepts flags 0 only, as the driver does. */
SYHOST_API CUresult cuInit(unsigned int flags);
SYHOST_API CUresult cuDriverGetVersion(int* driverVersion);
SYHOST_API CUresult cuGetErrorString(CUresult error, const char** pStr);
SYHOST_API CUresult cuGetErrorName(CUresult error, const char** pStr);
SYHOST_API CUresult cuDeviceGet(CUdevice* device, int ordinal);
SYHOST_API CUresult cuDeviceGetCount(int* count);
SYHOST_API CUresult cuDeviceGetName(char* name, int len, CUdevice dev);
SYHOST_API CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev);
SYHOST_API CUresult cuDeviceTotalMem(size_t* bytes, CUdevice dev);
/* A context is its device: making one current is cudaSetDevice(). */
SYHOST_API CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev);
SYHOST_API CUresult cuDevicePrimaryCtxRelease(CUdevice dev);
SYHOST_API CUresult cuCtxGetCurrent(CUcontext* pctx);
SYHOST_API CUresult cuCtxSetCurrent(CUcontext ctx);
SYHOST_API CUresult cuCtxGetDevice(CUdevice* device);
SYHOST_API CUresult cuCtxSynchronize(void);
SYHOST_API CUresult cuMemAlloc(CUdeviceptr* dptr, size_t bytesize);
SYHOST_API CUresult cuMemFree(CUdeviceptr dptr);
SYHOST_API CUresult cuMemGetAddressRange(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr);
SYHOST_API CUresult cuMemcpyHtoD(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount);
SYHOST_API CUresult cuMemcpyDtoH(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount);
SYHOST_API CUresult cuStreamSynchronize(CUstream hStream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SWITCHYARD_HOST_CUDA_H */
