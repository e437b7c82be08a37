#include "model/ll_world.hpp"

#include <deque>

#include "model/rows.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

using ep::kNumBanks;
using ep::LlKind;
using ep::LlPart;

constexpr size_t kMargin = sizeof(Cell);  // before a tensor in its window

}  // namespace

std::vector<LlStep> parse_script(const std::string& script) {
  std::vector<LlStep> steps;
  std::deque<LlStep> staged;
  LlStep last_dispatch{};
  uint64_t tag = kNumBanks;  // before the first operation
  int num_dispatches = 0, num_staged = 0;
  for (const char letter : script) {
    LlStep step{};
    if (letter == 'r') {
      step = staged.front();
      staged.pop_front();
      step.part = LlPart::kReceive;
    } else {
      const bool is_dispatch = letter == 'D' || letter == 'd';
      const bool is_staged = letter == 'd' || letter == 'c';
      step.kind = is_dispatch ? LlKind::kDispatch : LlKind::kCombine;
      step.part = is_staged ? LlPart::kSend : LlPart::kBoth;
      step.tag = ++tag;
      step.slot = is_staged ? num_staged++ % ep::kMaxStaged : 0;
      step.handle = is_dispatch ? step.slot : last_dispatch.handle;
      step.dispatch = is_dispatch ? num_dispatches++ : last_dispatch.dispatch;
      step.sent = is_dispatch ? tag : last_dispatch.tag;
      if (is_staged) staged.push_back(step);
    }
    if (step.kind == LlKind::kDispatch && step.part != LlPart::kSend) last_dispatch = step;
    steps.push_back(step);
  }
  return steps;
}

LlWorld::LlWorld(Arena& arena, const LlCase& c) : c_(c), steps_(parse_script(c.script)), ranks_(size_t(c.num_ranks)) {
  const ep::LlMessage message{c_.topk, !c_.expert_major};
  layout_ = {c_.num_ranks, /*spans_nodes=*/0, message.stride(sizeof(Cell)) * size_t(c_.num_tokens),
             sizeof(Cell) * size_t(c_.num_tokens * c_.topk)};
  control_layout_ = {c_.num_ranks, /*board_words=*/c_.num_ranks, /*spans_nodes=*/0};
  owner_ = arena.make_array<int32_t>(size_t(c_.num_ranks));
  local_ = arena.make_array<int32_t>(size_t(c_.num_ranks));
  abort_ = arena.make<uint32_t>();
  clock_ = arena.make<uint64_t>();
  arena.name(clock_, "clock");
  weights_ = arena.make_array<float>(size_t(c_.num_tokens * c_.topk));
  for (int expert = 0; expert < c_.num_ranks; ++expert) owner_[expert] = expert;
  for (int entry = 0; entry < c_.num_tokens * c_.topk; ++entry) weights_[entry] = float(entry % c_.topk + 1);
  arena.set_constant(owner_, size_t(c_.num_ranks) * sizeof *owner_);
  arena.set_constant(local_, size_t(c_.num_ranks) * sizeof *local_);
  arena.set_constant(abort_, sizeof *abort_);
  arena.set_constant(weights_, size_t(c_.num_tokens * c_.topk) * sizeof *weights_);
  for (int rank = 0; rank < c_.num_ranks; ++rank) make_rank(arena, rank);
  for (int rank = 0; rank < c_.num_ranks; ++rank) {
    for (const LlStep& step : steps_) ranks_[size_t(rank)].ops.push_back(make_op(rank, step));
  }
}

