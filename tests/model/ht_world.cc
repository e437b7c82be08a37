#include "model/ht_world.hpp"

#include <algorithm>
#include <limits>

#include "model/rows.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

using ep::HtKind;
using ep::kNumBanks;
using ep::PeerLine;

constexpr uint32_t kControlId = 1, kPayloadId = 2;  // windows, as the network knows them

// Where a rank's tensors begin in their windows: every rank has a place of its own.
size_t margin(int rank) { return size_t(rank + 1) * sizeof(Cell); }

float weight_of(int rank, int token, int k) { return float(rank * 64 + token * 8 + k + 1); }

}  // namespace

HtWorld::HtWorld(Arena& arena, const HtCase& c) : c_(c), nodes_(c.nodes), ranks_(size_t(c.num_ranks())) {
  for (const char route : c_.routes) plans_.emplace_back(c_, route);
  steps_ = parse_script();
  make_layouts();
  make_tables(arena);
  for (int rank = 0; rank < c_.num_ranks(); ++rank) make_rank(arena, rank);
  for (int rank = 0; rank < c_.num_ranks(); ++rank) {
    connect(rank);
    for (const HtStep& step : steps_) ranks_[size_t(rank)].ops.push_back(make_op(rank, step));
  }
}

std::vector<HtStep> HtWorld::parse_script() const {
  const bool has_updates = c_.script.find('U') != std::string::npos;
  std::vector<HtStep> steps;
  uint64_t tag = kNumBanks;  // before the first operation
  uint64_t sent = 0;
  int plan = c_.script[0] == 'C' || c_.script[0] == 'c' ? 0 : -1;
  for (const char letter : c_.script) {
    const bool is_dispatch = letter == 'D' || letter == 'd';
    const HtKind kind = letter == 'U' ? HtKind::kRoute : is_dispatch ? HtKind::kDispatch : HtKind::kCombine;
    ++tag;
    if (letter == 'U' || (is_dispatch && !has_updates)) ++plan;
    if (is_dispatch) sent = tag;
    steps.push_back({kind, letter == 'd' || letter == 'c', plan, tag, sent});
  }
  return steps;
}

void HtWorld::make_layouts() {
  const int num_ranks = c_.num_ranks(), spans_nodes = nodes_.num_nodes() > 1;
  const int max_slots =
      num_ranks * c_.num_tokens * std::min(c_.topk, c_.num_local) + c_.num_local * (HtCase::kAlignment - 1);
  layout_ = {num_ranks, c_.num_tokens, spans_nodes, uint64_t(max_slots), sizeof(Cell), c_.chunk_bytes};
  control_layout_ = {num_ranks, ep::HtBoard{c_.num_local}.num_words(), spans_nodes};
}

void HtWorld::make_tables(Arena& arena) {
  const auto num_ranks = size_t(c_.num_ranks()), num_experts = size_t(c_.num_experts());
  owner_ = arena.make_array<int32_t>(num_experts);
  local_ = arena.make_array<int32_t>(num_experts);
  for (int expert = 0; expert < c_.num_experts(); ++expert) {
    owner_[expert] = owner(expert);
    local_[expert] = expert % c_.num_local;
  }
  abort_ = arena.make<uint32_t>();
  peer_state_ = arena.make_array<uint32_t>(num_ranks);  // nobody is gone
  zeros_ = make_bytes(arena, sizeof(Cell));
  arena.set_constant(owner_, num_experts * sizeof *owner_);
  arena.set_constant(local_, num_experts * sizeof *local_);
  arena.set_constant(abort_, sizeof *abort_);
  arena.set_constant(peer_state_, num_ranks * sizeof *peer_state_);
  arena.set_constant(zeros_, sizeof(Cell));
}

