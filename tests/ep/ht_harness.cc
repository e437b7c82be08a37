#include "ep/ht_harness.hpp"

#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "oracle/rows.hpp"
#include "platform/host/stream.hpp"

namespace switchyard::testing {
namespace {

using oracle::HtLayout;

constexpr int64_t kUntouchedCounter = std::numeric_limits<int64_t>::min();
constexpr size_t kSpareCounters = 2;

size_t index_bytes(const oracle::HtCase& c) { return c.int32_indices ? sizeof(int32_t) : sizeof(int64_t); }

// Rows of every output tensor: those that the library may ask for, and the spare ones.
size_t num_output_rows(const HtScenario& s, int rank, const HtMode& mode) {
  const size_t required = s.c.budget > 0 ? size_t(s.c.budget) : s.dispatch.ranks[size_t(rank)].rows.size();
  return size_t(int64_t(required) + mode.num_spare_rows);
}

// Of a buffer that is too small on purpose, as much as there is room for.
template <class T>
void load_prefix(Buffer& buffer, std::vector<T> values) {
  values.resize(std::min(values.size(), buffer.span<T>().size()));
  buffer.load(values);
}

template <class T>
void widen(const Buffer& buffer, std::vector<int64_t>& values) {
  T untouched;
  std::fill_n(reinterpret_cast<uint8_t*>(&untouched), sizeof untouched, kUntouched);
  for (const T value : buffer.span<T>()) values.push_back(value == untouched ? kUntouchedCounter : int64_t(value));
}

std::vector<int64_t> widened(const Buffer& buffer, DType dtype) {
  buffer.from_device();
  std::vector<int64_t> values;
  if (dtype == DType::kInt64) widen<int64_t>(buffer, values);
  else widen<int32_t>(buffer, values);
  return values;
}

// Other tokens and scales over the same routing.
oracle::HtCase with_other_tokens(oracle::HtCase c) {
  for (auto* inputs : {&c.tokens, &c.scales}) {
    for (std::vector<uint8_t>& bytes : *inputs) {
      for (uint8_t& byte : bytes) byte = uint8_t(byte ^ 0x3c);
    }
  }
  return c;
}

}  // namespace

HtScenario make_ht_scenario(uint64_t seed, const oracle::HtCase& c) {
  HtScenario scenario{.c = c, .named_idx = c.topk_idx, .overflowing = {}, .dispatch = {}, .contents = {}};
  scenario.contents[0].c = c;
  scenario.contents[1].c = with_other_tokens(c);
  if (oracle::traps(c)) {
    scenario.overflowing = oracle::find_overflowing(c);
    return scenario;
  }
  scenario.dispatch = oracle::expected_ht_dispatch(c);
  for (HtContents& contents : scenario.contents) {
    contents.outputs = oracle::make_ht_outputs(++seed, c, scenario.dispatch);
    contents.combined = oracle::expected_ht_combine(c, scenario.dispatch, contents.outputs);
  }
  return scenario;
}

HtScenario make_ht_scenario(uint64_t seed, const oracle::HtShape& shape, oracle::Routing routing, oracle::Fill fill,
                            oracle::Budget budget) {
  return make_ht_scenario(seed, oracle::make_ht_case(seed, shape, routing, fill, budget));
}

std::string describe(const oracle::HtShape& s, oracle::Routing routing, oracle::Fill fill, oracle::Budget budget) {
  std::string out =
      text(s.layout == HtLayout::kFlat ? "flat" : text("expert-major by ", s.alignment), ", ranks ", s.num_ranks,
           ", experts ", s.num_experts, ", top-k ", s.topk, ", hidden ", s.hidden, " ", dtype_name(s.dtype),
           ", max tokens ", s.max_tokens, ", ", oracle::routing_name(routing), ", ", oracle::fill_name(fill), ", ",
           oracle::budget_name(budget), s.overflow == oracle::Overflow::kDrop ? " dropping" : "",
           s.int32_indices ? ", int32 indices" : "", s.id_kind == oracle::IdKind::kGlobal ? ", global ids" : "");
  if (s.dispatch_recipe == oracle::DispatchRecipe::kForward) {
    out += text(", ", s.scale_width, " forwarded scales of ", dtype_name(s.scale_dtype));
  }
  out += text(", combine ", s.combine_hidden ? s.combine_hidden : s.hidden, " ", dtype_name(s.combine_dtype));
  if (!s.node_of_rank.empty()) out += ", nodes";
  for (const int node : s.node_of_rank) out += text(" ", node);
  return out;
}

std::string HtMode::name() const {
  return text(windows ? ", windows" : "", plain_ranks ? text(" but of ranks ", plain_ranks) : "",
              zero_copy == ep::ZeroCopy::kOn ? " required" : "", backward ? "" : ", forward only",
              pipelined ? ", pipelined" : "", ", rounds ", num_rounds, updates_once ? " on one update" : "",
              ", spare rows ", num_spare_rows, int64_counters ? ", int64 counters" : "",
              expert_counters ? "" : ", no expert counters", expert_offsets ? "" : ", no offsets",
              recv_total ? "" : ", no total");
}

ep::GroupConfig group_config_for(const oracle::HtShape& shape, const HtMode& mode) {
  ep::GroupConfig config;
  config.algorithm = ep::Algorithm::kHighThroughput;
  config.num_experts = uint32_t(shape.num_experts);
  config.max_tokens_per_rank = uint32_t(shape.max_tokens);
  config.max_recv_tokens_per_rank = uint32_t(shape.budget);
  config.overflow = shape.overflow == oracle::Overflow::kDrop ? ep::Overflow::kDrop : ep::Overflow::kTrap;
  config.max_token_bytes = uint32_t(
      round_up(std::max(shape.input_token_bytes() + shape.input_scale_bytes(), shape.combine_row_bytes()), 16));
  // Eager expert-major groups must say it; others may.
  if (shape.budget == 0) config.num_topk = uint32_t(shape.topk);
  config.timeout_ns = mode.timeout_ns;
  const bool all_windows = mode.windows && mode.plain_ranks == 0;
  config.zero_copy = mode.zero_copy.value_or(all_windows ? ep::ZeroCopy::kOn : ep::ZeroCopy::kAuto);
  return config;
}

HtRank::HtRank(Communicator& comm, StreamRef stream, const HtScenario& scenario, const HtMode& mode)
    : comm_(comm),
      stream_(stream),
      s_(scenario),
      c_(scenario.c),
      mode_(mode),
      rank_(comm.rank()),
      flat_(c_.layout == HtLayout::kFlat),
      counter_type_(mode.int64_counters ? DType::kInt64 : DType::kInt32),
      expert_counter_type_(flat_ ? DType::kInt32 : counter_type_),
      num_tokens_(size_t(c_.num_tokens[size_t(rank_)])),
      topk_(size_t(c_.topk)),
      num_local_(size_t(c_.num_local(rank_))),
      num_rows_(num_output_rows(scenario, rank_, mode)),
      num_beside_rows_(num_rows_ + (mode.num_spare_rows > 0 ? 1 : 0)),
      tokens_(comm, num_tokens_ * c_.input_token_bytes()),
      scales_(comm, num_tokens_ * c_.input_scale_bytes()),
      indices_(comm, num_tokens_ * topk_ * index_bytes(c_)),
      weights_(comm, num_tokens_ * topk_ * sizeof(float)),
      expert_counters_(comm, (num_local_ + kSpareCounters) * dtype_bytes(expert_counter_type_)),
      expert_offsets_(comm, (num_local_ + kSpareCounters) * dtype_bytes(counter_type_)),
      recv_total_(comm, (1 + kSpareCounters) * dtype_bytes(counter_type_)),
      out_tokens_(comm, num_rows_ * c_.input_token_bytes(), mode.windows),
      out_scales_(comm, num_rows_ * c_.input_scale_bytes(), mode.windows && c_.input_scale_bytes() > 0),
      out_idx_(comm, flat_ ? num_beside_rows_ * topk_ * sizeof(int64_t) : 0),
      out_weights_(comm, num_beside_rows_ * size_t(c_.weights_per_row()) * sizeof(float)),
      results_(comm, num_rows_ * c_.combine_row_bytes(), mode.windows),
      gradients_(comm, num_rows_ * size_t(c_.weights_per_row()) * sizeof(float)),
      combined_(comm, num_tokens_ * c_.combine_row_bytes()),
      out_gradients_(comm, num_tokens_ * topk_ * sizeof(float)) {
  weights_.load(c_.topk_weights[size_t(rank_)]);
}

Status HtRank::made() const {
  for (const Buffer* buffer : {&out_tokens_, &out_scales_, &results_}) SWITCHYARD_TRY(buffer->made());
  return {};
}

Status HtRank::open(ep::Group& group, void* handle_memory, size_t num_memory_bytes) {
  SWITCHYARD_TRY(made());
  const ep::HandleConfig config{
      .expert_alignment = size_t(c_.alignment), .memory = handle_memory, .num_memory_bytes = num_memory_bytes};
  const auto layout = flat_ ? ep::Layout::kFlat : ep::Layout::kExpertMajor;
  SWITCHYARD_ASSIGN(handle_, ep::Handle::create(group, layout, c_.topk, config));
  return {};
}

// A plain tensor without rows has no memory.
ep::Tensor HtRank::tensor_of(const Buffer& buffer, DType dtype, size_t num_rows, size_t width) const {
  const ep::Tensor tensor = buffer.tensor(dtype, {num_rows, width});
  const bool is_plain = tensor.window == nullptr || (mode_.plain_ranks >> rank_ & 1) != 0;
  return is_plain ? ep::Tensor::of(num_rows > 0 ? tensor.data : nullptr, dtype, {num_rows, width}) : tensor;
}

ep::Tensor HtRank::vector_of(const Buffer& buffer, DType dtype, size_t num_elements) const {
  return ep::Tensor::of(num_elements > 0 ? buffer.tensor(dtype, {num_elements}).data : nullptr, dtype, {num_elements});
}

// ---- update ----

ep::LayoutInfo HtRank::layout_info() const {
  ep::LayoutInfo info;
  if (mode_.expert_counters) {
    info.expert_counters = expert_counters_.tensor(expert_counter_type_, {num_local_ + kSpareCounters});
  }
  if (mode_.expert_offsets && !flat_) {
    info.expert_offsets = expert_offsets_.tensor(counter_type_, {num_local_ + kSpareCounters});
  }
  if (mode_.recv_total) info.recv_total_counter = recv_total_.tensor(counter_type_, {1 + kSpareCounters});
  return info;
}

Status HtRank::post_update() {
  for (Buffer* output : {&expert_counters_, &expert_offsets_, &recv_total_}) output->fill(kUntouched);
  const std::vector<int64_t>& indices = s_.named_idx[size_t(rank_)];
  if (c_.int32_indices) indices_.load(std::vector<int32_t>(indices.begin(), indices.end()));
  else indices_.load(indices);
  const DType type = c_.int32_indices ? DType::kInt32 : DType::kInt64;
  return handle_->update(tensor_of(indices_, type, num_tokens_, topk_), layout_info(), stream_);
}

std::string HtRank::check_update() const {
  const auto asked = [](bool wanted, const Buffer& buffer, DType dtype) {
    return wanted ? widened(buffer, dtype) : std::vector<int64_t>{};
  };
  const auto counters = asked(mode_.expert_counters, expert_counters_, expert_counter_type_);
  const auto offsets = asked(mode_.expert_offsets && !flat_, expert_offsets_, counter_type_);
  const auto total = asked(mode_.recv_total, recv_total_, counter_type_);
  const std::string fault =
      oracle::check_ht_counters(s_.dispatch, rank_, {counters, offsets, total}, kUntouchedCounter);
  return fault.empty() ? "" : "update: " + fault;
}

// The indices are the caller's again: dispatches and combines use a copy.
Verdict HtRank::run_update() {
  const Status done = finish(post_update(), {&indices_});
  return done.ok() ? Verdict(check_update()) : Verdict(done).in("update");
}

// ---- dispatch ----

Status HtRank::post_dispatch(Pass pass) {
  for (Buffer* output : {&out_tokens_, &out_scales_, &out_idx_, &out_weights_}) output->fill(kUntouched);
  const oracle::HtCase& sent = contents(pass).c;
  tokens_.load(sent.tokens[size_t(rank_)]);
  ep::DispatchArgs args;
  args.direction = pass;
  args.tokens = tensor_of(tokens_, c_.dtype, num_tokens_, size_t(c_.hidden));
  args.out_tokens = tensor_of(out_tokens_, c_.dtype, num_rows_, size_t(c_.hidden));
  if (c_.dispatch_recipe == oracle::DispatchRecipe::kForward) {
    scales_.load(sent.scales[size_t(rank_)]);
    args.quant = ep::DispatchQuant::kForward;
    args.scales = tensor_of(scales_, c_.scale_dtype, num_tokens_, size_t(c_.scale_width));
    args.out_scales = tensor_of(out_scales_, c_.scale_dtype, num_rows_, size_t(c_.scale_width));
  }
  if (pass == Pass::kForward) {
    args.topk_weights = tensor_of(weights_, DType::kFloat32, num_tokens_, topk_);
    if (flat_) {
      args.out_topk_idx = tensor_of(out_idx_, DType::kInt64, num_beside_rows_, topk_);
      args.out_topk_weights = tensor_of(out_weights_, DType::kFloat32, num_beside_rows_, topk_);
    } else {
      args.out_topk_weights = vector_of(out_weights_, DType::kFloat32, num_beside_rows_);
    }
  }
  // LOCAL is what one gets without saying so.
  args.has_layout_info = c_.id_kind == oracle::IdKind::kGlobal;
  if (args.has_layout_info) args.layout_info.id_kind = ep::IdKind::kGlobal;
  return handle_->dispatch(args, stream_);
}

std::string HtRank::check_dispatch(Pass pass) const {
  for (const Buffer* output : {&out_tokens_, &out_scales_, &out_idx_, &out_weights_}) output->from_device();
  const oracle::HtDispatchView view{out_tokens_.span(), out_scales_.span(), out_idx_.span<int64_t>(),
                                    out_weights_.span<float>(), pass == Pass::kBackward};
  std::string fault = oracle::check_ht_dispatch(contents(pass).c, s_.dispatch, rank_, view, kUntouched);
  if (fault.empty()) fault = out_tokens_.margin_fault("the output tokens");
  if (fault.empty()) fault = out_scales_.margin_fault("the output scales");
  if (fault.empty()) return "";
  return text(pass == Pass::kBackward ? "backward " : "", "dispatch: ", fault);
}

Verdict HtRank::run_dispatch(Pass pass) {
  const Status done = finish(post_dispatch(pass), {&tokens_, &scales_});
  return done.ok() ? Verdict(check_dispatch(pass)) : Verdict(done).in("dispatch");
}

// ---- combine ----

Status HtRank::post_combine(Pass pass) {
  const HtContents& returned = contents(pass);
  for (Buffer* input : {&results_, &gradients_}) input->fill(0xff);  // NaN
  if (!s_.dispatch.ranks.empty()) {
    load_prefix(results_, returned.outputs.rows[size_t(rank_)]);
    load_prefix(gradients_, returned.outputs.weight_gradients[size_t(rank_)]);
  }
  for (Buffer* output : {&combined_, &out_gradients_}) output->fill(kUntouched);
  const auto width = size_t(c_.combine_hidden ? c_.combine_hidden : c_.hidden);
  ep::CombineArgs args;
  args.direction = pass;
  args.tokens = tensor_of(results_, c_.combine_dtype, num_rows_, width);
  args.out_tokens = tensor_of(combined_, c_.combine_dtype, num_tokens_, width);
  if (pass == Pass::kBackward) {
    args.topk_weights = flat_ ? tensor_of(gradients_, DType::kFloat32, num_rows_, topk_)
                              : vector_of(gradients_, DType::kFloat32, num_rows_);
    args.out_topk_weights = tensor_of(out_gradients_, DType::kFloat32, num_tokens_, topk_);
  }
  return handle_->combine(args, stream_);
}

std::string HtRank::check_combine(Pass pass) const {
  for (const Buffer* output : {&combined_, &out_gradients_}) output->from_device();
  const oracle::HtCombine& wanted = contents(pass).combined;
  std::string fault = oracle::check_combine(c_, rank_, wanted.tokens[size_t(rank_)], combined_.span());
  if (fault.empty() && pass == Pass::kBackward) {
    fault = oracle::check_ht_gradients(c_, rank_, wanted.weight_gradients[size_t(rank_)], out_gradients_.span<float>());
  }
  if (fault.empty()) return "";
  return text(pass == Pass::kBackward ? "backward " : "", "combine: ", fault);
}

Verdict HtRank::run_combine(Pass pass) {
  const Status done = finish(post_combine(pass), {&results_, &gradients_});
  return done.ok() ? Verdict(check_combine(pass)) : Verdict(done).in("combine");
}

// ---- both ----

std::array<Buffer*, 6> HtRank::outputs() {
  return {&out_tokens_, &out_scales_, &out_idx_, &out_weights_, &combined_, &out_gradients_};
}

// A stream of the host platform reports what failed in it; of a CUDA stream only the group knows.
Status HtRank::synchronize() {
  SWITCHYARD_TRY(comm_.runtime().synchronize(stream_, Deadline::after_ns(60 * kSecond)));
  return handle_->group().health();
}

// What an operation reads is the caller's again when the stream is through with it: here it is overwritten at once,
// which shows in the results of a peer that still reads it.
Status HtRank::finish(const Status& posted, std::initializer_list<Buffer*> inputs) {
  SWITCHYARD_TRY(posted);
  SWITCHYARD_TRY(synchronize());
  for (Buffer* input : inputs) input->fill(kOverwritten);
  return {};
}

// ---- overflow ----

// Of the stream, which says why, or else of the call, which only knows that something failed before.
Status HtRank::take_ending(const Status& posted) {
  Status done = comm_.runtime().synchronize(stream_, Deadline::after_ns(60 * kSecond));
  if (comm_.runtime().device().kind == DeviceKind::kHost) done = static_cast<Stream*>(stream_.handle)->take_error();
  return done.ok() ? posted : done;
}

std::string HtRank::failure_fault(const Status& status) const {
  if (status.ok()) return "an update succeeded though rows overflow";
  for (const oracle::HtOverflowing& over : s_.overflowing) {
    const std::string wanted = text("rank ", over.rank, " would receive ", over.num_total,
                                    " rows, max_recv_tokens_per_rank is ", c_.budget, ":");
    if (status.message().find(wanted) != std::string::npos) return "";
  }
  return "an update does not name an overflowing rank, its rows and the budget: " + status.to_string();
}

std::string HtRank::check_untouched() {
  for (const Buffer* output : outputs()) {
    output->from_device();
    if (!std::ranges::all_of(output->span(), [](uint8_t byte) { return byte == kUntouched; })) {
      return "an operation that failed wrote an output";
    }
  }
  return "";
}

Verdict HtRank::run_trapped_update(bool pipelined) {
  for (Buffer* output : outputs()) output->fill(kUntouched);
  std::string fault;
  if (pipelined) {
    Status posted = post_update();
    if (posted.ok()) posted = post_dispatch(Pass::kForward);
    if (posted.ok()) posted = post_combine(Pass::kForward);
    fault = failure_fault(take_ending(posted));
  } else {
    fault = failure_fault(take_ending(post_update()));
    if (fault.empty() && take_ending(post_dispatch(Pass::kForward)).ok())
      fault = "a dispatch succeeded without a plan";
    if (fault.empty() && take_ending(post_combine(Pass::kForward)).ok()) fault = "a combine succeeded without a plan";
  }
  // What ended the group comes before what was then said of the overflow.
  if (const Status health = handle_->group().health(); !health.ok()) {
    return Verdict(health).in("the group does not survive an overflow");
  }
  return fault.empty() ? check_untouched() : fault;
}

// ---- cases ----

bool run_ht_round(Steps& steps, HtRank& rank, const HtMode& mode, bool updates) {
  using enum ep::PassDirection;
  if (mode.pipelined) {
    if (updates) steps(rank.post_update());
    steps.ok() && steps(rank.post_dispatch(kForward)) && steps(rank.post_combine(kForward)) &&
        steps(rank.synchronize()) && (!updates || steps(rank.check_update())) && steps(rank.check_dispatch(kForward)) &&
        steps(rank.check_combine(kForward));
    if (!mode.backward || !steps.ok()) return steps.ok();
    return steps(rank.post_dispatch(kBackward)) && steps(rank.post_combine(kBackward)) && steps(rank.synchronize()) &&
           steps(rank.check_dispatch(kBackward)) && steps(rank.check_combine(kBackward));
  }
  if (updates) steps(rank.run_update());
  steps.ok() && steps(rank.run_dispatch(kForward)) && steps(rank.run_combine(kForward));
  if (!mode.backward || !steps.ok()) return steps.ok();
  return steps(rank.run_dispatch(kBackward)) && steps(rank.run_combine(kBackward));
}

Verdict run_ht_case(Communicator& comm, StreamRef stream, const HtScenario& scenario, const HtMode& mode) {
  Steps steps(comm);
  const ep::GroupConfig config = group_config_for(scenario.c, mode);
  const bool traps = !scenario.overflowing.empty();
  const HtScenario fitting = traps ? make_ht_scenario(1, oracle::fit_to_budget(scenario.c)) : HtScenario{};
  auto rank = std::make_unique<HtRank>(comm, stream, traps ? fitting : scenario, mode);
  auto overflowing = traps ? std::make_unique<HtRank>(comm, stream, scenario, mode) : nullptr;
  const Status made = rank->made();
  auto group = made.ok() ? ep::Group::create(comm, config) : made;
  if (steps(group) && steps((traps ? overflowing : rank)->open(*group.value())) && traps) {
    if (steps(overflowing->run_trapped_update(mode.pipelined))) rank->take_handle(*overflowing);
  }
  for (int round = 0; round < mode.num_rounds && steps.ok(); ++round) {
    rank->start_round(round);
    run_ht_round(steps, *rank, mode, round == 0 || !mode.updates_once);
  }
  return traps ? steps.leave(std::move(group), std::move(rank), std::move(overflowing))
               : steps.leave(std::move(group), std::move(rank));
}

}  // namespace switchyard::testing