void LlWorld::make_rank(Arena& arena, int rank) {
  Rank& own = ranks_[size_t(rank)];
  const auto num_ranks = size_t(c_.num_ranks);
  control_.push_back(own.control = make_bytes(arena, control_layout_.num_bytes()));
  payload_.push_back(own.payload = make_bytes(arena, layout_.payload_bytes()));
  own.tokens = make_bytes(arena, size_t(c_.num_tokens) * sizeof(Cell));
  own.combined = make_bytes(arena, size_t(c_.num_tokens) * sizeof(Cell));
  arena.name(own.payload, text("payload[rank ", rank, "]"));
  arena.name(own.tokens, text("tokens[rank ", rank, "]"));
  arena.name(own.combined, text("combined[rank ", rank, "]"));
  ep::LlState state{};
  state.tag = state.base = kNumBanks;  // as Group::make_state() does
  own.state = arena.make<ep::LlState>(state);
  own.report = arena.make<ep::Report>();
  own.mask = arena.make_array<int32_t>(num_ranks);
  for (size_t peer = 0; peer < num_ranks; ++peer) own.mask[peer] = 1;
  own.plan = arena.make_array<int32_t>(
      kNumBanks * ep::LlPlan{c_.num_tokens * ep::kMaxTopk, c_.num_ranks, c_.num_ranks}.num_words());
  own.counters = arena.make_array<uint64_t>(kNumBanks * num_ranks);
  own.kernels = arena.make_array<uint64_t>(2);
  own.peer_state = arena.make_array<uint32_t>(num_ranks);
  arena.name(own.state, text("state[rank ", rank, "]"));
  arena.name(own.state->bank, text("state[rank ", rank, "].bank"));
  arena.name(own.plan, text("plan[rank ", rank, "]"));
  arena.name(own.counters, text("rows_sent[rank ", rank, "]"));
  arena.name(own.kernels, text("kernels[rank ", rank, "]"));
  arena.name(own.peer_state, text("peer_state[rank ", rank, "]"));
  for (int handle = 0; handle < 2; ++handle) {
    make_handle(arena, rank, own.handles[handle]);
    out_windows_[handle].push_back(own.handles[handle].out_tokens - kMargin);
    result_windows_[handle].push_back(own.handles[handle].results - kMargin);
  }
  const int num_entries = c_.num_tokens * c_.topk;
  for (const LlStep& step : steps_) {
    if (step.kind != LlKind::kDispatch || step.part == LlPart::kReceive) continue;
    int32_t* routing = arena.make_array<int32_t>(size_t(num_entries));
    for (int entry = 0; entry < num_entries; ++entry) {
      routing[entry] = expert_of(step.dispatch, rank, entry / c_.topk, entry % c_.topk);
    }
    arena.set_constant(routing, size_t(num_entries) * sizeof *routing);
    routing_.push_back(routing);  // all of rank 0, then all of rank 1, ...
  }
  declare_uses(arena, rank);
  declare_lines(arena, rank);
}

void LlWorld::make_handle(Arena& arena, int rank, Handle& handle) {
  handle.record = arena.make_array<int32_t>(ep::LlRecord{c_.num_ranks, c_.num_tokens, c_.topk}.num_words());
  handle.out_tokens = make_bytes(arena, kMargin + num_rows() * sizeof(Cell)) + kMargin;
  handle.results = make_bytes(arena, kMargin + num_rows() * sizeof(Cell)) + kMargin;
  handle.out_counts = arena.make_array<int32_t>(size_t(c_.num_ranks));
  handle.out_idx = arena.make_array<int32_t>(num_rows() * size_t(c_.topk));
  handle.out_weights = arena.make_array<float>(num_rows() * size_t(c_.topk));
  arena.name(handle.record, text("record[rank ", rank, "]"));
  arena.name(handle.out_tokens, text("received[rank ", rank, "]"));
  arena.name(handle.results, text("results[rank ", rank, "]"));
}

// With one worker a rank, what the rank keeps for itself is private. With several warps it is shared between them, but
// for what only failures change.
void LlWorld::declare_uses(Arena& arena, int rank) {
  Rank& own = ranks_[size_t(rank)];
  const auto num_ranks = size_t(c_.num_ranks);
  if (!c_.suspects) arena.set_constant(own.peer_state, num_ranks * sizeof *own.peer_state);
  if (c_.warps_of(rank) > 1) {
    arena.set_mixed(own.state->bank, sizeof own.state->bank);
    arena.set_mixed(own.counters, kNumBanks * num_ranks * sizeof *own.counters);
    arena.set_constant(&own.state->base, sizeof own.state->base);
    arena.set_constant(&own.state->noted, sizeof own.state->noted);
    arena.set_constant(own.report, sizeof *own.report);
    arena.set_constant(own.mask, num_ranks * sizeof *own.mask);
    return;
  }
  const int thread = rank == 0 ? 0 : c_.num_warps - 1 + rank;
  const auto keep = [&](const void* object, size_t num_bytes) { arena.set_private(object, num_bytes, thread); };
  keep(own.state, sizeof *own.state);
  keep(own.report, sizeof *own.report);
  keep(own.mask, num_ranks * sizeof *own.mask);
  keep(own.plan, kNumBanks * sizeof *own.plan *
                     ep::LlPlan{c_.num_tokens * ep::kMaxTopk, c_.num_ranks, c_.num_ranks}.num_words());
  keep(own.counters, kNumBanks * num_ranks * sizeof *own.counters);
  keep(own.tokens, size_t(c_.num_tokens) * sizeof(Cell));
  keep(own.combined, size_t(c_.num_tokens) * sizeof(Cell));
  for (Handle& handle : own.handles) {
    keep(handle.record, sizeof(int32_t) * ep::LlRecord{c_.num_ranks, c_.num_tokens, c_.topk}.num_words());
    keep(handle.out_counts, num_ranks * sizeof(int32_t));
    keep(handle.out_idx, num_rows() * size_t(c_.topk) * sizeof(int32_t));
    keep(handle.out_weights, num_rows() * size_t(c_.topk) * sizeof(float));
    if (c_.in_place) continue;
    keep(handle.out_tokens, num_rows() * sizeof(Cell));
    keep(handle.results, num_rows() * sizeof(Cell));
  }
  for (int bank = 0; bank < kNumBanks; ++bank) {
    keep(own.control + control_layout_.line(bank, rank), sizeof(ep::PeerLine));
    keep(own.payload + layout_.inbox(bank, rank), layout_.inbox_block_bytes);
    keep(own.payload + layout_.outbox(bank, rank), layout_.outbox_block_bytes);
  }
}