void HtWorld::make_rank(Arena& arena, int rank) {
  Rank& own = ranks_[size_t(rank)];
  const auto num_ranks = size_t(c_.num_ranks());
  own.control = make_bytes(arena, control_layout_.num_bytes());
  own.payload = make_bytes(arena, layout_.payload_bytes());
  ep::HtState state{};
  state.tag = state.base = kNumBanks;  // as Group::make_control() does
  own.state = arena.make<ep::HtState>(state);
  own.report = arena.make<ep::Report>();
  own.mask = arena.make_array<int32_t>(num_ranks);
  std::fill_n(own.mask, num_ranks, 1);
  own.numbers = arena.make_array<int32_t>(size_t(ep::HtNumbers{c_.num_ranks(), c_.num_experts()}.num_words()));
  own.rail_ends.resize(2 * num_ranks);
  const std::vector<int32_t> sources = nodes_.rail_sources(rank);
  own.rail_sources = arena.make_array<int32_t>(num_ranks);
  std::copy(sources.begin(), sources.end(), own.rail_sources);
  make_tensors(arena, rank);
  for (int handle = 0; handle < kNumHandles; ++handle) make_handle(arena, rank, handle);
  declare_uses(arena, rank);
  declare_lines(arena, rank);
}

// visit(source, token, k, entry) for each of the rank's rows, in the order of its sources.
template <class Visit>
void HtWorld::for_each_row(const HtStep& step, int rank, Visit visit) const {
  for (int source = 0; source < c_.num_ranks(); ++source) {
    for (int token = 0; token < c_.num_tokens; ++token) {
      for (int k = 0; k < c_.topk; ++k) {
        const HtPlan::Entry& entry = plan_of(step).entry(source, token, k);
        if (entry.slot >= 0 && owner(entry.expert) == rank) visit(source, token, k, entry);
      }
    }
  }
}

void HtWorld::make_tensors(Arena& arena, int rank) {
  Rank& own = ranks_[size_t(rank)];
  const auto num_tokens = size_t(c_.num_tokens), num_entries = num_tokens * size_t(c_.topk);
  own.tokens = make_bytes(arena, num_tokens * sizeof(Cell));
  own.combined = make_bytes(arena, num_tokens * sizeof(Cell));
  own.received = make_bytes(arena, margin(rank) + layout_.max_slots * sizeof(Cell)) + margin(rank);
  own.results = make_bytes(arena, margin(rank) + layout_.max_slots * sizeof(Cell)) + margin(rank);
  own.weights = arena.make_array<float>(num_entries);
  own.gradients = arena.make_array<float>(num_entries);
  own.received_weights = arena.make_array<float>(layout_.max_slots * size_t(c_.topk));
  own.result_gradients = arena.make_array<float>(layout_.max_slots * size_t(c_.topk));
  own.received_ids = arena.make_array<int64_t>(layout_.max_slots * size_t(c_.topk));
  for (int entry = 0; entry < int(num_entries); ++entry) {
    own.weights[entry] = weight_of(rank, entry / c_.topk, entry % c_.topk);
  }
  if (steps_.front().kind == HtKind::kCombine) {  // there was a dispatch before
    for_each_row(steps_.front(), rank, [&](int source, int token, int, const HtPlan::Entry& entry) {
      const uint64_t code = token_code(steps_.front().sent, source, token);
      *cell_at(own.received, entry.slot) = {code, code};
    });
  }
  arena.name(own.received, text("received[rank ", rank, "]"));
  arena.name(own.results, text("results[rank ", rank, "]"));
}

void HtWorld::make_handle(Arena& arena, int rank, int handle_idx) {
  Handle& handle = ranks_[size_t(rank)].handles[handle_idx];
  const HtPlan& plan = plans_[size_t(handle_idx) % plans_.size()];
  handle.expected = plan.record(rank, uint64_t(handle_idx) + 1);
  handle.record = reinterpret_cast<int32_t*>(make_bytes(arena, handle.expected.size() * sizeof(int32_t)));
  if (steps_.front().kind != HtKind::kRoute) std::copy(handle.expected.begin(), handle.expected.end(), handle.record);
  const int num_entries = c_.num_tokens * c_.topk;
  handle.routing = arena.make_array<int32_t>(size_t(num_entries));
  for (int entry = 0; entry < num_entries; ++entry) {
    handle.routing[entry] = plan.entry(rank, entry / c_.topk, entry % c_.topk).expert;
  }
  handle.total = arena.make<int32_t>();
  arena.set_constant(handle.routing, size_t(num_entries) * sizeof *handle.routing);
  arena.set_private(handle.record, handle.expected.size() * sizeof(int32_t), rank);
  arena.set_private(handle.total, sizeof *handle.total, rank);
}

