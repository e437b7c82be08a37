// The C API of a rank that is alone, whose memory ends at every place, one after the other: nothing is thrown across
// the C boundary, and every call that fails says why.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "call_faults.hpp"
#include "host/cuda_runtime.h"
#include "nccl_ep.h"

namespace switchyard::testing {
namespace {

// What a program holds, and gives back whatever happened to it before.
struct Holdings {
  ncclComm_t comm = nullptr;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ncclEpGroup_t group = nullptr;
  ncclEpTensor_t* tensor = nullptr;

  ~Holdings() {
    ncclEpTensorDestroy(tensor);
    if (group != nullptr) ncclEpGroupDestroy(group);
    if (event != nullptr) cudaEventDestroy(event);
    if (stream != nullptr) cudaStreamDestroy(stream);
    if (window != nullptr) ncclCommWindowDeregister(comm, window);
    ncclMemFree(memory);
    if (comm != nullptr) ncclCommDestroy(comm);
  }
};

// The first result that is no success.
int live_alone() {
  Holdings held;
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id)) return result;
  if (const ncclResult_t result = ncclCommInitRank(&held.comm, 1, id, 0)) return result;
  if (const ncclResult_t result = ncclMemAlloc(&held.memory, 4096)) return result;
  if (const ncclResult_t result = ncclCommWindowRegister(held.comm, held.memory, 4096, &held.window, 0)) return result;
  if (const cudaError_t result = cudaStreamCreate(&held.stream)) return result;
  if (const cudaError_t result = cudaEventCreate(&held.event)) return result;
  if (const cudaError_t result = cudaEventRecord(held.event, held.stream)) return result;
  if (const cudaError_t result = cudaMemsetAsync(held.memory, 1, 4096, held.stream)) return result;
  if (const cudaError_t result = cudaStreamSynchronize(held.stream)) return result;
  ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
  config.algorithm = NCCL_EP_ALGO_LOW_LATENCY;
  config.num_experts = 4;
  config.max_dispatch_tokens_per_rank = 8;
  config.max_token_bytes = 128;
  if (const ncclResult_t result = ncclEpCreateGroup(&held.group, held.comm, &config)) return result;
  const size_t sizes[] = {2, 4};
  if (const ncclResult_t result = ncclEpTensorAlloc(&held.tensor, 2, ncclFloat32, sizes, nullptr)) return result;
  return 0;
}

TEST(Exhaustion, TheCApiSaysThatMemoryHasEndedWhereverItDoes) {
  set_log_sink([](LogLevel, const char*) {});
  ASSERT_EQ(live_alone(), 0) << ncclGetLastError(nullptr);
  arm({});
  ASSERT_EQ(live_alone(), 0);
  const uint64_t num_calls = disarm()[size_t(Call::kNew)];
  size_t num_failed = 0;
  for (uint64_t nth = 1; nth <= num_calls; ++nth) {
    for (const bool from_then_on : {false, true}) {
      arm({Call::kNew, nth, ENOMEM, from_then_on});
      const int result = live_alone();
      disarm();
      num_failed += result != 0;
      EXPECT_TRUE(result == 0 || std::strlen(ncclGetLastError(nullptr)) > 0) << nth;
      ASSERT_EQ(live_alone(), 0) << nth << ": the next job failed: " << ncclGetLastError(nullptr);
    }
  }
  set_log_sink(nullptr);
  std::printf("%zu faults, %zu of them told\n", size_t(2 * num_calls), num_failed);
  EXPECT_GT(num_failed, num_calls);
}

}  // namespace
}  // namespace switchyard::testing