void LlWorld::declare_lines(Arena& arena, int rank) {
  for (int bank = 0; bank < kNumBanks; ++bank) {
    for (int from = 0; from < c_.num_ranks; ++from) {
      const auto* line = reinterpret_cast<const ep::PeerLine*>(control_[size_t(rank)] + control_layout_.line(bank, from));
      const std::string place = text("[bank ", bank, "][", from, " -> ", rank, "]");
      arena.name(line, text("consent", place));
      arena.name(&line->token_offset, text("line", place));
      arena.name(&line->arrival, text("arrival", place));
      arena.name(&line->num_rows, text("num_rows", place));
      arena.name(&line->done, text("done", place));
      arena.name(&line->expelled, text("expelled", place));
      arena.name(&line->failed, text("failed", place));
      arena.name(control_[size_t(rank)] + control_layout_.board(bank, from), text("counts", place));
      arena.name(payload_[size_t(rank)] + layout_.inbox(bank, from), text("inbox", place));
      arena.name(payload_[size_t(rank)] + layout_.outbox(bank, from), text("outbox[bank ", bank, "][", rank, " -> ", from, "]"));
      arena.set_constant(&line->admit, sizeof line->admit);  // nobody comes back
      arena.set_constant(&line->failed, sizeof line->failed);  // nobody fails for good
    }
  }
}

ep::LlOp LlWorld::make_op(int rank, const LlStep& step) const {
  const Rank& own = ranks_[size_t(rank)];
  const Handle& handle = own.handles[step.handle];
  const bool is_dispatch = step.kind == LlKind::kDispatch;
  ep::LlOp op{};
  op.group.control_layout = control_layout_;
  op.group.layout = layout_;
  op.group.rank = rank;
  op.group.num_ranks = op.group.num_experts = c_.num_ranks;
  op.group.max_tokens = c_.num_tokens;
  op.group.masks_enabled = c_.masks;
  op.group.control = control_.data();
  op.group.payload = payload_.data();
  op.group.owner = owner_;
  op.group.local = local_;
  op.group.state = own.state;
  op.group.report = own.report;
  op.group.mask = own.mask;
  op.group.counters = own.counters;
  op.group.plan = own.plan;
  op.group.peer_state = own.peer_state;
  op.group.abort = abort_;
  op.kind = step.kind;
  op.part = step.part;
  op.slot = step.slot;
  op.topk = c_.topk;
  op.num_tokens = c_.num_tokens;
  op.num_local = 1;
  op.expert_major = c_.expert_major;
  op.dtype = DType::kBfloat16;
  op.num_elements = sizeof(Cell) / 2;
  op.token_bytes = op.input_bytes = sizeof(Cell);
  op.topk_idx = routing_[size_t(rank) * routing_.size() / size_t(c_.num_ranks) + size_t(step.dispatch)];
  op.weights_in = weights_;
  op.tokens = is_dispatch ? own.tokens : handle.results;
  op.out_tokens = is_dispatch ? handle.out_tokens : own.combined;
  op.out_weights = handle.out_weights;
  op.out_idx = handle.out_idx;
  op.out_counts = handle.out_counts;
  op.record = handle.record;
  if (c_.in_place) {
    op.in_place = is_dispatch || step.part == LlPart::kBoth;  // as in Handle::combine()
    op.token_windows = (is_dispatch ? out_windows_ : result_windows_)[step.handle].data();
    op.token_window_id = kTensorWindow + uint32_t(step.handle);
    op.token_window_offset = kMargin;
  }
  return op;
}

// Even dispatches spread the tokens over the experts; in odd ones everybody wants the last expert first, so that with
// top-1 some ranks get nothing.
int LlWorld::expert_of(int dispatch, int rank, int token, int k) const {
  const int first = dispatch % 2 == 0 ? rank + token + 1 : c_.num_ranks - 1;
  return (first + k) % c_.num_ranks;
}