// What a rank keeps for itself, or alone touches because nobody is on its node.
void HtWorld::declare_uses(Arena& arena, int rank) {
  Rank& own = ranks_[size_t(rank)];
  const auto num_ranks = size_t(c_.num_ranks());
  const auto num_rows = layout_.max_slots, num_of_rows = num_rows * size_t(c_.topk);
  const auto num_entries = size_t(c_.num_tokens * c_.topk);
  const auto keep = [&](const void* object, size_t num_bytes) { arena.set_private(object, num_bytes, rank); };
  keep(own.state, sizeof *own.state);
  keep(own.report, sizeof *own.report);
  keep(own.mask, num_ranks * sizeof *own.mask);
  keep(own.numbers, sizeof(int32_t) * size_t(ep::HtNumbers{c_.num_ranks(), c_.num_experts()}.num_words()));
  keep(own.tokens, size_t(c_.num_tokens) * sizeof(Cell));
  keep(own.combined, size_t(c_.num_tokens) * sizeof(Cell));
  keep(own.received_weights, num_of_rows * sizeof(float));
  keep(own.received_ids, num_of_rows * sizeof(int64_t));
  keep(own.result_gradients, num_of_rows * sizeof(float));
  keep(own.gradients, num_entries * sizeof(float));
  arena.set_constant(own.weights, num_entries * sizeof(float));
  arena.set_constant(own.rail_sources, num_ranks * sizeof *own.rail_sources);
  if (!c_.in_place || is_alone(rank)) {
    keep(own.received, num_rows * sizeof(Cell));
    keep(own.results, num_rows * sizeof(Cell));
  }
  if (is_alone(rank)) keep(own.payload + layout_.gradients(), num_of_rows * sizeof(float));
  const std::vector<int32_t> forwarded = nodes_.rail_sources(rank);
  for (int source = 0; source < c_.num_ranks(); ++source) {
    arena.name(own.payload + layout_.inbox(source), text("inbox[", source, " -> ", rank, "]"));
    arena.name(own.payload + layout_.meta(source), text("meta[", source, " -> ", rank, "]"));
    if (source != rank && std::find(forwarded.begin(), forwarded.end(), source) == forwarded.end()) continue;
    keep(own.payload + layout_.inbox(source), layout_.inbox(1));
    keep(own.payload + layout_.meta(source), layout_.meta(1) - layout_.meta(0));
  }
  arena.name(own.payload + layout_.outbox(), text("outbox[rank ", rank, "]"));
  arena.name(own.payload + layout_.gradients(), text("gradients[rank ", rank, "]"));
  for (int peer = 0; peer < c_.num_ranks() && layout_.spans_nodes; ++peer) {
    arena.name(own.payload + layout_.transit(peer), text("transit[", peer, " -> ", rank, "]"));
    arena.name(own.payload + layout_.departure(peer), text("departure[", rank, " -> ", peer, "]"));
  }
}

