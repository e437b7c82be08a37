#include "ep/ll_harness.hpp"

#include <algorithm>

namespace switchyard::testing {
namespace {

size_t index_bytes(const oracle::Case& c) { return c.int32_indices ? sizeof(int32_t) : sizeof(int64_t); }

}  // namespace

LlScenario make_scenario(uint64_t seed, const oracle::Shape& shape, oracle::Routing routing, oracle::Fill fill,
                         oracle::Masks masks) {
  LlScenario scenario{oracle::make_case(seed, shape, routing, fill), {}, {}, {}};
  scenario.c.mask = std::move(masks);
  scenario.dispatch = oracle::expected_dispatch(scenario.c);
  scenario.outputs = oracle::make_expert_outputs(seed + 1, scenario.c, scenario.dispatch);
  scenario.combined = oracle::expected_combine(scenario.c, scenario.dispatch, scenario.outputs);
  return scenario;
}

oracle::Masks masks_of_pairs(int num_ranks, uint64_t pairs) {
  oracle::Masks masks(size_t(num_ranks), std::vector<int>(size_t(num_ranks), 1));
  for (size_t low = 0; low < size_t(num_ranks); ++low) {
    for (size_t high = low + 1; high < size_t(num_ranks); ++high, pairs >>= 1) {
      if (pairs & 1) masks[low][high] = masks[high][low] = 0;
    }
  }
  return masks;
}

std::string describe(const oracle::Shape& s, oracle::Routing routing, oracle::Fill fill) {
  std::string out = text(s.layout == oracle::Layout::kExpertMajor ? "expert-major" : "rank-major", ", ranks ",
                         s.num_ranks, ", experts ", s.num_experts, ", top-k ", s.topk, ", hidden ", s.hidden, " ",
                         dtype_name(s.dtype), ", max tokens ", s.max_tokens, ", ", oracle::routing_name(routing), ", ",
                         oracle::fill_name(fill), s.int32_indices ? ", int32 indices" : "",
                         s.id_kind == oracle::IdKind::kGlobal ? ", global ids" : "");
  if (s.dispatch_recipe == oracle::DispatchRecipe::kForward) {
    out += text(", ", s.scale_width, " forwarded scales of ", dtype_name(s.scale_dtype));
  } else if (s.dispatch_recipe == oracle::DispatchRecipe::kDsFp8) {
    out += text(", fused FP8", s.round_scales ? " with rounded scales" : "");
  }
  return out + text(", combine ", s.combine_hidden ? s.combine_hidden : s.hidden, " ", dtype_name(s.combine_dtype),
                    s.combine_recipe == oracle::CombineRecipe::kNvfp4 ? " NVFP4" : "");
}

ep::GroupConfig group_config_for(const oracle::Shape& shape) {
  ep::GroupConfig config;
  config.num_experts = uint32_t(shape.num_experts);
  config.max_tokens_per_rank = uint32_t(shape.max_tokens);
  config.max_token_bytes =
      uint32_t(std::max(shape.output_token_bytes() + shape.output_scale_bytes(), shape.combine_row_bytes()));
  config.timeout_ns = 60 * kSecond;
  return config;
}

LlRank::LlRank(Communicator& comm, StreamRef stream, const LlScenario& scenario, bool windows)
    : comm_(comm),
      stream_(stream),
      s_(scenario),
      c_(scenario.c),
      rank_(comm.rank()),
      num_tokens_(size_t(c_.num_tokens[size_t(rank_)])),
      topk_(size_t(c_.topk)),
      outer_(size_t(c_.num_blocks(rank_))),
      inner_(size_t(c_.rows_per_block())),
      num_rows_(outer_ * inner_),
      rank_major_(c_.layout == oracle::Layout::kRankMajor),
      nvfp4_(c_.combine_recipe == oracle::CombineRecipe::kNvfp4),
      tokens_(comm, num_tokens_ * c_.input_token_bytes()),
      scales_(comm, num_tokens_ * c_.input_scale_bytes()),
      indices_(comm, num_tokens_ * topk_ * index_bytes(c_)),
      weights_(comm, num_tokens_ * topk_ * sizeof(float)),
      out_tokens_(comm, num_rows_ * c_.output_token_bytes(), windows),
      out_scales_(comm, num_rows_ * c_.output_scale_bytes(), windows && c_.output_scale_bytes() > 0),
      out_idx_(comm, rank_major_ ? num_rows_ * topk_ * sizeof(int32_t) : 0),
      out_weights_(comm, rank_major_ ? num_rows_ * topk_ * sizeof(float) : 0),
      counters_(comm, outer_ * sizeof(int32_t)),
      results_(comm, num_rows_ * c_.combine_row_bytes(), windows),
      row_scales_(comm, nvfp4_ ? num_rows_ * sizeof(float) : 0),
      combined_(comm, num_tokens_ * c_.combine_row_bytes()) {
  weights_.load(c_.topk_weights[size_t(rank_)]);
  const std::vector<int64_t>& indices = c_.topk_idx[size_t(rank_)];
  if (c_.int32_indices) indices_.load(std::vector<int32_t>(indices.begin(), indices.end()));
  else indices_.load(indices);
}

Status LlRank::made() const {
  for (const Buffer* buffer : {&out_tokens_, &out_scales_, &results_}) SWITCHYARD_TRY(buffer->made());
  return {};
}

Status LlRank::open(ep::Group& group, void* handle_memory, size_t num_memory_bytes) {
  SWITCHYARD_TRY(made());
  const auto layout = rank_major_ ? ep::Layout::kRankMajor : ep::Layout::kExpertMajor;
  SWITCHYARD_ASSIGN(handle_, ep::Handle::create(group, layout, c_.topk, {0, handle_memory, num_memory_bytes}));
  return handle_->update(indices_.tensor(c_.int32_indices ? DType::kInt32 : DType::kInt64, {num_tokens_, topk_}));
}

// Fills in what the recipe needs; returns the type of the rows that arrive.
DType LlRank::describe_recipe(ep::DispatchArgs& args) {
  if (c_.dispatch_recipe == oracle::DispatchRecipe::kForward) {
    const auto width = size_t(c_.scale_width);
    args.quant = ep::DispatchQuant::kForward;
    args.scales = scales_.tensor(c_.scale_dtype, {num_tokens_, width});
    args.out_scales = out_scales_.tensor(c_.scale_dtype, {outer_, inner_, width});
  } else if (c_.dispatch_recipe == oracle::DispatchRecipe::kDsFp8) {
    args.quant = ep::DispatchQuant::kFusedFp8;
    args.round_scales = c_.round_scales;
    args.out_scales = out_scales_.tensor(DType::kFloat32, {outer_, inner_, size_t(c_.hidden) / 128});
    return DType::kFloat8E4M3;
  }
  return c_.dtype;
}

void LlRank::describe_rank_major(ep::DispatchArgs& args) {
  args.topk_weights = weights_.tensor(DType::kFloat32, {num_tokens_, topk_});
  args.out_topk_idx = out_idx_.tensor(DType::kInt32, {outer_, inner_, topk_});
  args.out_topk_weights = out_weights_.tensor(DType::kFloat32, {outer_, inner_, topk_});
  args.layout_info.src_rank_counters = counters_.tensor(DType::kInt32, {outer_});
  args.layout_info.id_kind = c_.id_kind == oracle::IdKind::kGlobal ? ep::IdKind::kGlobal : ep::IdKind::kLocal;
}

Status LlRank::post_dispatch(bool staged) {
  for (Buffer* output : {&out_tokens_, &out_scales_, &out_idx_, &out_weights_, &counters_}) output->fill(kUntouched);
  tokens_.load(c_.tokens[size_t(rank_)]);
  if (c_.input_scale_bytes() > 0) scales_.load(c_.scales[size_t(rank_)]);
  return repost_dispatch(staged);
}

Status LlRank::repost_dispatch(bool staged) {
  ep::DispatchArgs args;
  args.tokens = tokens_.tensor(c_.dtype, {num_tokens_, size_t(c_.hidden)});
  const DType arriving = describe_recipe(args);
  args.out_tokens = out_tokens_.tensor(arriving, {outer_, inner_, size_t(c_.hidden)});
  args.has_layout_info = true;
  if (rank_major_) describe_rank_major(args);
  else args.layout_info.expert_counters = counters_.tensor(DType::kInt32, {outer_});
  args.send_only = staged;
  return handle_->dispatch(args, stream_);
}

Status LlRank::post_combine(bool staged) {
  results_.fill(0x5a);
  row_scales_.fill(0);
  combined_.fill(kUntouched);
  oracle::scatter_outputs(c_, s_.outputs, rank_, results_.span(), row_scales_.span<float>());
  results_.to_device();
  row_scales_.to_device();
  return repost_combine(staged);
}

Status LlRank::repost_combine(bool staged) {
  const auto width = size_t(c_.combine_hidden ? c_.combine_hidden : c_.hidden);
  ep::CombineArgs args;
  args.tokens = results_.tensor(c_.combine_dtype, {outer_, inner_, width});
  args.out_tokens = combined_.tensor(c_.combine_dtype, {num_tokens_, width});
  args.out_topk_weights = weights_.tensor(DType::kFloat32, {num_tokens_, topk_});
  if (nvfp4_) {
    args.quant = ep::CombineQuant::kNvfp4;
    args.scales = row_scales_.tensor(DType::kFloat32, {outer_, inner_, 1});
  }
  args.send_only = staged;
  return handle_->combine(args, stream_);
}

// A stream of the host platform reports what failed in it; of a CUDA stream only the group knows.
Status LlRank::synchronize() {
  SWITCHYARD_TRY(comm_.runtime().synchronize(stream_, Deadline::after_ns(60 * kSecond)));
  return handle_->group().health();
}

std::string LlRank::check_dispatch() const {
  for (const Buffer* output : {&out_tokens_, &out_scales_, &out_idx_, &out_weights_, &counters_}) output->from_device();
  const oracle::DispatchView view{out_tokens_.span(), out_scales_.span(), counters_.span<int32_t>(),
                                  out_idx_.span<int32_t>(), out_weights_.span<float>()};
  const std::string fault = oracle::check_dispatch(c_, s_.dispatch, rank_, view, kUntouched);
  if (!fault.empty()) return "dispatch: " + fault;
  const std::string tokens_fault = out_tokens_.margin_fault("the output tokens");
  return tokens_fault.empty() ? out_scales_.margin_fault("the output scales") : tokens_fault;
}

std::string LlRank::check_combine() const {
  combined_.from_device();
  const std::string fault = oracle::check_combine(c_, rank_, s_.combined[size_t(rank_)], combined_.span());
  return fault.empty() ? "" : "combine: " + fault;
}

// What an operation reads is the caller's again when the stream is through with it, or with its send half: here it is
// overwritten at once, which shows in the results of a peer that still reads it.
Status LlRank::finish(const Status& posted, bool staged, std::initializer_list<Buffer*> inputs) {
  SWITCHYARD_TRY(posted);
  SWITCHYARD_TRY(synchronize());
  for (Buffer* input : inputs) input->fill(kOverwritten);
  if (!staged) return {};
  SWITCHYARD_TRY(complete());
  return synchronize();
}

Verdict LlRank::run_dispatch(bool staged) {
  const Status done = finish(post_dispatch(staged), staged, {&tokens_, &scales_});
  return done.ok() ? Verdict(check_dispatch()) : Verdict(done).in("dispatch");
}

Verdict LlRank::run_combine(bool staged) {
  const Status done = finish(post_combine(staged), staged, {&results_, &row_scales_});
  return done.ok() ? Verdict(check_combine()) : Verdict(done).in("combine");
}

namespace {

// A group with masks goes on without a rank that is missing, and says so: its results are then those of a mask that the
// scenario does not have.
Verdict unless_masked(const ep::Group& group, Verdict verdict) {
  if (!group.config().enable_mask) return verdict;
  const Result<int> missing = group.async_error();
  if (!missing.ok()) return missing.status();
  return missing.value() == 0 ? verdict : Status::remote("a rank was masked by the library");
}

}  // namespace

Verdict run_ll_case(Communicator& comm, StreamRef stream, const LlScenario& scenario, LlMode mode) {
  auto rank = std::make_unique<LlRank>(comm, stream, scenario, mode.windows);
  Steps steps(comm);
  ep::GroupConfig config = group_config_for(scenario.c);
  config.timeout_ns = mode.timeout_ns;
  config.enable_mask = !scenario.c.mask.empty();
  const Status made = rank->made();
  auto group = made.ok() ? ep::Group::create(comm, config) : made;
  if (steps(group) && steps(rank->open(*group.value())) && config.enable_mask) {
    steps(group.value()->mask_update(scenario.c.mask[size_t(comm.rank())].data(), stream));
  }
  for (int round = 0; round < mode.num_rounds && steps.ok(); ++round) {
    if (steps(unless_masked(*group.value(), rank->run_dispatch(mode.staged)))) {
      steps(unless_masked(*group.value(), rank->run_combine(mode.staged)));
    }
  }
  return steps.leave(std::move(group), std::move(rank));
}

}  // namespace switchyard::testing
