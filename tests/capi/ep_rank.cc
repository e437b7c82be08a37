#include "capi/ep_rank.hpp"

namespace switchyard::testing {
namespace {

ncclDataType_t nccl_type(DType dtype) { return ncclDataType_t(int(dtype)); }

ncclDataType_t index_type(const oracle::Case& c) { return c.int32_indices ? ncclInt32 : ncclInt64; }

// A window has one size on all ranks: that of the rank with most rows.
size_t window_rows(const oracle::Case& c) {
  int most = 0;
  for (int rank = 0; rank < c.num_ranks; ++rank) most = std::max(most, c.num_blocks(rank));
  return size_t(most) * size_t(c.rows_per_block());
}

DeviceBuffer row_buffer(const oracle::Case& c, int rank, size_t row_bytes, ncclComm_t comm, bool window) {
  const size_t num_bytes = size_t(c.num_blocks(rank)) * size_t(c.rows_per_block()) * row_bytes;
  return window && row_bytes > 0 ? DeviceBuffer(num_bytes, comm, window_rows(c) * row_bytes) : DeviceBuffer(num_bytes);
}

}  // namespace

Scenario::Scenario(uint64_t seed, const oracle::Shape& shape, oracle::Routing routing, oracle::Fill fill)
    : Scenario(seed, oracle::make_case(seed, shape, routing, fill)) {}

Scenario::Scenario(uint64_t seed, oracle::Case changed) : c(std::move(changed)) {
  dispatch = oracle::expected_dispatch(c);
  outputs = oracle::make_expert_outputs(seed + 1, c, dispatch);
  combined = oracle::expected_combine(c, dispatch, outputs);
}

oracle::Shape small_shape(int num_ranks, oracle::Layout layout) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 2 * num_ranks + 1;  // does not divide
  shape.topk = 3;
  shape.hidden = 256;
  shape.max_tokens = 8;
  shape.layout = layout;
  return shape;
}

ncclEpGroupConfig_t group_config_for(const oracle::Shape& shape) {
  ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
  config.num_experts = unsigned(shape.num_experts);
  config.max_dispatch_tokens_per_rank = unsigned(shape.max_tokens);
  config.max_token_bytes =
      unsigned(std::max({shape.input_token_bytes() + shape.input_scale_bytes(),
                         shape.output_token_bytes() + shape.output_scale_bytes(), shape.combine_row_bytes()}));
  config.timeout_ns = 20'000'000'000;
  return config;
}

GroupOwner make_group(ncclComm_t comm, const ncclEpGroupConfig_t& config) {
  ncclEpGroup_t group = nullptr;
  expect_success(ncclEpCreateGroup(&group, comm, &config));
  return GroupOwner(group);
}

void TensorArg::set(const DeviceBuffer& buffer, ncclDataType_t datatype, std::initializer_list<size_t> extents) {
  std::copy(extents.begin(), extents.end(), sizes.begin());
  desc.ndim = unsigned(extents.size());
  desc.datatype = datatype;
  desc.sizes = sizes.data();
  desc.data = buffer.window() == nullptr ? buffer.data() : nullptr;
  desc.win_hdl = buffer.window();
  desc.win_offset = buffer.window() == nullptr ? 0 : DeviceBuffer::kWindowOffset;
}

EpRank::EpRank(const Scenario& scenario, ncclComm_t communicator, int which, bool windows)
    : s(scenario),
      c(scenario.c),
      comm(communicator),
      rank(which),
      num_tokens(size_t(c.num_tokens[size_t(rank)])),
      topk(size_t(c.topk)),
      outer(size_t(c.num_blocks(rank))),
      inner(size_t(c.rows_per_block())),
      rank_major(c.layout == oracle::Layout::kRankMajor),
      nvfp4(c.combine_recipe == oracle::CombineRecipe::kNvfp4),
      tokens(num_tokens * c.input_token_bytes()),
      scales(num_tokens * c.input_scale_bytes()),
      indices(num_tokens * topk * (c.int32_indices ? sizeof(int32_t) : sizeof(int64_t))),
      weights(num_tokens * topk * sizeof(float)),
      out_tokens(row_buffer(c, rank, c.output_token_bytes(), comm, windows)),
      out_scales(row_buffer(c, rank, c.output_scale_bytes(), comm, windows)),
      out_idx(rank_major ? outer * inner * topk * sizeof(int32_t) : 0),
      out_weights(rank_major ? outer * inner * topk * sizeof(float) : 0),
      counters(outer * sizeof(int32_t)),
      results(row_buffer(c, rank, c.combine_row_bytes(), comm, windows)),
      row_scales(nvfp4 ? outer * inner * sizeof(float) : 0),
      combined(num_tokens * c.combine_row_bytes()) {
  tokens.upload(c.tokens[size_t(rank)]);
  if (c.input_scale_bytes() > 0) scales.upload(c.scales[size_t(rank)]);
  weights.upload(c.topk_weights[size_t(rank)]);
  const std::vector<int64_t>& wide = c.topk_idx[size_t(rank)];
  if (c.int32_indices) indices.upload(std::vector<int32_t>(wide.begin(), wide.end()));
  else indices.upload(wide);
  topk_idx.set(indices, index_type(c), {num_tokens, topk});
}

