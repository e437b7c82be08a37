// One rank of a tiny high-throughput layer through the C API: 2 ranks, 4 experts, top-2, so that every number can be said by
// hand. Token t of rank r goes to experts (r + t) % 4 and (r + t + 1) % 4; experts 0 and 1 are rank 0's.
#pragma once
#include "capi/ep_rank.hpp"

namespace switchyard::testing {

struct HtTiny {
  static constexpr size_t kRanks = 2, kExperts = 4, kLocal = 2, kTokens = 4, kTopk = 2, kHidden = 8, kBudget = 16;

  static ncclEpGroupConfig_t config(bool eager = false) {
    ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
    config.algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
    config.num_experts = kExperts;
    config.max_dispatch_tokens_per_rank = kTokens;
    config.max_recv_tokens_per_rank = eager ? 0 : kBudget;
    config.max_token_bytes = 2 * kHidden * sizeof(float);
    config.num_topk = kTopk;
    return config;
  }
  static int64_t expert(size_t rank, size_t token, size_t k) { return int64_t((rank + token + k) % kExperts); }
  static float value(size_t rank, size_t token, size_t i) { return float(100 * rank + 10 * token + i); }
  static float weight(size_t rank, size_t token, size_t k) { return float(rank + 1) + float(token) / 4 + float(k) / 16; }

  // What a rank gets, in order: (source, token), and in which of its experts.
  struct Arrival {
    size_t source, token, k;
  };
  static std::vector<Arrival> flat_arrivals(size_t rank) {
    std::vector<Arrival> rows;
    for (size_t source = 0; source < kRanks; ++source) {
      for (size_t token = 0; token < kTokens; ++token) {
        for (size_t k = 0; k < kTopk; ++k) {
          if (size_t(expert(source, token, k)) / kLocal != rank) continue;
          rows.push_back({source, token, k});
          break;
        }
      }
    }
    return rows;
  }
  static std::vector<Arrival> expert_arrivals(size_t global_expert) {
    std::vector<Arrival> rows;
    for (size_t source = 0; source < kRanks; ++source) {
      for (size_t token = 0; token < kTokens; ++token) {
        for (size_t k = 0; k < kTopk; ++k) {
          if (size_t(expert(source, token, k)) == global_expert) rows.push_back({source, token, k});
        }
      }
    }
    return rows;
  }
};

class HtRankC {
 public:
  using T = HtTiny;

  HtRankC(ncclComm_t communicator, int own_rank, ncclEpLayout_t its_layout, size_t rows = T::kBudget, bool windows = false)
      : rank(size_t(own_rank)),
        layout(its_layout),
        num_rows(rows),
        indices(T::kTokens * T::kTopk * sizeof(int64_t)),
        weights(T::kTokens * T::kTopk * sizeof(float)),
        tokens(T::kTokens * T::kHidden * sizeof(float)),
        out_tokens(make(rows * T::kHidden * sizeof(float), communicator, windows)),
        out_weights(rows * T::kTopk * sizeof(float)),
        out_idx(rows * T::kTopk * sizeof(int64_t)),
        gradients(rows * T::kTopk * sizeof(float)),
        combined(T::kTokens * T::kHidden * sizeof(float)),
        out_gradients(T::kTokens * T::kTopk * sizeof(float)),
        counts(T::kLocal * sizeof(int32_t)),
        offsets(T::kLocal * sizeof(int32_t)),
        total(sizeof(int32_t)) {
    std::vector<int64_t> ids;
    std::vector<float> w, x;
    for (size_t token = 0; token < T::kTokens; ++token) {
      for (size_t k = 0; k < T::kTopk; ++k) {
        ids.push_back(T::expert(rank, token, k));
        w.push_back(T::weight(rank, token, k));
      }
      for (size_t i = 0; i < T::kHidden; ++i) x.push_back(T::value(rank, token, i));
    }
    indices.upload(ids);
    weights.upload(w);
    tokens.upload(x);
    topk_idx.set(indices, ncclInt64, {T::kTokens, T::kTopk});
    spoil();
  }

  bool flat() const { return layout == NCCL_EP_LAYOUT_FLAT; }
  void spoil() const {
    for (const DeviceBuffer* output : outputs()) output->fill(kUntouched);
  }
  bool untouched() const {
    for (const DeviceBuffer* output : outputs()) {
      if (!output->holds_only(kUntouched)) return false;
    }
    return true;
  }

  const size_t rank;
  const ncclEpLayout_t layout;
  const size_t num_rows;
  DeviceBuffer indices, weights, tokens;
  std::unique_ptr<DeviceBuffer> out_tokens;
  DeviceBuffer out_weights, out_idx, gradients, combined, out_gradients;
  DeviceBuffer counts, offsets, total;
  TensorArg topk_idx;