void HtWorld::declare_lines(Arena& arena, int rank) {
  char* const control = ranks_[size_t(rank)].control;
  const auto keep = [&](const void* object, size_t num_bytes) { arena.set_private(object, num_bytes, rank); };
  const std::vector<int32_t> forwarded = nodes_.rail_sources(rank);
  for (int bank = 0; bank < kNumBanks; ++bank) {
    for (int from = 0; from < c_.num_ranks(); ++from) {
      auto* line = reinterpret_cast<PeerLine*>(control + control_layout_.line(bank, from));
      const std::string place = text("[bank ", bank, "][", from, " -> ", rank, "]");
      arena.name(line, text("consent", place));
      arena.name(&line->token_offset, text("line", place));
      arena.name(&line->arrival, text("arrival", place));
      arena.name(&line->num_rows, text("flags", place));
      arena.name(&line->about, text("about", place));
      arena.name(&line->done, text("done", place));
      arena.name(&line->rail_sent, text("rail_sent", place));
      arena.name(&line->rail_taken, text("rail_taken", place));
      arena.name(&line->forwarded, text("forwarded", place));
      arena.name(control + control_layout_.board(bank, from), text("board", place));
      // Nobody is given up, comes back, is late or fails.
      arena.set_constant(&line->expelled, offsetof(PeerLine, rail_sent) - offsetof(PeerLine, expelled));
      if (from == rank) keep(line, offsetof(PeerLine, expelled));
      if (std::find(forwarded.begin(), forwarded.end(), from) != forwarded.end()) {
        keep(&line->forwarded, sizeof(PeerLine) - offsetof(PeerLine, forwarded));
      }
      if (nodes_.are_together(from, rank)) continue;
      auto* told = reinterpret_cast<PeerLine*>(control + control_layout_.told(bank, from));
      keep(told, offsetof(PeerLine, about));  // `about` itself is read by a courier
      keep(&told->done, sizeof(PeerLine) - offsetof(PeerLine, done));
      arena.name(&told->about, text("told about", place));
      arena.name(control + control_layout_.told_board(bank, from), text("told board", place));
    }
  }
}

// Which memory the rank reaches, and the way to the rest.
void HtWorld::connect(int rank) {
  Rank& own = ranks_[size_t(rank)];
  own.network.regions = {{kControlId, {}}, {kPayloadId, {}}};
  for (int peer = 0; peer < c_.num_ranks(); ++peer) {
    Rank& other = ranks_[size_t(peer)];
    const bool near = nodes_.are_together(peer, rank);
    own.controls.push_back(near ? other.control : nullptr);
    own.payloads.push_back(near ? other.payload : nullptr);
    own.out_windows.push_back(near ? other.received - margin(peer) : nullptr);
    own.result_windows.push_back(near ? other.results - margin(peer) : nullptr);
    own.network.regions[0].bases.push_back(other.control);
    own.network.regions[1].bases.push_back(other.payload);
    own.network.couriers.push_back(near ? -1 : int(courier_names_.size()));
    if (!near) courier_names_.push_back(text("courier ", rank, " -> ", peer));
  }
  own.out_table.assign(kTensorWindow + 1, nullptr);
  own.out_table[kTensorWindow] = own.out_windows.data();
  own.result_table.assign(kTensorWindow + 1, nullptr);
  own.result_table[kTensorWindow] = own.result_windows.data();
  own.network.rank = rank;
  own.path.target = &own.network;
}

void HtWorld::fill_group(int rank, ep::HtGroupView& group) {
  Rank& own = ranks_[size_t(rank)];
  group.control_layout = control_layout_;
  group.rank = rank;
  group.num_ranks = c_.num_ranks();
  group.num_experts = c_.num_experts();
  group.max_tokens = c_.num_tokens;
  group.masks_enabled = c_.masks;
  group.control = own.controls.data();
  group.net = &own.path;
  group.control_id = kControlId;
  group.owner = owner_;
  group.local = local_;
  group.state = own.state;
  group.report = own.report;
  group.mask = own.mask;
  group.peer_state = peer_state_;
  group.abort = abort_;
  group.layout = layout_;
  group.payload = own.payloads.data();
  group.payload_id = kPayloadId;
  group.max_local = c_.num_local;
  group.node = nodes_.node_of(rank);
  group.num_nodes = nodes_.num_nodes();
  group.node_first = nodes_.first().data();
  group.rail_sources = own.rail_sources;
  group.num_rail_sources = int(nodes_.rail_sources(rank).size());
  group.rail_ends = own.rail_ends.data();
  group.numbers = own.numbers;
  group.zeros = zeros_;
  group.budget = c_.budget > 0 ? c_.budget : std::numeric_limits<int32_t>::max();
  group.drops = c_.budget > 0;
}

