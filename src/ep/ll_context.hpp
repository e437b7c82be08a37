// What the roles of one low-latency operation share on one warp: addresses, waiting on a peer, giving up on a peer.
#pragma once
#include "ep/ll_op.hpp"

// Named places where a test can make a rank die or stall (base/failpoint.hpp); nothing on a GPU.
#if defined(__CUDACC__)
#define SWITCHYARD_KERNEL_FAILPOINT(name) ((void)0)
#else
#include "base/failpoint.hpp"
#define SWITCHYARD_KERNEL_FAILPOINT(name) ((void)SWITCHYARD_FAILPOINT(name))
#endif

namespace switchyard::ep {

enum class Await { kReady, kNotYet, kGone };

template <class P>
struct LlContext {
  const P& p;
  const LlOp& op;
  uint64_t tag;
  int bank;
  uint64_t about;           // what peers must be doing in this epoch, and in which shape: LlLine::about
  bool overdue = false;     // half the time limit has passed, or the communicator was aborted
  uint64_t overdue_ns = 0;  // when that was noticed

  SWITCHYARD_DEVICE LlContext(const P& platform, const LlOp& operation) : p(platform), op(operation) {
    const LlState& state = *op.group.state;
    tag = op.part == LlPart::kReceive ? p.load_relaxed(&state.staged_tag[op.slot]) : p.load_relaxed(&state.tag) + 1;
    bank = int(tag % kNumBanks);
    about = op.kind == LlKind::kCombine ? p.read(dispatch_tag()) : 0;
    for (const uint64_t part : {uint64_t(op.kind), uint64_t(op.token_bytes), uint64_t(op.scale_bytes),
                                uint64_t(op.topk), uint64_t(op.expert_major)}) {
      about = (about ^ part) * 0x9e3779b97f4a7c15u + 1;  // mixes; equal parts give equal words, others hardly ever
    }
  }

  SWITCHYARD_DEVICE const LlGroupView& group() const { return op.group; }
  SWITCHYARD_DEVICE LlBankState& bank_state() const { return op.group.state->bank[bank]; }
  SWITCHYARD_DEVICE int num_ranks() const { return op.group.num_ranks; }
  SWITCHYARD_DEVICE int rank() const { return op.group.rank; }

  SWITCHYARD_DEVICE bool remote(int peer) const { return group().control[peer] == nullptr; }

  // What `peer` tells me, and what I tell `peer` if memory reaches it, about this bank.
  SWITCHYARD_DEVICE LlLine* heard(int peer) const { return line_at(rank(), bank, peer); }
  SWITCHYARD_DEVICE LlLine* told(int peer) const { return line_at(peer, bank, rank()); }
  SWITCHYARD_DEVICE LlLine* line_at(int at_rank, int line_bank, int from) const {
    return reinterpret_cast<LlLine*>(group().control[at_rank] + group().layout.line(line_bank, from));
  }
  SWITCHYARD_DEVICE bool expelled_by(int peer) const {
    if (!group().masks_enabled) return false;
    return p.load_relaxed(&line_at(rank(), 0, peer)->expelled) > p.load_relaxed(&group().state->base);
  }
  // The newest generation that others started for this rank; 0 or an old tag if none.
  SWITCHYARD_DEVICE uint64_t newest_admission() const {
    uint64_t newest = 0;
    for (int peer = 0; peer < num_ranks(); ++peer) {
      const uint64_t admit = p.load_acquire(&line_at(rank(), 0, peer)->admit);  // pairs with the release in admit_all()
      if (admit > newest) newest = admit;
    }
    return newest;
  }
  SWITCHYARD_DEVICE char* inbox(int at_rank, int source) const {
    return group().payload[at_rank] + group().layout.inbox(bank, source);
  }
  SWITCHYARD_DEVICE char* outbox(int at_rank, int reader) const {
    return group().payload[at_rank] + group().layout.outbox(bank, reader);
  }
  SWITCHYARD_DEVICE char* departure(int dest) const {
    return group().payload[rank()] + group().layout.departure(bank, dest);
  }
  SWITCHYARD_DEVICE const char* returned(int owner) const {
    return group().payload[rank()] + group().layout.returned(bank, owner);
  }
  SWITCHYARD_DEVICE uint64_t& rows_sent(int peer) const { return group().counters[bank * num_ranks() + peer]; }

