/* A small C99 program as one written for CUDA, compiled with the host flavour's headers and nothing else. */
#include <cuda.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                  \
  do {                                                                                               \
    cudaError_t check_error = (call);                                                                \
    if (check_error != cudaSuccess) {                                                                \
      fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error)); \
      return 1;                                                                                      \
    }                                                                                                \
  } while (0)

enum { kNumFloats = 1 << 16 };

static void double_all(void* data) {
  float* values = (float*)data;
  int idx;
  for (idx = 0; idx < kNumFloats; ++idx) values[idx] *= 2.0f;
}

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  float *host = NULL, *device = NULL, elapsed_ms = -1.0f;
  cudaStream_t stream;
  cudaEvent_t start, stop;
  int idx, num_devices = 0, major = 0;

  if (config.size != sizeof(config) || sizeof(id) != NCCL_UNIQUE_ID_BYTES || cuInit(0) != CUDA_SUCCESS) return 1;
  CHECK(cudaGetDeviceCount(&num_devices));
  CHECK(cudaSetDevice(num_devices - 1));
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, num_devices - 1));
  if (major != 10) return 1;

  CHECK(cudaMallocHost((void**)&host, kNumFloats * sizeof(float)));
  CHECK(cudaMalloc((void**)&device, kNumFloats * sizeof(float)));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  for (idx = 0; idx < kNumFloats; ++idx) host[idx] = (float)idx;

  CHECK(cudaEventRecord(start, stream));
  CHECK(cudaMemcpyAsync(device, host, kNumFloats * sizeof(float), cudaMemcpyHostToDevice, stream));
  CHECK(cudaLaunchHostFunc(stream, double_all, device));
  CHECK(cudaMemcpyAsync(host, device, kNumFloats * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaEventRecord(stop, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaEventElapsedTime(&elapsed_ms, start, stop));
  for (idx = 0; idx < kNumFloats; ++idx) {
    if (host[idx] != 2.0f * (float)idx) return 1;
  }
  if (elapsed_ms < 0.0f) return 1;

  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(host));
  CHECK(cudaDeviceSynchronize());
  printf("host flavour: %d devices, %.3f ms in the stream\n", num_devices, elapsed_ms);
  return 0;
}
