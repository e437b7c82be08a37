// How an operation runs: cut into pieces, each of which goes through the phases of the operation, one phase a step; the
// ranks of a node meet between steps. So in one step a rank stages piece i, sends or adds up piece i-1, takes piece i-2
// ..., the network carries one piece while another is copied, and a piece costs one barrier however many phases it has.
//
// What is written in a step is read in the next and may be overwritten in the one after that, so everything has two
// banks, which alternate with the barriers and from operation to operation. All ranks pass the same barriers in the
// same order: the first failure ends that, and the collectives of this communicator with it.
//
// Every operation has a meeting, and with the first one the ranks of a node learn whether they are in the same operation
// (greetings.hpp). If not, all of them know, and leave it there: on one node nothing is lost but the operation.
#pragma once
#include "base/kernel_failpoint.hpp"
#include "coll/greetings.hpp"
#include "coll/notices.hpp"
#include "switchyard/device/barrier.hpp"

namespace switchyard::coll {

enum class Waiting : int32_t {
  kNone = 0,
  kNode = 1,     // for a rank of this node to come to the next step
  kArrival = 2,  // for what a rank of another node has to send
  kRoom = 3,     // for a rank of another node to have read what it got
  kNetwork = 4,  // for the network to have read what is to be sent
};

struct Failure {
  GinStatus status = GinStatus::kOk;
  Waiting waiting = Waiting::kNone;
  int32_t rank = -1;  // -1: can't be told
};

template <class P>
class Context {
 public:
  // `about`: a digest of what all ranks have to agree on.
  SWITCHYARD_DEVICE Context(const P& platform, const View& view, uint64_t about)
      : p(platform),
        v(view),
        about_(about),
        barrier_(platform, view.comm, 0),
        epoch_(platform.load_relaxed(&view.words[view.layout.epoch_word()])) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const P& p;
  const View& v;

  SWITCHYARD_DEVICE int rank() const { return v.comm.world.rank; }
  SWITCHYARD_DEVICE int num_ranks() const { return v.comm.world.num_ranks; }
  SWITCHYARD_DEVICE bool one_node() const { return v.comm.num_nodes == 1; }
  // The bank to write in this step, and the one that was written in the step before.
  SWITCHYARD_DEVICE int bank() const { return int(epoch_ % kNumBanks); }
  SWITCHYARD_DEVICE int previous_bank() const { return int((epoch_ + 1) % kNumBanks); }

  // The ranks of this node, between two steps.
  SWITCHYARD_DEVICE bool meet() {
    if (!met_) return greet(nullptr, nullptr);
    p.drain();
    SWITCHYARD_KERNEL_FAILPOINT("coll.before_meeting");
    switch (barrier_.lsa()) {
      case BarrierResult::kOk: break;
      case BarrierResult::kTimeout: return fail(GinStatus::kTimeout, Waiting::kNode, barrier_.missing());
      case BarrierResult::kPeerGone: return fail(GinStatus::kPeerGone, Waiting::kNode, barrier_.missing());
      case BarrierResult::kAborted: return fail(GinStatus::kAborted, Waiting::kNode, barrier_.missing());
      case BarrierResult::kFailed: return fail(GinStatus::kFailed, Waiting::kNode, barrier_.missing());
    }
    next_epoch();
    SWITCHYARD_KERNEL_FAILPOINT("coll.met");
    return true;
  }
  // The first meeting of an operation; of all ranks, if they have something to tell each other. told, heard: [ranks], or null.
  SWITCHYARD_DEVICE bool greet(const Announcement* told, Announcement* heard) {
    SWITCHYARD_KERNEL_FAILPOINT("coll.before_greeting");
    p.drain();
    const bool everybody = told != nullptr;
    Notices<Greeters<P>> greetings({p, v, epoch_, everybody});
    greetings.post([&](int peer, Greeting* greeting) {
      p.write(&greeting->about, about_);
      if (everybody) p.write(&greeting->has, p.read(&told[peer]));
      if (!v.comm.lsa.contains(peer)) count_sent(sizeof(Greeting));
    });
    if (greetings.peers().lost() >= 0) return fail(GinStatus::kFailed, Waiting::kNetwork, greetings.peers().lost());
    SWITCHYARD_KERNEL_FAILPOINT("coll.greeted");
    int differs = -1;
    const auto all_came = [&] {
      return greetings.hear([&](int peer, const Greeting* greeting) {
        if (greeting == nullptr) return;
        if (p.read(&greeting->about) != about_) differs = peer;
        if (everybody) p.write(&heard[peer], p.read(&greeting->has));
      });
    };
    const auto gone = [&] { return is_gone(p, v.comm, greetings.next()); };
    const WaitEnd end = wait_for_peers(p, all_came, gone, v.comm.timeout_ns, v.comm.abort);
    if (end != WaitEnd::kReady) {
      const bool near = v.comm.lsa.contains(greetings.next());
      return fail(gin_status(end), near ? Waiting::kNode : Waiting::kArrival, greetings.next());
    }
    met_ = true;
    disagrees_ = differs;  // only now: who did not meet all is out of step, whoever disagreed
    if (everybody) {
      uint64_t* const turn = &v.words[v.layout.turn_word()];
      p.store_relaxed(turn, p.load_relaxed(turn) + 1);
    }
    next_epoch();
    return disagrees_ < 0;
  }
  // A rank that is in another operation, of those that have met, all of them; -1 none.
  SWITCHYARD_DEVICE int disagrees() const { return disagrees_; }