  SWITCHYARD_DEVICE LlPlan plan_layout() const {
    return {group().max_tokens * op.topk, num_ranks(), group().num_experts};
  }
  SWITCHYARD_DEVICE int32_t* plan() const { return group().plan + size_t(bank) * plan_words_per_bank(); }
  SWITCHYARD_DEVICE size_t plan_words_per_bank() const {
    return LlPlan{group().max_tokens * kMaxTopk, num_ranks(), group().num_experts}.num_words();
  }
  SWITCHYARD_DEVICE LlRecord record() const { return {num_ranks(), group().max_tokens, op.topk}; }
  SWITCHYARD_DEVICE uint64_t* dispatch_tag() const {
    return reinterpret_cast<uint64_t*>(op.record + record().dispatch_tag());
  }
  SWITCHYARD_DEVICE LlMessage message() const { return {op.topk, op.expert_major == 0}; }
  SWITCHYARD_DEVICE int rows_per_expert() const { return num_ranks() * group().max_tokens; }

  SWITCHYARD_DEVICE bool masked(int peer) const { return p.load_relaxed(&group().mask[peer]) == 0; }
  SWITCHYARD_DEVICE bool failed() const { return p.load_relaxed(&group().state->noted.failure) != 0; }

  // Is the tag that `peer` writes to `word` there? `at_least` accepts later tags (a word that only says "free").
  // A peer that is masked, dead, too late or ahead of us is given up: fatal without masks, masked with them.
  SWITCHYARD_DEVICE Await await(int peer, const uint64_t* word, uint64_t want, LlPhase phase, bool at_least = false) {
    if (masked(peer)) return Await::kGone;
    uint64_t seen = p.load_acquire(word);
    // A process may publish and then die, or be through and leave: look at the word once more after learning of it.
    const bool dead = seen != want && p.raised(&group().peer_state[peer]);
    const bool unreachable = seen != want && remote(peer) && !p.net_usable(*group().net, peer);
    if (dead || unreachable) seen = p.load_acquire(word);
    if (seen == want || (at_least && seen > want)) return Await::kReady;
    if (seen > want || expelled_by(peer)) return give_up(peer, LlPhase::kOvertaken);
    if (failed_like(peer)) return Await::kGone;
    if (dead || (overdue && !has_time_left(peer))) return give_up(peer, phase);
    if (unreachable) return give_up(peer, LlPhase::kNetwork);
    if (remote(peer)) p.net_progress(*group().net);
    return failed() ? Await::kGone : Await::kNotYet;
  }

  // Is everything there that `peer` had for this epoch? Ranks that went apart, or one that came back in the middle of
  // something, must not take each other's rows for what they expect.
  SWITCHYARD_DEVICE Await await_rows(int peer, LlPhase phase) {
    const LlLine* line = heard(peer);
    const Await arrival = await(peer, &line->arrival, tag, phase);
    if (arrival == Await::kReady && p.read(&line->about) != about) return give_up(peer, LlPhase::kOtherOperation);
    return arrival;
  }

  // A peer may be held up itself, by somebody who is missing, and comes only after its own time limit. So whoever has
  // waited for half of the limit says so, and those who say so get half the limit in addition: or the first rank to miss
  // a peer would be taken for missing by the next.
  SWITCHYARD_DEVICE bool has_time_left(int peer) {
    if (p.load_relaxed(group().abort) != 0) return false;
    const uint64_t now_ns = p.now_ns();
    if (overdue_ns == 0) {
      overdue_ns = now_ns;
      for (int other = 0; other < num_ranks(); ++other) tell(other, &LlLine::held_up, tag);
    }
    const bool is_held_up = p.load_relaxed(&line_at(rank(), 0, peer)->held_up) >= tag - kNumBanks;
    return now_ns - overdue_ns < (is_held_up ? group().timeout_ns : group().timeout_ns / 2);
  }