HandleOwner EpRank::open(ncclEpGroup_t group) {
  ncclEpHandle_t handle = nullptr;
  expect_success(ncclEpCreateHandle(&handle, group, layout_of(c), topk_idx.get(), nullptr, nullptr, nullptr));
  return HandleOwner(handle);
}

void EpRank::spoil_dispatch_outputs() const {
  for (const DeviceBuffer* output : {&out_tokens, &out_scales, &out_idx, &out_weights, &counters}) {
    output->fill(kUntouched);
  }
}

void EpRank::prepare_combine() const {
  std::vector<uint8_t> rows(results.size(), 0x5a);
  std::vector<float> global_scales(row_scales.size() / sizeof(float), 0.0f);
  oracle::scatter_outputs(c, s.outputs, rank, rows, global_scales);
  results.upload(rows);
  row_scales.upload(global_scales);
  combined.fill(kUntouched);
}

bool EpRank::outputs_untouched() const {
  for (const DeviceBuffer* output : {&out_tokens, &out_scales, &out_idx, &out_weights, &counters, &combined}) {
    if (!output->holds_only(kUntouched)) return false;
  }
  return true;
}

std::string EpRank::check_dispatch() const {
  const std::vector<uint8_t> got_tokens = out_tokens.download(), got_scales = out_scales.download();
  const std::vector<int32_t> got_counters = counters.download<int32_t>(), got_idx = out_idx.download<int32_t>();
  const std::vector<float> got_weights = out_weights.download<float>();
  const oracle::DispatchView view{got_tokens, got_scales, got_counters, got_idx, got_weights};
  return oracle::check_dispatch(c, s.dispatch, rank, view, kUntouched);
}

std::string EpRank::check_combine() const {
  return oracle::check_combine(c, rank, s.combined[size_t(rank)], combined.download());
}

DispatchCall::DispatchCall(const EpRank& rank, ncclEpHandle_t called_handle, cudaStream_t called_stream)
    : ep(rank),
      handle(called_handle),
      stream(called_stream),
      spare(rank.weights, ncclFloat32, {rank.num_tokens, rank.topk}) {
  const oracle::Case& c = ep.c;
  const auto hidden = size_t(c.hidden);
  const bool fused = c.dispatch_recipe == oracle::DispatchRecipe::kDsFp8;
  tokens.set(ep.tokens, nccl_type(c.dtype), {ep.num_tokens, hidden});
  out_tokens.set(ep.out_tokens, fused ? ncclFloat8e4m3 : nccl_type(c.dtype), {ep.outer, ep.inner, hidden});
  counters.set(ep.counters, ncclInt32, {ep.outer});
  if (c.dispatch_recipe == oracle::DispatchRecipe::kForward) {
    const auto width = size_t(c.scale_width);
    config.quant_recipe = NCCL_EP_DISP_QUANT_FWD;
    scales.set(ep.scales, nccl_type(c.scale_dtype), {ep.num_tokens, width});
    out_scales.set(ep.out_scales, nccl_type(c.scale_dtype), {ep.outer, ep.inner, width});
  } else if (fused) {
    config.quant_recipe = NCCL_EP_DISP_QUANT_DS_FP8E3M4;
    config.round_scales = c.round_scales;
    out_scales.set(ep.out_scales, ncclFloat32, {ep.outer, ep.inner, hidden / 128});
  }
  if (ep.rank_major) {
    topk_weights.set(ep.weights, ncclFloat32, {ep.num_tokens, ep.topk});
    out_topk_weights.set(ep.out_weights, ncclFloat32, {ep.outer, ep.inner, ep.topk});
    out_topk_idx.set(ep.out_idx, ncclInt32, {ep.outer, ep.inner, ep.topk});
    layout_info.recv_topk_idx_kind =
        c.id_kind == oracle::IdKind::kGlobal ? NCCL_EP_EXPERT_ID_GLOBAL : NCCL_EP_EXPERT_ID_AUTO;
  }
  (ep.rank_major ? layout_info.src_rank_counters : layout_info.expert_counters) = counters.get();
  inputs.tokens = tokens.get();
  inputs.topk_weights = topk_weights.get();
  inputs.scales = scales.get();
  outputs.tokens = out_tokens.get();
  outputs.topk_weights = out_topk_weights.get();
  outputs.scales = out_scales.get();
  outputs.topk_idx = out_topk_idx.get();
}

