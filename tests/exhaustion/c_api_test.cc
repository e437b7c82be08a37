// The C API of a rank that is alone, whose memory ends at every place, one after the other: nothing is thrown across
// the C boundary, and every call that fails says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>

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
  ncclEpHandle_t handle = nullptr;
  ncclEpTensor_t* tensor = nullptr;

  ~Holdings() {
    ncclEpTensorDestroy(tensor);
    if (handle != nullptr) ncclEpHandleDestroy(handle);
    if (group != nullptr) ncclEpGroupDestroy(group);
    if (event != nullptr) cudaEventDestroy(event);
    if (stream != nullptr) cudaStreamDestroy(stream);
    if (window != nullptr) ncclCommWindowDeregister(comm, window);
    ncclMemFree(memory);
    if (comm != nullptr) ncclCommDestroy(comm);
  }
};

constexpr size_t kNumTokens = 3, kHidden = 32, kTopk = 2, kNumExperts = 4, kMaxTokens = 8;

ncclEpTensor_t tensor_of(void* data, ncclDataType_t datatype, std::span<size_t> sizes) {
  ncclEpTensor_t made = NCCL_EP_TENSOR_INIT;
  made.ndim = unsigned(sizes.size());
  made.datatype = datatype;
  made.data = data;
  made.sizes = sizes.data();
  return made;
}

// Each token is sent to two experts that give it back, and their weights add up to 1.
int make_round_trip(Holdings& held) {
  float tokens[kNumTokens * kHidden], combined[kNumTokens * kHidden] = {}, weights[kNumTokens * kTopk];
  alignas(64) static float rows[kNumExperts * kMaxTokens * kHidden];
  int64_t ids[kNumTokens * kTopk];
  int32_t counters[kNumExperts];
  for (size_t i = 0; i < std::size(tokens); ++i) tokens[i] = float(i);
  for (size_t i = 0; i < std::size(ids); ++i) ids[i] = int64_t(i % kNumExperts);
  std::fill(std::begin(weights), std::end(weights), 0.5f);
  size_t of_tokens[] = {kNumTokens, kHidden}, of_rows[] = {kNumExperts, kMaxTokens, kHidden},
         of_topk[] = {kNumTokens, kTopk}, of_counters[] = {kNumExperts};
  ncclEpTensor_t topk_idx = tensor_of(ids, ncclInt64, of_topk), topk_weights = tensor_of(weights, ncclFloat32, of_topk),
                 sent = tensor_of(tokens, ncclFloat32, of_tokens), received = tensor_of(rows, ncclFloat32, of_rows),
                 returned = tensor_of(combined, ncclFloat32, of_tokens),
                 counts = tensor_of(counters, ncclInt32, of_counters);
  if (const ncclResult_t result =
          ncclEpInitHandle(&held.handle, held.group, NCCL_EP_LAYOUT_EXPERT_MAJOR, nullptr, kTopk, nullptr)) {
    return result;
  }
  if (const ncclResult_t result = ncclEpUpdateHandle(held.handle, &topk_idx, nullptr, held.stream)) return result;
  ncclEpDispatchInputs_t in = NCCL_EP_DISPATCH_INPUTS_INIT;
  in.tokens = &sent;
  ncclEpDispatchOutputs_t out = NCCL_EP_DISPATCH_OUTPUTS_INIT;
  out.tokens = &received;
  ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
  info.expert_counters = &counts;
  ncclResult_t posted = ncclEpDispatch(held.handle, &in, &out, &info, nullptr, held.stream);
  ncclEpCombineInputs_t back = NCCL_EP_COMBINE_INPUTS_INIT;
  back.tokens = &received;
  ncclEpCombineOutputs_t sums = NCCL_EP_COMBINE_OUTPUTS_INIT;
  sums.tokens = &returned;
  sums.topk_weights = &topk_weights;
  if (posted == ncclSuccess) posted = ncclEpCombine(held.handle, &back, &sums, nullptr, held.stream);
  // What was posted still reads and writes what is here.
  if (const cudaError_t result = cudaStreamSynchronize(held.stream)) return result;
  if (posted != ncclSuccess) return posted;
  EXPECT_TRUE(std::equal(std::begin(tokens), std::end(tokens), combined)) << "tokens came back changed";
  return 0;
}

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
  config.num_experts = kNumExperts;
  config.max_dispatch_tokens_per_rank = kMaxTokens;
  config.max_token_bytes = kHidden * sizeof(float);
  if (const ncclResult_t result = ncclEpCreateGroup(&held.group, held.comm, &config)) return result;
  const size_t sizes[] = {2, 4};
  if (const ncclResult_t result = ncclEpTensorAlloc(&held.tensor, 2, ncclFloat32, sizes, nullptr)) return result;
  if (const int result = make_round_trip(held)) return result;
  if (const ncclResult_t result =
          ncclAllReduce(held.memory, held.memory, 16, ncclFloat32, ncclSum, held.comm, held.stream)) {
    return result;
  }
  return cudaStreamSynchronize(held.stream);
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