  SWITCHYARD_DEVICE Await give_up(int peer, LlPhase phase) {
    if (group().masks_enabled && p.load_relaxed(group().abort) == 0) {
      // A courtesy: the peer need not wait for its deadline. Not where it is this rank that has to be re-admitted, because
      // the peer gave up on it first or it has only just come back: the peer must not take itself for the one.
      const bool came_back = tag == p.load_relaxed(&group().state->adopted);
      if (!expelled_by(peer) && !came_back) tell(peer, &LlLine::expelled, tag);
    }
    lose(peer, phase);
    return Await::kGone;
  }

  // Goes on without the peer, or not at all.
  SWITCHYARD_DEVICE void lose(int peer, LlPhase phase) const {
    if (group().masks_enabled && p.load_relaxed(group().abort) == 0) {
      p.store_relaxed(&group().mask[peer], 0);
      note_fault(peer, phase);
    } else {
      fail(problem(peer, phase));
    }
  }

  // Others gave up on this rank without its noticing: what it got since is not to be trusted.
  SWITCHYARD_DEVICE void note_overtaken() const { note_fault(rank(), LlPhase::kOvertaken); }

  SWITCHYARD_DEVICE void note_fault(int peer, LlPhase phase) const {
    p.store_relaxed(&group().report->async_error, uint64_t{1});
    note(&LlReport::fault, peer, phase);
  }

  SWITCHYARD_DEVICE uint64_t problem(int peer, LlPhase phase) const {
    return uint64_t(phase) << 56 | uint64_t(peer) << kEpochBits | (tag & kEpochMask);
  }

  // Records the first problem of its kind; later ones are consequences. Any lane may call it alone.
  SWITCHYARD_DEVICE void note(uint64_t LlReport::* word, int peer, LlPhase phase) const {
    note(word, problem(peer, phase));
  }
  SWITCHYARD_DEVICE bool note(uint64_t LlReport::* word, uint64_t what) const {
    const bool first = p.store_once(&(group().state->noted.*word), what);
    if (first) p.store_relaxed(&(group().report->*word), what);
    return first;
  }

  // The group is of no use any more. Peers that wait for this rank are told why, so that they need not wait in vain and
  // name the rank that is really missing.
  SWITCHYARD_DEVICE void fail(uint64_t what) const {
    const uint64_t told_them = p.load_relaxed(group().abort) != 0 ? problem(rank(), LlPhase::kAborted) : what;
    if (!note(&LlReport::failure, what)) return;
    for (int peer = 0; peer < num_ranks(); ++peer) tell(peer, &LlLine::failed, told_them);
  }

  // Has `peer` failed for good? Then so does this rank, for the same reason.
  SWITCHYARD_DEVICE bool failed_like(int peer) const {
    if (group().masks_enabled) return false;
    const uint64_t what = p.load_relaxed(&line_at(rank(), 0, peer)->failed);
    if (what == 0) return false;
    const bool mine = int(what >> kEpochBits & 0xffff) == rank();  // it waited for this rank
    // Where the two disagree, each is right about the other.
    const auto phase = LlPhase(what >> 56);
    const bool mutual = phase == LlPhase::kOtherOperation || phase == LlPhase::kWindowMismatch;
    fail(mine ? problem(peer, mutual ? phase : LlPhase::kOvertaken) : what);
    return true;
  }

