/* The CUDA runtime for machines without one: a CPU as the device.
 *
 * The subset that an expert-parallel program uses: with this folder first in the include path such a program compiles
 * unchanged and runs on CPUs. There are 64 pretended devices of compute capability 10.0; ranks that are threads of one
 * process each call cudaSetDevice(local_rank), as on GPUs. Names are mapped to syhost_*, so that nothing clashes with
 * NVIDIA's libraries in the same process.
 *
 * THREADS    any; cudaGetLastError() and the current device belong to the calling thread.
 * OWNERSHIP  memory is shared memory with a descriptor (a memfd each), so that other processes of the machine can map
 *            it; a program with very many allocations may need a higher "ulimit -n".
 * ERRORS     as in CUDA. The error of a failed operation is returned by the next call that waits for its stream, once;
 *            the stream can be used again afterwards. SWITCHYARD_LOG=info prints the reason behind every error code.
 * BLOCKING   calls that wait in CUDA wait here too, as long as the operations they wait for, which have deadlines.
 *
 * Not offered: graphs and stream capture (cudaErrorNotSupported), textures, kernels launched with <<<>>>.
 */
#ifndef SWITCHYARD_HOST_CUDA_RUNTIME_H
#define SWITCHYARD_HOST_CUDA_RUNTIME_H

#include "driver_types.h"

#define cudaGetLastError syhost_cudaGetLastError
#define cudaPeekAtLastError syhost_cudaPeekAtLastError
#define cudaGetErrorString syhost_cudaGetErrorString
#define cudaGetErrorName syhost_cudaGetErrorName
#define cudaDriverGetVersion syhost_cudaDriverGetVersion
#define cudaRuntimeGetVersion syhost_cudaRuntimeGetVersion
#define cudaGetDeviceCount syhost_cudaGetDeviceCount
#define cudaSetDevice syhost_cudaSetDevice
#define cudaGetDevice syhost_cudaGetDevice
#define cudaSetDeviceFlags syhost_cudaSetDeviceFlags
#define cudaDeviceSynchronize syhost_cudaDeviceSynchronize
#define cudaDeviceReset syhost_cudaDeviceReset
#define cudaDeviceGetAttribute syhost_cudaDeviceGetAttribute
#define cudaGetDeviceProperties syhost_cudaGetDeviceProperties
#define cudaDeviceGetPCIBusId syhost_cudaDeviceGetPCIBusId
#define cudaDeviceGetStreamPriorityRange syhost_cudaDeviceGetStreamPriorityRange
#define cudaDeviceCanAccessPeer syhost_cudaDeviceCanAccessPeer
#define cudaDeviceEnablePeerAccess syhost_cudaDeviceEnablePeerAccess
#define cudaMalloc syhost_cudaMalloc
#define cudaFree syhost_cudaFree
#define cudaMallocHost syhost_cudaMallocHost
#define cudaHostAlloc syhost_cudaHostAlloc
#define cudaFreeHost syhost_cudaFreeHost
#define cudaHostGetDevicePointer syhost_cudaHostGetDevicePointer
#define cudaMallocManaged syhost_cudaMallocManaged
#define cudaMallocAsync syhost_cudaMallocAsync
#define cudaFreeAsync syhost_cudaFreeAsync
#define cudaMemGetInfo syhost_cudaMemGetInfo
#define cudaPointerGetAttributes syhost_cudaPointerGetAttributes
#define cudaMemcpy syhost_cudaMemcpy
#define cudaMemcpyAsync syhost_cudaMemcpyAsync
#define cudaMemset syhost_cudaMemset
#define cudaMemsetAsync syhost_cudaMemsetAsync
#define cudaStreamCreate syhost_cudaStreamCreate
#define cudaStreamCreateWithFlags syhost_cudaStreamCreateWithFlags
#define cudaStreamCreateWithPriority syhost_cudaStreamCreateWithPriority
#define cudaStreamDestroy syhost_cudaStreamDestroy
#define cudaStreamSynchronize syhost_cudaStreamSynchronize
#define cudaStreamQuery syhost_cudaStreamQuery
#define cudaStreamWaitEvent syhost_cudaStreamWaitEvent
#define cudaLaunchHostFunc syhost_cudaLaunchHostFunc
#define cudaStreamBeginCapture syhost_cudaStreamBeginCapture
#define cudaStreamEndCapture syhost_cudaStreamEndCapture
#define cudaStreamIsCapturing syhost_cudaStreamIsCapturing
#define cudaGraphInstantiate syhost_cudaGraphInstantiate
#define cudaGraphLaunch syhost_cudaGraphLaunch
#define cudaGraphExecDestroy syhost_cudaGraphExecDestroy
#define cudaGraphDestroy syhost_cudaGraphDestroy
#define cudaEventCreate syhost_cudaEventCreate
#define cudaEventCreateWithFlags syhost_cudaEventCreateWithFlags
#define cudaEventRecord syhost_cudaEventRecord
#define cudaEventQuery syhost_cudaEventQuery
#define cudaEventSynchronize syhost_cudaEventSynchronize
#define cudaEventElapsedTime syhost_cudaEventElapsedTime
#define cudaEventDestroy syhost_cudaEventDestroy

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. */
SYHOST_API cudaError_t cudaGetLastError(void);
SYHOST_API cudaError_t cudaPeekAtLastError(void);
SYHOST_API const char* cudaGetErrorString(cudaError_t error);
SYHOST_API const char* cudaGetErrorName(cudaError_t error);

