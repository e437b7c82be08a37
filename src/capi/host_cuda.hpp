// What the files behind the host flavour's CUDA names share: error codes and handles.
#pragma once
#include "base/guarded.hpp"
#include "host/cuda_runtime.h"
#include "switchyard/status.hpp"

namespace switchyard::host_cuda {

// Remembers a failure for cudaGetLastError() of this thread, and returns the code. "Not ready" is no failure.
cudaError_t report(cudaError_t code);
// The same for a Status: `code` where it is not ok. Logs the reason, which a code cannot carry.
cudaError_t report(const Status& status, const char* call, cudaError_t code);
// Runs the body of a C function that needs memory. Nothing is ever thrown across the C boundary.
template <class Body>
cudaError_t guarded_cuda(const char* call, Body&& body) noexcept {
  cudaError_t result = cudaErrorUnknown;
  const Status ran = switchyard::guarded([&] { result = body(); });
  return ran.ok() ? result : report(ran, call, cudaErrorMemoryAllocation);
}

// The runtime's three spellings of the default stream are one here.
inline const void* stream_handle(cudaStream_t stream) {
  return stream == cudaStreamLegacy || stream == cudaStreamPerThread ? nullptr : stream;
}

// What a pretended device answers; nothing for an attribute it does not know.
// The driver's attributes have the runtime's numbers and more, so this takes a number.
cudaError_t device_attribute(int* value, int attribute, int device_ordinal);

size_t total_memory_bytes();

}  // namespace switchyard::host_cuda