  SWITCHYARD_DEVICE void count_sent(uint64_t num_bytes) {
    uint64_t* const word = &v.words[v.layout.bytes_word()];
    p.store_relaxed(word, p.load_relaxed(word) + num_bytes);
  }

  const Failure& failure() const { return failure_; }
  // False, for the caller to return.
  SWITCHYARD_DEVICE bool fail(GinStatus status, Waiting waiting, int who) {
    failure_ = {status, waiting, who};
    return false;
  }

 private:
  SWITCHYARD_DEVICE void next_epoch() { p.store_relaxed(&v.words[v.layout.epoch_word()], ++epoch_); }

  const uint64_t about_;
  Barrier<P> barrier_;
  uint64_t epoch_;
  bool met_ = false;
  int disagrees_ = -1;
  Failure failure_;
};

// Runs phase j of piece i in step i + j. Phases: bool(uint64_t piece); false ends everything.
template <class P, class... Phases>
SWITCHYARD_DEVICE bool in_steps(Context<P>& c, uint64_t num_pieces, Phases... phases) {
  if (num_pieces == 0) return c.meet();
  for (uint64_t step = 0; step < num_pieces + sizeof...(phases) - 1; ++step) {
    if (step > 0 && !c.meet()) return false;
    uint64_t phase_idx = 0;
    const auto run = [&](auto& phase) {
      const uint64_t piece = step - phase_idx++;  // wraps to something huge before the phase's first step
      return piece >= num_pieces || phase(piece);
    };
    if (!(run(phases) && ...)) return false;
  }
  SWITCHYARD_KERNEL_FAILPOINT("coll.pieces_done");
  c.p.drain();  // whoever waits for the end of the operation finds all of its results
  return true;
}

// How many items go through at a time: pieces of about equal size, multiples of `grain`, none above `most`.
struct Pieces {
  uint64_t num_items;
  uint64_t per_piece;

  SWITCHYARD_HD Pieces(uint64_t items, uint64_t most, uint64_t grain) : num_items(items) {
    const uint64_t least = (items + most - 1) / most;  // pieces
    const uint64_t even = least == 0 ? 0 : (items + least - 1) / least;
    per_piece = (even + grain - 1) / grain * grain;
    if (per_piece > most) per_piece = most;
  }
  SWITCHYARD_HD uint64_t num() const { return per_piece == 0 ? 0 : (num_items + per_piece - 1) / per_piece; }
  SWITCHYARD_HD uint64_t begin(uint64_t piece) const { return piece * per_piece; }
  SWITCHYARD_HD uint64_t size(uint64_t piece) const {
    const uint64_t left = num_items - begin(piece);
    return left < per_piece ? left : per_piece;
  }
};

}  // namespace switchyard::coll