ep::HtOp HtWorld::make_op(int rank, const HtStep& step) {
  Rank& own = ranks_[size_t(rank)];
  const Handle& handle = own.handles[step.plan % kNumHandles];
  const bool is_combine = step.kind == HtKind::kCombine;
  ep::HtOp op{};
  fill_group(rank, op.group);
  op.kind = step.kind;
  op.backward = step.backward;
  op.topk = c_.topk;
  op.num_tokens = c_.num_tokens;
  op.num_local = c_.num_local;
  op.expert_major = c_.expert_major;
  op.alignment = HtCase::kAlignment;
  op.plan_stamp = kPlanStamp;
  op.record = handle.record;
  op.topk_idx = handle.routing;
  op.out_total = handle.total;
  if (step.kind == HtKind::kRoute) return op;
  op.dtype = DType::kBfloat16;
  op.num_elements = sizeof(Cell) / 2;
  op.token_bytes = sizeof(Cell);
  op.tokens = is_combine ? own.results : own.tokens;
  op.weights = is_combine ? own.result_gradients : own.weights;
  op.out_tokens = is_combine ? own.combined : own.received;
  op.out_weights = is_combine ? own.gradients : own.received_weights;
  op.out_idx = own.received_ids;
  if (c_.in_place) {
    op.in_place = 1;
    op.token_window_id = kTensorWindow;
    op.group.windows.slots = (is_combine ? own.result_table : own.out_table).data();
    op.token_window_offset = margin(rank);
  }
  return op;
}

// A flat row is one for all experts of the rank.
uint64_t HtWorld::result_of(const HtStep& step, int source, int token, const HtPlan::Entry& entry) const {
  return result_code(token_code(step.sent, source, token), step.tag, c_.expert_major ? entry.expert : owner(entry.expert));
}

float HtWorld::gradient_of(const HtStep& step, int rank, int64_t place) const {
  return float(int64_t(step.tag) * 1024 + rank * 256 + place);
}

void HtWorld::prepare(const ModelPlatform& p, int rank, const HtStep& step) const {
  const Rank& own = ranks_[size_t(rank)];
  if (step.kind == HtKind::kDispatch) {
    for (int token = 0; token < c_.num_tokens; ++token) {
      write_row(p, own.tokens, token, token_code(step.tag, rank, token));
    }
  }
  if (step.kind != HtKind::kCombine) return;
  for_each_row(step, rank, [&](int source, int token, int, const HtPlan::Entry& entry) {
    const uint64_t made = result_of(step, source, token, entry) - token_code(step.sent, source, token);
    const Cell cell = p.read(cell_at(own.received, entry.slot));
    p.write(cell_at(own.results, entry.slot), {cell.code + made, cell.twin + made});
  });
  const int64_t num_gradients = int64_t(layout_.max_slots) * per_row();
  for (int64_t place = 0; place < num_gradients && step.backward; ++place) {
    p.write(own.result_gradients + place, gradient_of(step, rank, place));
  }
}

void HtWorld::check(const ModelPlatform& p, int rank, const HtStep& step) const {
  const ep::Report& noted = ranks_[size_t(rank)].state->noted;
  p.assert_that(p.read(&noted.failure) == 0 && p.read(&noted.fault) == 0, "the operation did not fail");
  if (step.kind == HtKind::kRoute) check_update(p, rank, step);
  else if (step.kind == HtKind::kDispatch) check_dispatch(p, rank, step);
  else check_combine(p, rank, step);
}

void HtWorld::check_update(const ModelPlatform& p, int rank, const HtStep& step) const {
  const Handle& handle = ranks_[size_t(rank)].handles[step.plan % kNumHandles];
  const HtPlan& plan = plan_of(step);
  const ep::HtRecord at = plan.layout(rank);
  const auto* tag = reinterpret_cast<const uint64_t*>(&handle.record[at.plan_tag()]);
  p.assert_that(p.read(tag) == step.tag, "a plan has the tag of its update");
  for (size_t word = at.valid(); word < handle.expected.size(); ++word) {
    p.assert_that(p.read(&handle.record[word]) == handle.expected[word], "a plan is what all ranks' routing comes to");
  }
  p.assert_that(p.read(handle.total) == plan.total(rank), "the total counts what is dropped");
}