 private:
  std::array<const DeviceBuffer*, 5> outputs() const {
    return {out_tokens.get(), &out_weights, &out_idx, &combined, &out_gradients};
  }
  static std::unique_ptr<DeviceBuffer> make(size_t num_bytes, ncclComm_t comm, bool window) {
    return window ? std::make_unique<DeviceBuffer>(num_bytes, comm, num_bytes) : std::make_unique<DeviceBuffer>(num_bytes);
  }
};

// Calls that are right until a test spoils them.
struct HtUpdateCall {
  HtUpdateCall(HtRankC& its_rank, ncclEpHandle_t its_handle, cudaStream_t its_stream)
      : ep(its_rank), handle(its_handle), stream(its_stream) {
    counters.set(ep.counts, ncclInt32, {HtTiny::kLocal});
    total.set(ep.total, ncclInt32, {1});
    info.expert_counters = counters.get();
    info.recv_total_counter = total.get();
    if (ep.flat()) return;
    offsets.set(ep.offsets, ncclInt32, {HtTiny::kLocal});
    info.expert_offsets = offsets.get();
  }
  ncclResult_t issue() { return ncclEpUpdateHandle(handle, topk_idx, &info, stream); }
  bool untouched() const { return ep.untouched(); }

  HtRankC& ep;
  ncclEpHandle_t handle;
  cudaStream_t stream;
  TensorArg counters, offsets, total, spare;
  const ncclEpTensor_t* topk_idx = &ep.topk_idx.desc;
  ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
};

struct HtDispatchCall {
  HtDispatchCall(HtRankC& its_rank, ncclEpHandle_t its_handle, cudaStream_t its_stream, bool backward = false)
      : ep(its_rank), handle(its_handle), stream(its_stream) {
    using T = HtTiny;
    tokens.set(ep.tokens, ncclFloat32, {T::kTokens, T::kHidden});
    out_tokens.set(*ep.out_tokens, ncclFloat32, {ep.num_rows, T::kHidden});
    inputs.tokens = tokens.get();
    outputs.tokens = out_tokens.get();
    config.pass_direction = backward ? NCCL_EP_BWD_PASS : NCCL_EP_FWD_PASS;
    if (backward) return;
    weights.set(ep.weights, ncclFloat32, {T::kTokens, T::kTopk});
    inputs.topk_weights = weights.get();
    if (ep.flat()) {
      out_weights.set(ep.out_weights, ncclFloat32, {ep.num_rows, T::kTopk});
      out_idx.set(ep.out_idx, ncclInt64, {ep.num_rows, T::kTopk});
      outputs.topk_idx = out_idx.get();
    } else {
      out_weights.set(ep.out_weights, ncclFloat32, {ep.num_rows});
    }
    outputs.topk_weights = out_weights.get();
  }
  ncclResult_t issue() { return ncclEpDispatch(handle, &inputs, &outputs, info_arg, &config, stream); }
  bool untouched() const { return ep.untouched(); }

  HtRankC& ep;
  ncclEpHandle_t handle;
  cudaStream_t stream;
  TensorArg tokens, weights, out_tokens, out_weights, out_idx, spare, scales, out_scales;
  ncclEpDispatchInputs_t inputs = NCCL_EP_DISPATCH_INPUTS_INIT;
  ncclEpDispatchOutputs_t outputs = NCCL_EP_DISPATCH_OUTPUTS_INIT;
  ncclEpDispatchConfig_t config = NCCL_EP_DISPATCH_CONFIG_INIT;
  ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
  const ncclEpLayoutInfo_t* info_arg = nullptr;
};

struct HtCombineCall {
  HtCombineCall(HtRankC& its_rank, ncclEpHandle_t its_handle, cudaStream_t its_stream, bool backward = false)
      : ep(its_rank), handle(its_handle), stream(its_stream) {
    using T = HtTiny;
    tokens.set(*ep.out_tokens, ncclFloat32, {ep.num_rows, T::kHidden});
    out_tokens.set(ep.combined, ncclFloat32, {T::kTokens, T::kHidden});
    inputs.tokens = tokens.get();
    outputs.tokens = out_tokens.get();
    config.pass_direction = backward ? NCCL_EP_BWD_PASS : NCCL_EP_FWD_PASS;
    if (!backward) return;
    if (ep.flat()) weights.set(ep.gradients, ncclFloat32, {ep.num_rows, T::kTopk});
    else weights.set(ep.gradients, ncclFloat32, {ep.num_rows});
    out_weights.set(ep.out_gradients, ncclFloat32, {T::kTokens, T::kTopk});
    inputs.topk_weights = weights.get();
    outputs.topk_weights = out_weights.get();
  }
  ncclResult_t issue() { return ncclEpCombine(handle, &inputs, &outputs, &config, stream); }
  bool untouched() const { return ep.untouched(); }

  HtRankC& ep;
  ncclEpHandle_t handle;
  cudaStream_t stream;
  TensorArg tokens, weights, out_tokens, out_weights, spare, scales;
  ncclEpCombineInputs_t inputs = NCCL_EP_COMBINE_INPUTS_INIT;
  ncclEpCombineOutputs_t outputs = NCCL_EP_COMBINE_OUTPUTS_INIT;
  ncclEpCombineConfig_t config = NCCL_EP_COMBINE_CONFIG_INIT;
};

inline HandleOwner make_ht_handle(ncclEpGroup_t group, ncclEpLayout_t layout, const ncclEpTensor_t* memory = nullptr,
                                  size_t alignment = 0) {
  ncclEpHandleConfig_t config = NCCL_EP_HANDLE_CONFIG_INIT;
  config.dispatch_output_per_expert_alignment = alignment;
  ncclEpHandle_t handle = nullptr;
  expect_success(ncclEpInitHandle(&handle, group, layout, &config, HtTiny::kTopk, memory));
  return HandleOwner(handle);
}

}  // namespace switchyard::testing