ncclResult_t DispatchCall::issue(Caller caller) {
  if (caller == Caller::kCurrent) {
    return ncclEpDispatch(handle, inputs_arg, outputs_arg, layout_info_arg, config_arg, stream);
  }
  return ncclEpDispatch(handle, Aged(inputs, NCCL_EP_DISPATCH_INPUTS_V1_SIZE, caller).get(),
                        Aged(outputs, NCCL_EP_DISPATCH_OUTPUTS_V1_SIZE, caller).get(),
                        Aged(layout_info, NCCL_EP_LAYOUT_INFO_V1_SIZE, caller).get(),
                        Aged(config, NCCL_EP_DISPATCH_CONFIG_V1_SIZE, caller).get(), stream);
}

bool DispatchCall::untouched() const { return cudaDeviceSynchronize() == cudaSuccess && ep.outputs_untouched(); }

CombineCall::CombineCall(const EpRank& rank, ncclEpHandle_t called_handle, cudaStream_t called_stream)
    : ep(rank),
      handle(called_handle),
      stream(called_stream),
      spare(rank.weights, ncclFloat32, {rank.num_tokens, rank.topk}) {
  const oracle::Case& c = ep.c;
  const auto hidden = size_t(c.combine_hidden > 0 ? c.combine_hidden : c.hidden);
  tokens.set(ep.results, nccl_type(c.combine_dtype), {ep.outer, ep.inner, hidden});
  out_tokens.set(ep.combined, nccl_type(c.combine_dtype), {ep.num_tokens, hidden});
  out_topk_weights.set(ep.weights, ncclFloat32, {ep.num_tokens, ep.topk});
  if (ep.nvfp4) {
    config.quant_recipe = NCCL_EP_COMB_QUANT_NVFP4;
    scales.set(ep.row_scales, ncclFloat32, {ep.outer, ep.inner, 1});
  }
  inputs.tokens = tokens.get();
  inputs.scales = scales.get();
  outputs.tokens = out_tokens.get();
  outputs.topk_weights = ep.rank_major ? nullptr : out_topk_weights.get();
}

ncclResult_t CombineCall::issue(Caller caller) {
  if (caller == Caller::kCurrent) return ncclEpCombine(handle, inputs_arg, outputs_arg, config_arg, stream);
  return ncclEpCombine(handle, Aged(inputs, NCCL_EP_COMBINE_INPUTS_V1_SIZE, caller).get(),
                       Aged(outputs, NCCL_EP_COMBINE_OUTPUTS_V1_SIZE, caller).get(),
                       Aged(config, NCCL_EP_COMBINE_CONFIG_V1_SIZE, caller).get(), stream);
}

bool CombineCall::untouched() const { return cudaDeviceSynchronize() == cudaSuccess && ep.outputs_untouched(); }

namespace {

// Issues one half of a round trip and waits until its outputs may be looked at. Empty, or why not.
template <class Call>
std::string run_call(Call call, const RoundTrip& how) {
  call.config.send_only = how.staged;
  const cudaStream_t last = how.staged ? how.complete_on : call.stream;
  if (call.issue(how.caller) != ncclSuccess) return ncclGetLastError(call.ep.comm);
  if (how.staged && ncclEpComplete(call.handle, nullptr, last) != ncclSuccess) return ncclGetLastError(call.ep.comm);
  const cudaError_t error = cudaStreamSynchronize(last);
  return error == cudaSuccess ? "" : std::string("the stream failed: ") + cudaGetErrorString(error);
}

}  // namespace

std::string run_round_trip(const EpRank& ep, ncclEpHandle_t handle, cudaStream_t stream, const RoundTrip& how) {
  ep.spoil_dispatch_outputs();
  std::string fault = run_call(DispatchCall(ep, handle, stream), how);
  if (fault.empty()) fault = ep.check_dispatch();
  if (!fault.empty()) return "dispatch: " + fault;
  ep.prepare_combine();
  fault = run_call(CombineCall(ep, handle, stream), how);
  if (fault.empty()) fault = ep.check_combine();
  return fault.empty() ? "" : "combine: " + fault;
}

}  // namespace switchyard::testing
