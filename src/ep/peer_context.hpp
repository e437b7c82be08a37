// What the roles of one operation share on one warp: what peers say, waiting for a peer, giving up on a peer. Every protocol of
// a group has a context of its own over this one.
#pragma once
#include "base/kernel_failpoint.hpp"
#include "ep/epoch.hpp"
#include "switchyard/device/wait.hpp"

namespace switchyard::ep {

template <class P>
class PeerContext {
 public:
  const P& p;
  uint64_t tag;
  int bank;
  uint64_t about;           // what peers must be doing in this epoch, and in which shape: PeerLine::about
  bool overdue = false;     // half the time limit has passed, or the communicator was aborted
  uint64_t overdue_ns = 0;  // when that was noticed

  SWITCHYARD_DEVICE PeerContext(const P& platform, const GroupView& group, uint64_t epoch_tag, uint64_t what)
      : p(platform), tag(epoch_tag), bank(int(epoch_tag % kNumBanks)), about(what), group_(group) {}

  SWITCHYARD_DEVICE int num_ranks() const { return group_.num_ranks; }
  SWITCHYARD_DEVICE int rank() const { return group_.rank; }
  SWITCHYARD_DEVICE bool remote(int peer) const { return group_.control[peer] == nullptr; }

  // What `peer` tells me, and what I tell `peer` if memory reaches it, about this bank.
  SWITCHYARD_DEVICE PeerLine* heard(int peer) const { return line_at(rank(), bank, peer); }
  SWITCHYARD_DEVICE PeerLine* told(int peer) const { return line_at(peer, bank, rank()); }
  SWITCHYARD_DEVICE PeerLine* line_at(int at_rank, int line_bank, int from) const {
    return reinterpret_cast<PeerLine*>(group_.control[at_rank] + group_.control_layout.line(line_bank, from));
  }
  SWITCHYARD_DEVICE bool expelled_by(int peer) const {
    if (!group_.masks_enabled) return false;
    return p.load_relaxed(&line_at(rank(), 0, peer)->expelled) > p.load_relaxed(&group_.state->base);
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
  SWITCHYARD_DEVICE int32_t* board_at(int at_rank, int from) const {
    return reinterpret_cast<int32_t*>(group_.control[at_rank] + group_.control_layout.board(bank, from));
  }

  SWITCHYARD_DEVICE bool masked(int peer) const { return p.load_relaxed(&group_.mask[peer]) == 0; }
  SWITCHYARD_DEVICE bool failed() const { return p.load_relaxed(&group_.state->noted.failure) != 0; }

  // Is the tag that `peer` writes to `word` there? `at_least` accepts later tags (a word that only says "free").
  SWITCHYARD_DEVICE Await await(int peer, const uint64_t* word, uint64_t want, Phase phase, bool at_least = false) {
    return await_word(peer, word, phase, [want, at_least](uint64_t seen) {
      if (seen == want || (at_least && seen > want)) return Seen::kWanted;
      return seen > want ? Seen::kTooLate : Seen::kNotYet;
    });
  }

  // Is what `peer` writes to `word` what is waited for? judge(value) says so.
  // A peer that is masked, dead, too late or ahead of us is given up: fatal without masks, masked with them.
  enum class Seen { kWanted, kNotYet, kTooLate };
  template <class Judge>
  SWITCHYARD_DEVICE Await await_word(int peer, const uint64_t* word, Phase phase, Judge judge) {
    if (masked(peer)) return Await::kGone;
    Seen seen = judge(p.load_acquire(word));
    // A process may publish and then die, or be through and leave: look at the word once more after learning of it.
    const bool dead = seen != Seen::kWanted && p.raised(&group_.peer_state[peer]);
    const bool unreachable = seen != Seen::kWanted && remote(peer) && !p.net_usable(*group_.net, peer);
    if (dead || unreachable) seen = judge(p.load_acquire(word));
    if (seen == Seen::kWanted) return Await::kReady;
    if (seen == Seen::kTooLate || expelled_by(peer)) return give_up(peer, Phase::kOvertaken);
    if (failed_like(peer)) return Await::kGone;
    if (dead || (overdue && !has_time_left(peer))) return give_up(peer, phase);
    if (unreachable) return give_up(peer, Phase::kNetwork);
    if (remote(peer)) p.net_progress(*group_.net);
    return failed() ? Await::kGone : Await::kNotYet;
  }

  // Is everything there that `peer` had for this epoch? Ranks that went apart, or one that came back in the middle of
  // something, must not take each other's rows for what they expect.
  SWITCHYARD_DEVICE Await await_rows(int peer, Phase phase) {
    const PeerLine* line = heard(peer);
    const Await arrival = await(peer, &line->arrival, tag, phase);
    if (arrival == Await::kReady && p.read(&line->about) != about) return give_up(peer, Phase::kOtherOperation);
    return arrival;
  }

  // A peer may be held up itself, by somebody who is missing, and comes only after its own time limit. So whoever has
  // waited for half of the limit says so, and those who say so get half the limit in addition: or the first rank to miss
  // a peer would be taken for missing by the next.
  SWITCHYARD_DEVICE bool has_time_left(int peer) {
    if (p.load_relaxed(group_.abort) != 0) return false;
    const uint64_t now_ns = p.now_ns();
    if (overdue_ns == 0) {
      overdue_ns = now_ns;
      for (int other = 0; other < num_ranks(); ++other) tell(other, &PeerLine::held_up, tag);
    }
    const bool is_held_up = p.load_relaxed(&line_at(rank(), 0, peer)->held_up) >= tag - kNumBanks;
    return now_ns - overdue_ns < (is_held_up ? group_.timeout_ns : group_.timeout_ns / 2);
  }

  SWITCHYARD_DEVICE Await give_up(int peer, Phase phase) {
    if (group_.masks_enabled && p.load_relaxed(group_.abort) == 0) {
      // A courtesy: the peer need not wait for its deadline. Not where it is this rank that has to be re-admitted, because
      // the peer gave up on it first or it has only just come back: the peer must not take itself for the one.
      const bool came_back = tag == p.load_relaxed(&group_.state->adopted);
      if (!expelled_by(peer) && !came_back) tell(peer, &PeerLine::expelled, tag);
    }
    lose(peer, phase);
    return Await::kGone;
  }

  // Goes on without the peer, or not at all.
  SWITCHYARD_DEVICE void lose(int peer, Phase phase) const {
    if (group_.masks_enabled && p.load_relaxed(group_.abort) == 0) {
      p.store_relaxed(&group_.mask[peer], 0);
      raise_async_error();
    } else {
      fail(problem(peer, phase));
    }
  }

  // A put to the peer failed. With masks that is for the waits to find: what the peer had to say before may be there, and then it
  // was not missing in this operation.
  SWITCHYARD_DEVICE void put_failed(int peer) const {
    if (!group_.masks_enabled) lose(peer, Phase::kNetwork);
  }

  // A peer was masked because it was missing; or others gave up on this rank without its noticing, and what it got since is
  // not to be trusted.
  SWITCHYARD_DEVICE void raise_async_error() const { p.store_relaxed(&group_.report->async_error, uint64_t{1}); }

  SWITCHYARD_DEVICE uint64_t problem(int peer, Phase phase) const {
    return uint64_t(phase) << 56 | uint64_t(peer) << kEpochBits | (tag & kEpochMask);
  }

  // Records the first problem of its kind; later ones are consequences. Any lane may call it alone.
  SWITCHYARD_DEVICE void note(uint64_t Report::* word, int peer, Phase phase) const {
    note(word, problem(peer, phase));
  }
  SWITCHYARD_DEVICE bool note(uint64_t Report::* word, uint64_t what) const {
    const bool first = p.store_once(&(group_.state->noted.*word), what);
    if (first) p.store_relaxed(&(group_.report->*word), what);
    return first;
  }

  // The group is of no use any more. Peers that wait for this rank are told why, so that they need not wait in vain and
  // name the rank that is really missing.
  SWITCHYARD_DEVICE void fail(uint64_t what) const {
    const uint64_t told_them = p.load_relaxed(group_.abort) != 0 ? problem(rank(), Phase::kAborted) : what;
    if (!note(&Report::failure, what)) return;
    for (int peer = 0; peer < num_ranks(); ++peer) tell(peer, &PeerLine::failed, told_them);
  }

  // Has `peer` failed for good? Then so does this rank, for the same reason.
  SWITCHYARD_DEVICE bool failed_like(int peer) const {
    if (group_.masks_enabled) return false;
    const uint64_t what = p.load_relaxed(&line_at(rank(), 0, peer)->failed);
    if (what == 0) return false;
    const bool mine = int(what >> kEpochBits & 0xffff) == rank();  // it waited for this rank
    // Where the two disagree, each is right about the other.
    const auto phase = Phase(what >> 56);
    const bool mutual = phase == Phase::kOtherOperation || phase == Phase::kWindowMismatch;
    fail(mine ? problem(peer, mutual ? phase : Phase::kOvertaken) : what);
    return true;
  }

  // A word of line 0, which carries nothing but itself.
  SWITCHYARD_DEVICE void tell(int peer, uint64_t PeerLine::* word, uint64_t value) const {
    if (remote(peer)) static_cast<void>(tell_remote(peer, 0, word, value));  // a courtesy: it may fail
    else p.store_relaxed(&(line_at(peer, 0, rank())->*word), value);
  }

  // ---- ranks that only the network reaches ----
  //
  // Nobody but me changes the line that such a rank keeps for me, so its words can be set by adding the difference to
  // what I told before: a signal, which the network applies after everything that went before it.

  // False: the network is lost.
  SWITCHYARD_DEVICE bool tell_remote(int peer, int line_bank, uint64_t PeerLine::* word, uint64_t value) const {
    return put(peer, 0, 0, 0, 0, line_bank, word, value);
  }

  SWITCHYARD_DEVICE PeerLine* copy_of_told(int peer, int line_bank) const {
    return reinterpret_cast<PeerLine*>(group_.control[rank()] + group_.control_layout.told(line_bank, peer));
  }

  static constexpr int kNetContext = 0;

  // One put, and the signal that sets `word` of the peer's line to `value` (null: none).
  SWITCHYARD_DEVICE bool put(int peer, uint32_t window, uint64_t to, uint64_t from, uint64_t num_bytes, int line_bank,
                             uint64_t PeerLine::* word, uint64_t value) const {
    uint64_t difference = 0, place = 0;
    if (word != nullptr) {
      PeerLine* copy = copy_of_told(peer, line_bank);
      difference = value - p.read(&(copy->*word));
      if (difference == 0 && num_bytes == 0) return true;
      p.write(&(copy->*word), value);
      place = group_.control_layout.line(line_bank, rank()) + uint64_t(reinterpret_cast<char*>(&(copy->*word)) -
                                                                reinterpret_cast<char*>(copy));
    }
    return net_put(p, *group_.net, kNetContext,
                   {peer, window, to, window, from, num_bytes, group_.control_id, place, difference, nullptr});
  }

  // Tells `peer` that everything of this epoch is in place. All rows were drained by their writers, whose adds to
  // rows_sent() this thread has acquired.
  SWITCHYARD_DEVICE void tell_arrival(int peer, uint32_t num_rows, uint32_t flags) const {
    PeerLine* line = told(peer);
    if (p.lane() == 0) {
      p.write(&line->num_rows, num_rows);
      p.write(&line->about, about);
      p.write(&line->flags, flags);
    }
    p.store_release(&line->arrival, tag);  // release; pairs with the acquire in await(kDispatchRows, kCombineRows)
  }
 protected:
  const GroupView& group_;
};

}  // namespace switchyard::ep