void HtWorld::check_dispatch(const ModelPlatform& p, int rank, const HtStep& step) const {
  const Rank& own = ranks_[size_t(rank)];
  for_each_row(step, rank, [&](int source, int token, int k, const HtPlan::Entry& entry) {
    check_row(p, own.received, entry.slot, token_code(step.tag, source, token),
              "a received row is of this dispatch, source and token");
    if (!step.backward) check_description(p, rank, plan_of(step), source, token, k);
  });
  if (c_.expert_major) check_padding(p, rank, step);
}

void HtWorld::check_padding(const ModelPlatform& p, int rank, const HtStep& step) const {
  const HtPlan& plan = plan_of(step);
  for (int expert = rank * c_.num_local; expert < (rank + 1) * c_.num_local; ++expert) {
    const int end = plan.zone_end(expert, c_.num_ranks());
    for (int slot = plan.zone_end(expert, c_.num_ranks() - 1); slot < end; ++slot) {
      check_row(p, ranks_[size_t(rank)].received, slot, 0, "padding is cleared");
    }
  }
}

void HtWorld::check_description(const ModelPlatform& p, int rank, const HtPlan& plan, int source, int token, int k) const {
  const Rank& own = ranks_[size_t(rank)];
  const int slot = plan.entry(source, token, k).slot;
  const float* weights = own.received_weights + slot * per_row();
  if (c_.expert_major) {
    p.assert_that(p.read(weights) == weight_of(source, token, k), "a received row has its weight");
    return;
  }
  // Experts of this rank in ascending order, each with the weight of its entry.
  int place = 0;
  for (int local = 0; local < c_.num_local; ++local) {
    for (int other = 0; other < c_.topk; ++other) {
      if (plan.entry(source, token, other).expert != rank * c_.num_local + local) continue;
      p.assert_that(p.read(own.received_ids + slot * c_.topk + place) == local, "a received row names its experts");
      p.assert_that(p.read(weights + place) == weight_of(source, token, other), "a received row has its weights");
      ++place;
    }
  }
  for (; place < c_.topk; ++place) {
    p.assert_that(p.read(own.received_ids + slot * c_.topk + place) == -1, "a received row names no others");
  }
}

void HtWorld::check_combine(const ModelPlatform& p, int rank, const HtStep& step) const {
  for (int token = 0; token < c_.num_tokens; ++token) {
    uint64_t sum = 0;
    for (int k = 0; k < c_.topk; ++k) {
      const HtPlan::Entry& entry = plan_of(step).entry(rank, token, k);
      if (entry.slot >= 0) sum += result_of(step, rank, token, entry);
    }
    check_row(p, ranks_[size_t(rank)].combined, token, sum,
              "a combined row is the sum of this combine's results for the token");
    if (step.backward) check_gradients(p, rank, step, token);
  }
}

void HtWorld::check_gradients(const ModelPlatform& p, int rank, const HtStep& step, int token) const {
  const HtPlan& plan = plan_of(step);
  for (int k = 0; k < c_.topk; ++k) {
    const int expert = plan.entry(rank, token, k).expert;
    int slot = -1, place = 0;  // of the row that stands for the expert, and in that row
    for (int other = 0; other < c_.topk; ++other) {
      const HtPlan::Entry& entry = plan.entry(rank, token, other);
      if (c_.expert_major ? other != k : owner(entry.expert) != owner(expert)) continue;
      slot = std::max(slot, entry.slot);
      place += entry.expert < expert ? 1 : 0;
    }
    const float expected = slot < 0 ? 0 : gradient_of(step, owner(expert), int64_t(slot) * per_row() + place);
    p.assert_that(p.read(ranks_[size_t(rank)].gradients + token * c_.topk + k) == expected,
                  "a weight's gradient is what its expert said in this combine");
  }
}

}  // namespace switchyard::model