/* Devices. */
SYHOST_API cudaError_t cudaDriverGetVersion(int* version);
SYHOST_API cudaError_t cudaRuntimeGetVersion(int* version);
SYHOST_API cudaError_t cudaGetDeviceCount(int* count);
SYHOST_API cudaError_t cudaSetDevice(int device);
SYHOST_API cudaError_t cudaGetDevice(int* device);
SYHOST_API cudaError_t cudaSetDeviceFlags(unsigned int flags);
SYHOST_API cudaError_t cudaDeviceSynchronize(void);
/* Waits for the device's work; memory and streams stay, as other ranks of the process may use them. */
SYHOST_API cudaError_t cudaDeviceReset(void);
SYHOST_API cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device);
SYHOST_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device);
SYHOST_API cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device);
SYHOST_API cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority);
SYHOST_API cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice);
SYHOST_API cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags);

/* Memory. Zero bytes give a null pointer. */
SYHOST_API cudaError_t cudaMalloc(void** devPtr, size_t size);
SYHOST_API cudaError_t cudaFree(void* devPtr);
SYHOST_API cudaError_t cudaMallocHost(void** ptr, size_t size);
SYHOST_API cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags);
SYHOST_API cudaError_t cudaFreeHost(void* ptr);
SYHOST_API cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags);
SYHOST_API cudaError_t cudaMallocManaged(void** devPtr, size_t size,
                                         unsigned int flags SYHOST_DEFAULT(cudaMemAttachGlobal));
SYHOST_API cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t stream);
SYHOST_API cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t stream);
SYHOST_API cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
SYHOST_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* ptr);

/* Copies. As in CUDA, an asynchronous copy from or to memory that is neither device nor pinned memory may wait for the
 * stream, so that the caller's buffer is free for reuse when the call returns. */
SYHOST_API cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind);
SYHOST_API cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind,
                                       cudaStream_t stream SYHOST_DEFAULT(0));
SYHOST_API cudaError_t cudaMemset(void* devPtr, int value, size_t count);
SYHOST_API cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream SYHOST_DEFAULT(0));

/* Streams. The default stream (0, cudaStreamLegacy, and cudaStreamPerThread) has the legacy order of CUDA. */
SYHOST_API cudaError_t cudaStreamCreate(cudaStream_t* pStream);
SYHOST_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags);
SYHOST_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority);
SYHOST_API cudaError_t cudaStreamDestroy(cudaStream_t stream);
SYHOST_API cudaError_t cudaStreamSynchronize(cudaStream_t stream);
SYHOST_API cudaError_t cudaStreamQuery(cudaStream_t stream);
SYHOST_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                           unsigned int flags SYHOST_DEFAULT(0));
SYHOST_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData);

/* Capture and graphs: cudaErrorNotSupported, except that a stream is never capturing. */
SYHOST_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
SYHOST_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph);
SYHOST_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* pCaptureStatus);
SYHOST_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                            unsigned long long flags SYHOST_DEFAULT(0));
SYHOST_API cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream);
SYHOST_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec);
SYHOST_API cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* Events. */
SYHOST_API cudaError_t cudaEventCreate(cudaEvent_t* event);
SYHOST_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
SYHOST_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream SYHOST_DEFAULT(0));
SYHOST_API cudaError_t cudaEventQuery(cudaEvent_t event);
SYHOST_API cudaError_t cudaEventSynchronize(cudaEvent_t event);
SYHOST_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);
SYHOST_API cudaError_t cudaEventDestroy(cudaEvent_t event);

#ifdef __cplusplus
} /* extern "C" */

/* C++ programs pass typed pointers and leave flags out, as NVIDIA's C++ face lets them. */
template <class T>
inline cudaError_t cudaMalloc(T** devPtr, size_t size) {
  return cudaMalloc((void**)(void*)devPtr, size);
}
template <class T>
inline cudaError_t cudaMallocHost(T** ptr, size_t size, unsigned int flags = 0) {
  return cudaHostAlloc((void**)(void*)ptr, size, flags);
}
template <class T>
inline cudaError_t cudaHostAlloc(T** pHost, size_t size, unsigned int flags) {
  return cudaHostAlloc((void**)(void*)pHost, size, flags);
}
template <class T>
inline cudaError_t cudaMallocManaged(T** devPtr, size_t size, unsigned int flags = cudaMemAttachGlobal) {
  return cudaMallocManaged((void**)(void*)devPtr, size, flags);
}
template <class T>
inline cudaError_t cudaMallocAsync(T** devPtr, size_t size, cudaStream_t stream) {
  return cudaMallocAsync((void**)(void*)devPtr, size, stream);
}
template <class T>
inline cudaError_t cudaHostGetDevicePointer(T** pDevice, void* pHost, unsigned int flags) {
  return cudaHostGetDevicePointer((void**)(void*)pDevice, pHost, flags);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) {
  return cudaEventCreateWithFlags(event, flags);
}
#endif

#endif /* SWITCHYARD_HOST_CUDA_RUNTIME_H */