bool LlWorld::sends_to(int dispatch, int rank, int token, int dest) const {
  for (int k = 0; k < c_.topk; ++k) {
    if (expert_of(dispatch, rank, token, k) == dest) return true;
  }
  return false;
}

void LlWorld::prepare(const ModelPlatform& p, int rank, const LlStep& step) const {
  if (step.part == LlPart::kReceive) return;
  const Rank& own = ranks_[size_t(rank)];
  if (step.kind == LlKind::kDispatch) {
    for (int token = 0; token < c_.num_tokens; ++token) {
      write_row(p, own.tokens, token, token_code(step.tag, rank, token));
    }
    return;
  }
  const Handle& handle = own.handles[step.handle];
  const ep::LlRecord at{c_.num_ranks, c_.num_tokens, c_.topk};
  int first_row = 0;
  for (int source = 0; source < c_.num_ranks; ++source) {
    const int num_received = p.read(&handle.record[at.num_received(source)]) & ~ep::kInPlaceBit;
    if (!c_.expert_major) first_row = source * c_.num_tokens;
    for (int row = first_row; row < first_row + num_received; ++row) {
      const Cell cell = p.read(cell_at(handle.out_tokens, row));
      p.write(cell_at(handle.results, row),
              {result_code(cell.code, step.tag, rank), result_code(cell.twin, step.tag, rank)});
    }
    first_row += num_received;
  }
}

void LlWorld::check(const ModelPlatform& p, int rank, const LlStep& step) const {
  p.assert_that(p.read(&ranks_[size_t(rank)].state->noted.failure) == 0, "the operation did not fail");
  if (step.part == LlPart::kSend) return;
  if (step.kind == LlKind::kDispatch) check_dispatch(p, rank, step);
  else check_combine(p, rank, step);
}

// Was the source given up on, so that none of its rows are there?
bool LlWorld::is_missing(const ModelPlatform& p, int rank, int handle, int source) const {
  const Rank& own = ranks_[size_t(rank)];
  if (p.read(&own.mask[source]) != 0) return false;
  p.assert_that(c_.suspects, "nobody is masked without a reason");
  const ep::LlRecord at{c_.num_ranks, c_.num_tokens, c_.topk};
  return p.read(&own.handles[handle].record[at.num_received(source)]) == 0;
}

void LlWorld::check_dispatch(const ModelPlatform& p, int rank, const LlStep& step) const {
  const Handle& handle = ranks_[size_t(rank)].handles[step.handle];
  int num_rows_here = 0;
  for (int source = 0; source < c_.num_ranks; ++source) {
    const bool missing = is_missing(p, rank, step.handle, source);
    int num_of_source = 0;
    for (int token = 0; token < c_.num_tokens && !missing; ++token) {
      if (!sends_to(step.dispatch, source, token, rank)) continue;
      const int row = c_.expert_major ? num_rows_here : source * c_.num_tokens + num_of_source;
      check_row(p, handle.out_tokens, row, token_code(step.tag, source, token),
                "a received row is of this dispatch, source and token");
      for (int k = 0; k < c_.topk && !c_.expert_major; ++k) {
        const int expert = expert_of(step.dispatch, source, token, k);
        p.assert_that(p.read(&handle.out_idx[row * c_.topk + k]) == (expert == rank ? 0 : -1),
                      "a received row names its experts");
        p.assert_that(p.read(&handle.out_weights[row * c_.topk + k]) == float(k + 1), "a received row has its weights");
      }
      ++num_rows_here;
      ++num_of_source;
    }
    if (!c_.expert_major) {
      p.assert_that(p.read(&handle.out_counts[source]) == num_of_source, "rows of a source come entirely or not at all");
    }
  }
  if (c_.expert_major) {
    p.assert_that(p.read(&handle.out_counts[0]) == num_rows_here, "rows of a source come entirely or not at all");
  }
}

void LlWorld::check_combine(const ModelPlatform& p, int rank, const LlStep& step) const {
  const Rank& own = ranks_[size_t(rank)];
  for (int token = 0; token < c_.num_tokens; ++token) {
    uint64_t sum = 0;
    for (int k = 0; k < c_.topk; ++k) {
      const int expert = expert_of(step.dispatch, rank, token, k);
      if (p.read(&own.mask[expert]) == 0) continue;
      const uint64_t weight = c_.expert_major ? uint64_t(k + 1) : 1;
      sum += weight * result_code(token_code(step.sent, rank, token), step.tag, expert);
    }
    check_row(p, own.combined, token, sum,
              "a combined row is the sum of this combine's results for the token");
  }
}

}  // namespace switchyard::model
