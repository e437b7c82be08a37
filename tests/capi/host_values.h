/* Every number that the host flavour's headers give a name to. Compiled against them and against NVIDIA's headers into
 * two tables (host_values.c), which must be equal. Versions are left out: they are ours to choose. */
#define SWITCHYARD_HOST_VALUES(VALUE) \
  VALUE(cudaSuccess) VALUE(cudaErrorInvalidValue) VALUE(cudaErrorMemoryAllocation) \
  VALUE(cudaErrorInitializationError) VALUE(cudaErrorCudartUnloading) VALUE(cudaErrorInvalidConfiguration) \
  VALUE(cudaErrorInvalidDevicePointer) VALUE(cudaErrorInvalidMemcpyDirection) \
  VALUE(cudaErrorInsufficientDriver) VALUE(cudaErrorDevicesUnavailable) VALUE(cudaErrorInvalidDeviceFunction) \
  VALUE(cudaErrorNoDevice) VALUE(cudaErrorInvalidDevice) VALUE(cudaErrorDeviceUninitialized) \
  VALUE(cudaErrorOperatingSystem) VALUE(cudaErrorInvalidResourceHandle) VALUE(cudaErrorIllegalState) \
  VALUE(cudaErrorNotReady) VALUE(cudaErrorIllegalAddress) VALUE(cudaErrorLaunchOutOfResources) \
  VALUE(cudaErrorLaunchTimeout) VALUE(cudaErrorPeerAccessAlreadyEnabled) VALUE(cudaErrorPeerAccessNotEnabled) \
  VALUE(cudaErrorAssert) VALUE(cudaErrorHostMemoryAlreadyRegistered) VALUE(cudaErrorHostMemoryNotRegistered) \
  VALUE(cudaErrorLaunchFailure) VALUE(cudaErrorNotPermitted) VALUE(cudaErrorNotSupported) \
  VALUE(cudaErrorSystemNotReady) VALUE(cudaErrorStreamCaptureUnsupported) \
  VALUE(cudaErrorStreamCaptureInvalidated) VALUE(cudaErrorTimeout) VALUE(cudaErrorUnknown) \
  VALUE(cudaMemcpyHostToHost) VALUE(cudaMemcpyHostToDevice) VALUE(cudaMemcpyDeviceToHost) \
  VALUE(cudaMemcpyDeviceToDevice) VALUE(cudaMemcpyDefault) VALUE(cudaMemoryTypeUnregistered) \
  VALUE(cudaMemoryTypeHost) VALUE(cudaMemoryTypeDevice) VALUE(cudaMemoryTypeManaged) \
  VALUE(cudaStreamCaptureStatusNone) VALUE(cudaStreamCaptureStatusActive) \
  VALUE(cudaStreamCaptureStatusInvalidated) VALUE(cudaStreamCaptureModeGlobal) \
  VALUE(cudaStreamCaptureModeThreadLocal) VALUE(cudaStreamCaptureModeRelaxed) \
  VALUE(cudaDevAttrMaxThreadsPerBlock) VALUE(cudaDevAttrMaxBlockDimX) VALUE(cudaDevAttrMaxBlockDimY) \
  VALUE(cudaDevAttrMaxBlockDimZ) VALUE(cudaDevAttrMaxGridDimX) VALUE(cudaDevAttrMaxGridDimY) \
  VALUE(cudaDevAttrMaxGridDimZ) VALUE(cudaDevAttrMaxSharedMemoryPerBlock) VALUE(cudaDevAttrTotalConstantMemory) \
  VALUE(cudaDevAttrWarpSize) VALUE(cudaDevAttrMaxRegistersPerBlock) VALUE(cudaDevAttrClockRate) \
  VALUE(cudaDevAttrGpuOverlap) VALUE(cudaDevAttrMultiProcessorCount) VALUE(cudaDevAttrIntegrated) \
  VALUE(cudaDevAttrCanMapHostMemory) VALUE(cudaDevAttrComputeMode) VALUE(cudaDevAttrConcurrentKernels) \
  VALUE(cudaDevAttrEccEnabled) VALUE(cudaDevAttrPciBusId) VALUE(cudaDevAttrPciDeviceId) \
  VALUE(cudaDevAttrMemoryClockRate) VALUE(cudaDevAttrGlobalMemoryBusWidth) VALUE(cudaDevAttrL2CacheSize) \
  VALUE(cudaDevAttrMaxThreadsPerMultiProcessor) VALUE(cudaDevAttrAsyncEngineCount) \
  VALUE(cudaDevAttrUnifiedAddressing) VALUE(cudaDevAttrPciDomainId) VALUE(cudaDevAttrComputeCapabilityMajor) \
  VALUE(cudaDevAttrComputeCapabilityMinor) VALUE(cudaDevAttrStreamPrioritiesSupported) \
  VALUE(cudaDevAttrMaxSharedMemoryPerMultiprocessor) VALUE(cudaDevAttrMaxRegistersPerMultiprocessor) \
  VALUE(cudaDevAttrManagedMemory) VALUE(cudaDevAttrHostNativeAtomicSupported) \
  VALUE(cudaDevAttrPageableMemoryAccess) VALUE(cudaDevAttrConcurrentManagedAccess) \
  VALUE(cudaDevAttrCooperativeLaunch) VALUE(cudaDevAttrMaxSharedMemoryPerBlockOptin) \
  VALUE(cudaDevAttrHostRegisterSupported) VALUE(cudaDevAttrMaxBlocksPerMultiprocessor) \
  VALUE(cudaDevAttrReservedSharedMemoryPerBlock) VALUE(cudaDevAttrMemoryPoolsSupported) \
  VALUE(cudaDevAttrGPUDirectRDMASupported) VALUE(cudaDevAttrGPUDirectRDMAFlushWritesOptions) \
  VALUE(cudaDevAttrGPUDirectRDMAWritesOrdering) VALUE(cudaDevAttrClusterLaunch) \
  VALUE(cudaDevAttrIpcEventSupport) VALUE(cudaDevAttrMemSyncDomainCount) VALUE(cudaDevAttrNumaId) \
  VALUE(cudaDevAttrHostNumaId) VALUE(cudaStreamDefault) VALUE(cudaStreamNonBlocking) VALUE(cudaEventDefault) \
  VALUE(cudaEventBlockingSync) VALUE(cudaEventDisableTiming) VALUE(cudaEventInterprocess) \
  VALUE(cudaEventRecordDefault) VALUE(cudaEventWaitDefault) VALUE(cudaHostAllocDefault) \
  VALUE(cudaHostAllocPortable) VALUE(cudaHostAllocMapped) VALUE(cudaHostAllocWriteCombined) \
  VALUE(cudaMemAttachGlobal) VALUE(cudaMemAttachHost) VALUE(cudaDeviceScheduleAuto) VALUE(cudaCpuDeviceId) \
  VALUE(cudaInvalidDeviceId) VALUE(CUDA_SUCCESS) VALUE(CUDA_ERROR_INVALID_VALUE) \
  VALUE(CUDA_ERROR_OUT_OF_MEMORY) VALUE(CUDA_ERROR_NOT_INITIALIZED) VALUE(CUDA_ERROR_NO_DEVICE) \
  VALUE(CUDA_ERROR_INVALID_DEVICE) VALUE(CUDA_ERROR_INVALID_CONTEXT) VALUE(CUDA_ERROR_OPERATING_SYSTEM) \
  VALUE(CUDA_ERROR_INVALID_HANDLE) VALUE(CUDA_ERROR_NOT_FOUND) VALUE(CUDA_ERROR_NOT_READY) \
  VALUE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) VALUE(CUDA_ERROR_LAUNCH_FAILED) VALUE(CUDA_ERROR_NOT_PERMITTED) \
  VALUE(CUDA_ERROR_NOT_SUPPORTED) VALUE(CUDA_ERROR_UNKNOWN) VALUE(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) \
  VALUE(CU_DEVICE_ATTRIBUTE_WARP_SIZE) VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) \
  VALUE(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) VALUE(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) \
  VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) \
  VALUE(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) \
  VALUE(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) \
  VALUE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) \
  VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) \
  VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) VALUE(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) \
  VALUE(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) VALUE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) \
  VALUE(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) VALUE(ncclSuccess) VALUE(ncclUnhandledCudaError) \
  VALUE(ncclSystemError) VALUE(ncclInternalError) VALUE(ncclInvalidArgument) VALUE(ncclInvalidUsage) \
  VALUE(ncclRemoteError) VALUE(ncclInProgress) VALUE(ncclNumResults) VALUE(ncclInt8) VALUE(ncclChar) \
  VALUE(ncclUint8) VALUE(ncclInt32) VALUE(ncclInt) VALUE(ncclUint32) VALUE(ncclInt64) VALUE(ncclUint64) \
  VALUE(ncclFloat16) VALUE(ncclHalf) VALUE(ncclFloat32) VALUE(ncclFloat) VALUE(ncclFloat64) VALUE(ncclDouble) \
  VALUE(ncclBfloat16) VALUE(ncclFloat8e4m3) VALUE(ncclFloat8e5m2) VALUE(ncclNumTypes) VALUE(ncclSum) \
  VALUE(ncclProd) VALUE(ncclMax) VALUE(ncclMin) VALUE(ncclAvg) VALUE(ncclNumOps) VALUE(ncclMaxRedOp) \
  VALUE(NCCL_UNIQUE_ID_BYTES) VALUE(NCCL_SPLIT_NOCOLOR) VALUE(NCCL_WIN_DEFAULT) VALUE(NCCL_WIN_COLL_SYMMETRIC) \
  VALUE(NCCL_WIN_REQUIRED_ALIGNMENT) VALUE(NCCL_CTA_POLICY_DEFAULT) VALUE(NCCL_CTA_POLICY_EFFICIENCY) \
  VALUE(NCCL_CTA_POLICY_ZERO)