  // May this bank be written again at `peer`? Only when the peer consumed the bank's previous epoch.
  SWITCHYARD_DEVICE Await bank_free(int peer) {
    const uint64_t previous = tag - kNumBanks;
    if (previous <= p.load_relaxed(&group().state->base)) return masked(peer) ? Await::kGone : Await::kReady;
    return await(peer, &heard(peer)->done, previous, LlPhase::kBankFree, true);
  }

  // A word of line 0, which carries nothing but itself.
  SWITCHYARD_DEVICE void tell(int peer, uint64_t LlLine::* word, uint64_t value) const {
    if (remote(peer)) static_cast<void>(tell_remote(peer, 0, word, value));  // a courtesy: it may fail
    else p.store_relaxed(&(line_at(peer, 0, rank())->*word), value);
  }

  // ---- ranks that only the network reaches ----
  //
  // Nobody but me changes the line that such a rank keeps for me, so its words can be set by adding the difference to
  // what I told before: a signal, which the network applies after everything that went before it.

  // False: the network is lost.
  SWITCHYARD_DEVICE bool tell_remote(int peer, int line_bank, uint64_t LlLine::* word, uint64_t value) const {
    return put(peer, 0, 0, 0, 0, line_bank, word, value);
  }

  // Rows from my `from` to the peer's `to` in the payload window, then the arrival.
  SWITCHYARD_DEVICE void tell_remote_arrival(int peer, uint32_t num_rows, uint32_t flags, uint64_t from, uint64_t to,
                                             uint64_t num_bytes) const {
    if (num_bytes > 0 && !put(peer, group().payload_id, to, from, num_bytes, bank, nullptr, 0)) return lose(peer, LlPhase::kNetwork);
    LlLine* copy = copy_of_told(peer, bank);
    p.write(&copy->num_rows, num_rows);
    p.write(&copy->flags, flags);
    p.write(&copy->about, about);
    // The three lie side by side.
    const uint64_t first = offsetof(LlLine, num_rows);
    const bool told_it =
        put(peer, group().control_id, group().layout.line(bank, rank()) + first,
            group().layout.told(bank, peer) + first, offsetof(LlLine, done) - first, bank, &LlLine::arrival, tag);
    if (!told_it) lose(peer, LlPhase::kNetwork);
  }

  SWITCHYARD_DEVICE LlLine* copy_of_told(int peer, int line_bank) const {
    return reinterpret_cast<LlLine*>(group().control[rank()] + group().layout.told(line_bank, peer));
  }

  static constexpr int kLlNetContext = 0;

  // One put, and the signal that sets `word` of the peer's line to `value` (null: none).
  SWITCHYARD_DEVICE bool put(int peer, uint32_t window, uint64_t to, uint64_t from, uint64_t num_bytes, int line_bank,
                             uint64_t LlLine::* word, uint64_t value) const {
    uint64_t difference = 0, place = 0;
    if (word != nullptr) {
      LlLine* copy = copy_of_told(peer, line_bank);
      difference = value - p.read(&(copy->*word));
      if (difference == 0 && num_bytes == 0) return true;
      p.write(&(copy->*word), value);
      place = group().layout.line(line_bank, rank()) + uint64_t(reinterpret_cast<char*>(&(copy->*word)) -
                                                                reinterpret_cast<char*>(copy));
    }
    return net_put(p, *group().net, kLlNetContext,
                   {peer, window, to, window, from, num_bytes, group().control_id, place, difference, nullptr});
  }

  // Tells `peer` that everything of this epoch is in place. All rows were drained by their writers, whose adds to
  // rows_sent() this thread has acquired.
  SWITCHYARD_DEVICE void tell_arrival(int peer, uint32_t num_rows, uint32_t flags) const {
    LlLine* line = told(peer);
    if (p.lane() == 0) {
      p.write(&line->num_rows, num_rows);
      p.write(&line->about, about);
      p.write(&line->flags, flags);
    }
    p.store_release(&line->arrival, tag);  // release; pairs with the acquire in await(kDispatchRows, kCombineRows)
  }
};

}  // namespace switchyard::ep
