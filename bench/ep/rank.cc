#include "bench/ep/rank.hpp"

#include <cstring>

#include "bench/ep/check.hpp"

namespace switchyard::bench {

Result<std::unique_ptr<EpRank>> EpRank::create(const EpSpec& spec, Communicator& comm) {
  std::unique_ptr<EpRank> rank(new EpRank(spec, comm));
  SWITCHYARD_ASSIGN(rank->stream_, comm.runtime().create_stream(text("rank ", comm.rank())));
  SWITCHYARD_TRY(rank->allocate());
  SWITCHYARD_TRY(rank->fill_inputs());
  SWITCHYARD_TRY(rank->open());
  rank->describe_dispatch();
  rank->describe_combine();
  return rank;
}

EpRank::~EpRank() {
  for (auto& handle : handles_) handle.reset();
  group_.reset();  // waits for the stream
  if (stream_.handle == nullptr) return;
  if (const Status destroyed = comm_.runtime().destroy_stream(stream_); !destroyed.ok()) {
    log(LogLevel::kWarn, destroyed.to_string());
  }
}

Status EpRank::allocate() {
  const auto tokens = size_t(spec_.tokens), topk = size_t(spec_.topk);
  const size_t num_rows = plan_.num_rows();  // of all ranks: a window has one size
  const size_t num_labels = !spec_.expert_major() ? num_rows * topk : spec_.high_throughput() ? num_rows : 0;
  const bool windows = spec_.zero_copy;
  SWITCHYARD_ASSIGN(touched_, Buffer::create(comm_, 2 * kTouchedBytes));
  SWITCHYARD_ASSIGN(tokens_, Buffer::create(comm_, tokens * spec_.input_bytes()));
  SWITCHYARD_ASSIGN(indices_, Buffer::create(comm_, tokens * topk * sizeof(int64_t)));
  SWITCHYARD_ASSIGN(weights_, Buffer::create(comm_, tokens * topk * sizeof(float)));
  SWITCHYARD_ASSIGN(arrived_, Buffer::create(comm_, num_rows * spec_.arriving_bytes(), windows));
  SWITCHYARD_ASSIGN(arrived_scales_, Buffer::create(comm_, num_rows * spec_.scale_bytes(), windows && spec_.fp8()));
  SWITCHYARD_ASSIGN(arrived_indices_, Buffer::create(comm_, num_labels * sizeof(int64_t)));
  SWITCHYARD_ASSIGN(arrived_weights_, Buffer::create(comm_, num_labels * sizeof(float)));
  SWITCHYARD_ASSIGN(counters_, Buffer::create(comm_, plan_.counters(rank()).size() * sizeof(int32_t)));
  if (spec_.fp8()) {
    SWITCHYARD_ASSIGN(results_, Buffer::create(comm_, num_rows * spec_.result_bytes(), windows));
  }
  SWITCHYARD_ASSIGN(row_scales_, Buffer::create(comm_, spec_.nvfp4() ? num_rows * sizeof(float) : 0));
  SWITCHYARD_ASSIGN(combined_, Buffer::create(comm_, tokens * spec_.result_bytes()));
  return {};
}

Status EpRank::fill_inputs() {
  for (int token = 0; token < spec_.tokens; token++) {
    const std::vector<std::byte> row = token_row(spec_, plan_.routing(), rank(), token);
    std::memcpy(tokens_->row(size_t(token), row.size()), row.data(), row.size());
  }
  std::copy(plan_.experts(rank()).begin(), plan_.experts(rank()).end(), indices_->span<int64_t>().begin());
  std::copy(plan_.weights(rank()).begin(), plan_.weights(rank()).end(), weights_->span<float>().begin());
  for (const auto* input : {&tokens_, &indices_, &weights_}) SWITCHYARD_TRY((*input)->upload());
  return {};
}

Status EpRank::upload_outputs() const {
  for (const auto* output : {&arrived_, &arrived_scales_, &combined_}) SWITCHYARD_TRY((*output)->upload());
  return {};
}

Status EpRank::download_outputs() const {
  for (const auto* output :
       {&arrived_, &arrived_scales_, &arrived_indices_, &arrived_weights_, &counters_, &combined_}) {
    SWITCHYARD_TRY((*output)->download());
  }
  return {};
}

Status EpRank::open() {
  ep::GroupConfig config;
  config.num_experts = uint32_t(spec_.experts);
  config.max_tokens_per_rank = uint32_t(spec_.tokens);
  config.max_token_bytes = uint32_t(std::max(spec_.arriving_bytes() + spec_.scale_bytes(), spec_.result_bytes()));
  if (spec_.high_throughput()) {
    config.algorithm = ep::Algorithm::kHighThroughput;
    config.max_recv_tokens_per_rank = uint32_t(plan_.num_rows());
  }
  SWITCHYARD_ASSIGN(group_, ep::Group::create(comm_, config));
  const auto layout = spec_.expert_major()      ? ep::Layout::kExpertMajor
                      : spec_.high_throughput() ? ep::Layout::kFlat
                                                : ep::Layout::kRankMajor;
  for (auto& handle : handles_) {
    SWITCHYARD_ASSIGN(handle, ep::Handle::create(*group_, layout, spec_.topk));
    if (!spec_.high_throughput()) SWITCHYARD_TRY(handle->update(routing_tensor()));
  }
  return {};
}

void EpRank::describe_dispatch() {
  const size_t hidden = size_t(spec_.hidden), topk = size_t(spec_.topk), rows = plan_.num_rows();
  const DType dtype = spec_.fp8() ? DType::kFloat8E4M3 : spec_.element();
  ep::DispatchArgs& args = dispatch_args_;
  args.tokens = tokens_->tensor(spec_.element(), {size_t(spec_.tokens), hidden});
  if (spec_.fp8()) args.quant = ep::DispatchQuant::kFusedFp8;
  if (!spec_.expert_major() || spec_.high_throughput()) {
    args.topk_weights = weights_->tensor(DType::kFloat32, {size_t(spec_.tokens), topk});
  }
  if (spec_.high_throughput()) {
    update_info_.emplace().expert_counters = counters_->tensor(DType::kInt32, {plan_.counters(rank()).size()});
    args.out_tokens = arrived_->tensor(dtype, {rows, hidden});
    if (spec_.expert_major()) {
      args.out_topk_weights = arrived_weights_->tensor(DType::kFloat32, {rows});
    } else {
      args.out_topk_weights = arrived_weights_->tensor(DType::kFloat32, {rows, topk});
      args.out_topk_idx = arrived_indices_->tensor(DType::kInt64, {rows, topk});
    }
    return;
  }
  const size_t outer = spec_.outer(rank()), inner = spec_.inner();
  args.out_tokens = arrived_->tensor(dtype, {outer, inner, hidden});
  if (spec_.fp8()) args.out_scales = arrived_scales_->tensor(DType::kFloat32, {outer, inner, spec_.num_scales()});
  args.has_layout_info = true;
  if (spec_.expert_major()) {
    args.layout_info.expert_counters = counters_->tensor(DType::kInt32, {outer});
  } else {
    args.out_topk_idx = arrived_indices_->tensor(DType::kInt32, {outer, inner, topk});
    args.out_topk_weights = arrived_weights_->tensor(DType::kFloat32, {outer, inner, topk});
    args.layout_info.src_rank_counters = counters_->tensor(DType::kInt32, {outer});
  }
}

void EpRank::describe_combine() {
  const size_t outer = spec_.outer(rank()), inner = spec_.inner(), hidden = size_t(spec_.hidden);
  ep::CombineArgs& args = combine_args_;
  args.out_tokens = combined_->tensor(spec_.element(), {size_t(spec_.tokens), hidden});
  if (spec_.high_throughput()) {
    args.tokens = results().tensor(spec_.element(), {plan_.num_rows(), hidden});
    return;
  }
  args.tokens = results().tensor(spec_.element(), {outer, inner, hidden});
  args.out_topk_weights = weights_->tensor(DType::kFloat32, {size_t(spec_.tokens), size_t(spec_.topk)});
  if (spec_.nvfp4()) {
    args.quant = ep::CombineQuant::kNvfp4;
    args.scales = row_scales_->tensor(DType::kFloat32, {outer, inner, 1});
  }
}

[[gnu::hot]] Status EpRank::post_dispatch(bool send_only, int handle_idx) {
  ep::Handle& handle = *handles_[size_t(handle_idx)];
  if (update_info_) SWITCHYARD_TRY(handle.update(routing_tensor(), *update_info_, stream_ref()));
  dispatch_args_.send_only = send_only;
  return handle.dispatch(dispatch_args_, stream_ref());
}

Status EpRank::post_combine() { return handles_[0]->combine(combine_args_, stream_ref()); }

Status EpRank::prepare_results() {
  SWITCHYARD_TRY(download_outputs());
  const auto hidden = size_t(spec_.hidden);
  for (const RowRoute& route : plan_.rows()) {
    if (route.owner != rank()) continue;
    if (spec_.fp8()) {
      const auto* codes = reinterpret_cast<const uint8_t*>(arrived_->row(route.row, spec_.arriving_bytes()));
      const auto* scales = reinterpret_cast<const float*>(arrived_scales_->row(route.row, spec_.scale_bytes()));
      dequantise_fp8_row(codes, scales, reinterpret_cast<uint16_t*>(results_->row(route.row, spec_.result_bytes())),
                         hidden);
    } else if (spec_.nvfp4()) {
      const auto* row = reinterpret_cast<const uint16_t*>(arrived_->row(route.row, spec_.arriving_bytes()));
      row_scales_->span<float>()[route.row] = nvfp4_row_scale_of(row, hidden);
    }
  }
  if (results_) SWITCHYARD_TRY(results_->upload());
  return row_scales_->upload();
}

}  // namespace switchyard::bench
