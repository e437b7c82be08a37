/* One decode step of a mixture-of-experts layer through the C API: dispatch, experts, combine. C99, one rank a process:
 *
 *   switchyard run -n 4 -- moe_decode
 *
 * Nothing here knows whether the ranks are GPUs or CPUs. Every expert multiplies its rows by a factor of its own, so
 * that each rank can work out alone what has to come back, and compares it bit for bit. */
#include <cuda_runtime.h>
#include <math.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_ep.h"

enum { kNumTokens = 64, kHidden = 2048, kTopk = 4, kExpertsPerRank = 8, kNumSteps = 10 };

static void fail(const char* call, const char* why) {
  fprintf(stderr, "moe_decode: %s: %s\n", call, why);
  exit(1);
}
#define NCCL(call)                                                  \
  do {                                                              \
    if ((call) != ncclSuccess) fail(#call, ncclGetLastError(NULL)); \
  } while (0)
#define CUDA(call)                                                              \
  do {                                                                          \
    cudaError_t cuda_error = (call);                                            \
    if (cuda_error != cudaSuccess) fail(#call, cudaGetErrorString(cuda_error)); \
  } while (0)

/* ---- Who am I? ---- */

static const char* variable(const char* name) {
  const char* value = getenv(name);
  if (value == NULL) fail(name, "is not set; start this program with: switchyard run -n 4 -- moe_decode");
  return value;
}

/* The launcher hands the unique id to everybody, as hexadecimal digits. With MPI it would be:
 *   MPI_Comm_rank(MPI_COMM_WORLD, &rank);  MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
 *   if (rank == 0) ncclGetUniqueId(&id);
 *   MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD); */
static ncclComm_t join(int* rank, int* num_ranks) {
  const char* hex = variable("SWITCHYARD_UNIQUE_ID");
  ncclComm_t comm;
  ncclUniqueId id;
  size_t i;
  if (strlen(hex) != 2 * sizeof(id)) fail("SWITCHYARD_UNIQUE_ID", "is not 256 hexadecimal digits");
  *rank = atoi(variable("SWITCHYARD_RANK"));
  *num_ranks = atoi(variable("SWITCHYARD_NUM_RANKS"));
  for (i = 0; i < sizeof(id); ++i) {
    unsigned byte = 0;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) fail("SWITCHYARD_UNIQUE_ID", "is not 256 hexadecimal digits");
    id.internal[i] = (char)byte;
  }
  CUDA(cudaSetDevice(atoi(variable("SWITCHYARD_LOCAL_RANK"))));
  NCCL(ncclCommInitRank(&comm, *num_ranks, id, *rank));
  return comm;
}

/* ---- Small parts ---- */

static float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

/* To nearest, ties to even. */
static uint16_t to_bf16(float value) {
  uint32_t wide;
  memcpy(&wide, &value, sizeof(wide));
  return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

static void* device_copy(const void* host, size_t num_bytes) {
  void* device = NULL;
  CUDA(cudaMalloc(&device, num_bytes));
  CUDA(cudaMemcpy(device, host, num_bytes, cudaMemcpyHostToDevice));
  return device;
}

static ncclEpTensor_t tensor(void* data, ncclDataType_t datatype, unsigned ndim, size_t* sizes) {
  ncclEpTensor_t made = NCCL_EP_TENSOR_INIT;
  made.ndim = ndim;
  made.datatype = datatype;
  made.data = data;
  made.sizes = sizes;
  return made;
}

static float expert_factor(int64_t expert) { return 1.0f + (float)(expert % 7) / 4.0f; }

/* ---- The batch of a rank ---- */

static uint16_t tokens[kNumTokens * kHidden];
static int64_t topk_idx[kNumTokens * kTopk];
static float topk_weights[kNumTokens * kTopk];
static uint16_t combined[kNumTokens * kHidden];

static void make_batch(int rank, int num_experts) {
  int token, k, i;
  for (token = 0; token < kNumTokens; ++token) {
    for (k = 0; k < kTopk; ++k) { /* distinct experts, spread over the ranks */
      topk_idx[token * kTopk + k] = (rank * 13 + token * 5 + k * (num_experts / kTopk)) % num_experts;
      topk_weights[token * kTopk + k] = 1.0f / (float)(k + 2);
    }
    for (i = 0; i < kHidden; ++i)
      tokens[token * kHidden + i] = to_bf16((float)((rank + token * 3 + i) % 101 - 50) / 8.0f);
  }
}

/* What the layer must return: the weighted sum in the order of k, rounded once. */
static int count_errors(void) {
  int token, k, i, num_errors = 0;
  for (token = 0; token < kNumTokens; ++token) {
    for (i = 0; i < kHidden; ++i) {
      const float value = from_bf16(tokens[token * kHidden + i]);
      float sum = 0.0f;
      for (k = 0; k < kTopk; ++k) {
        const int at = token * kTopk + k;
        sum = fmaf(from_bf16(to_bf16(expert_factor(topk_idx[at]) * value)), topk_weights[at], sum);
      }
      num_errors += combined[token * kHidden + i] != to_bf16(sum);
    }
  }
  return num_errors;
}

/* The experts of this rank, in place. A real program launches its grouped matrix product here; it, too, reads how many
 * rows each expert got. */
static void run_experts(uint16_t* rows, size_t rows_per_expert, const int* counts_on_device, int rank) {
  int counts[kExpertsPerRank];
  int expert;
  CUDA(cudaMemcpy(counts, counts_on_device, sizeof(counts), cudaMemcpyDeviceToHost));
  for (expert = 0; expert < kExpertsPerRank; ++expert) {
    const float factor = expert_factor(rank * kExpertsPerRank + expert);
    const size_t num_values = (size_t)counts[expert] * kHidden;
    uint16_t* const zone = rows + (size_t)expert * rows_per_expert * kHidden;
    uint16_t* const values = malloc(num_values * sizeof(uint16_t) + 1);
    size_t i;
    if (values == NULL) fail("malloc", "out of memory");
    CUDA(cudaMemcpy(values, zone, num_values * sizeof(uint16_t), cudaMemcpyDeviceToHost));
    for (i = 0; i < num_values; ++i) values[i] = to_bf16(factor * from_bf16(values[i]));
    CUDA(cudaMemcpy(zone, values, num_values * sizeof(uint16_t), cudaMemcpyHostToDevice));
    free(values);
  }
}

/* ---- The layer ---- */

static void decode(ncclComm_t comm, ncclEpGroup_t group, int rank, int num_ranks) {
  const size_t rows_per_expert = (size_t)num_ranks * kNumTokens;
  const size_t out_bytes = kExpertsPerRank * rows_per_expert * kHidden * sizeof(uint16_t);
  size_t token_sizes[] = {kNumTokens, kHidden}, topk_sizes[] = {kNumTokens, kTopk};
  size_t out_sizes[] = {kExpertsPerRank, rows_per_expert, kHidden}, count_sizes[] = {kExpertsPerRank};
  const int no_counts[kExpertsPerRank] = {0};
  void* received = NULL;
  ncclWindow_t window;
  ncclEpHandle_t handle;
  ncclEpTensor_t idx = tensor(device_copy(topk_idx, sizeof(topk_idx)), ncclInt64, 2, topk_sizes);
  ncclEpTensor_t weights = tensor(device_copy(topk_weights, sizeof(topk_weights)), ncclFloat32, 2, topk_sizes);
  ncclEpTensor_t in = tensor(device_copy(tokens, sizeof(tokens)), ncclBfloat16, 2, token_sizes);
  ncclEpTensor_t out = tensor(device_copy(combined, sizeof(combined)), ncclBfloat16, 2, token_sizes);
  ncclEpTensor_t counters = tensor(device_copy(no_counts, sizeof(no_counts)), ncclInt32, 1, count_sizes);
  ncclEpTensor_t rows = tensor(NULL, ncclBfloat16, 3, out_sizes);
  ncclEpDispatchInputs_t dispatch_in = NCCL_EP_DISPATCH_INPUTS_INIT;
  ncclEpDispatchOutputs_t dispatch_out = NCCL_EP_DISPATCH_OUTPUTS_INIT;
  ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
  ncclEpCombineInputs_t combine_in = NCCL_EP_COMBINE_INPUTS_INIT;
  ncclEpCombineOutputs_t combine_out = NCCL_EP_COMBINE_OUTPUTS_INIT;
  int step;

  /* In a window the ranks of a node write rows straight to their places. */
  NCCL(ncclMemAlloc(&received, out_bytes));
  NCCL(ncclCommWindowRegister(comm, received, out_bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
  rows.win_hdl = window;
  dispatch_in.tokens = &in;
  dispatch_out.tokens = &rows;
  info.expert_counters = &counters;
  combine_in.tokens = &rows;
  combine_out.tokens = &out;
  combine_out.topk_weights = &weights;

  NCCL(ncclEpCreateHandle(&handle, group, NCCL_EP_LAYOUT_EXPERT_MAJOR, &idx, NULL, NULL, NULL));
  for (step = 0; step < kNumSteps; ++step) {
    NCCL(ncclEpDispatch(handle, &dispatch_in, &dispatch_out, &info, NULL, NULL));
    CUDA(cudaStreamSynchronize(NULL));
    run_experts(received, rows_per_expert, counters.data, rank);
    NCCL(ncclEpCombine(handle, &combine_in, &combine_out, NULL, NULL));
    CUDA(cudaStreamSynchronize(NULL));
  }
  CUDA(cudaMemcpy(combined, out.data, sizeof(combined), cudaMemcpyDeviceToHost));
  NCCL(ncclEpHandleDestroy(handle));
  NCCL(ncclCommWindowDeregister(comm, window));
  NCCL(ncclMemFree(received));
  CUDA(cudaFree(idx.data));
  CUDA(cudaFree(weights.data));
  CUDA(cudaFree(in.data));
  CUDA(cudaFree(out.data));
  CUDA(cudaFree(counters.data));
}

static int sum_over_ranks(ncclComm_t comm, int value) {
  int* sum = device_copy(&value, sizeof(value));
  NCCL(ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, NULL));
  CUDA(cudaMemcpy(&value, sum, sizeof(value), cudaMemcpyDeviceToHost));
  CUDA(cudaFree(sum));
  return value;
}

int main(void) {
  ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
  ncclEpGroup_t group;
  int rank, num_ranks, num_errors;
  const ncclComm_t comm = join(&rank, &num_ranks);

  config.num_experts = (unsigned)num_ranks * kExpertsPerRank;
  config.max_dispatch_tokens_per_rank = kNumTokens;
  config.max_token_bytes = kHidden * sizeof(uint16_t);
  NCCL(ncclEpCreateGroup(&group, comm, &config));
  make_batch(rank, (int)config.num_experts);
  decode(comm, group, rank, num_ranks);
  num_errors = sum_over_ranks(comm, count_errors());
  if (rank == 0) {
    printf("moe_decode: %d ranks, %u experts, %d tokens a rank of %d bf16, top-%d, %d steps: %d wrong values\n",
           num_ranks, config.num_experts, kNumTokens, kHidden, kTopk, kNumSteps, num_errors);
  }
  NCCL(ncclEpGroupDestroy(group));
  NCCL(ncclCommDestroy(comm));
  return num_errors == 0 ? 0 : 1;
}
