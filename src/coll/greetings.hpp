// What ranks tell each other as an operation begins: which one it is and, where that differs between ranks, how much they
// have for each other.
//
// Ranks of a node write into each other's windows, in the bank of the step. Ranks of other nodes take part where an operation
// wants them to; between them every such operation is a turn, with two banks of its own: who greets in turn n + 2 has heard
// everybody in turn n + 1, who by then had read what was said in turn n.
#pragma once
#include "coll/layout.hpp"
#include "switchyard/device/gin.hpp"

namespace switchyard::coll {

// Without the greatest number of all nobody knows how many pieces there are.
struct Announcement {
  uint64_t to_you;
  uint64_t greatest;  // of what I send to anybody
};

struct Greeting {
  uint64_t about;  // a digest of what all ranks have to agree on
  Announcement has;
  uint64_t epoch;  // between ranks of a node: of the step that begins when all have met. Published last
};
static_assert(sizeof(Greeting) <= Layout::kLine);

// Peers of Notices.
template <class P>
class Greeters {
 public:
  SWITCHYARD_DEVICE Greeters(const P& platform, const View& view, uint64_t epoch, bool everybody)
      : p_(platform),
        v_(view),
        gin_(platform, view.comm, kGreetingsContext),
        epoch_(epoch),
        turn_(platform.load_relaxed(&view.words[view.layout.turn_word()])),
        everybody_(everybody) {}

  SWITCHYARD_DEVICE int num_ranks() const { return v_.comm.world.num_ranks; }
  SWITCHYARD_DEVICE Greeting* box_for(int rank) const {
    if (is_near(rank)) return v_.window.template lsa_as<Greeting>(near(v_.comm.world.rank), rank);
    return everybody_ ? v_.window.template local_as<Greeting>(v_.layout.departed_greeting(bank(turn_), rank)) : nullptr;
  }
  SWITCHYARD_DEVICE const Greeting* box_of(int rank) const {
    return v_.window.template local_as<Greeting>(is_near(rank) ? near(rank) : v_.layout.far_greeting(bank(turn_), rank));
  }
  SWITCHYARD_DEVICE void publish(int rank) {
    if (is_near(rank)) return p_.store_release(&box_for(rank)->epoch, epoch_ + 1);  // release; pairs with the acquire in await()
    const GinStatus put = gin_.put(CoopWarp{}, rank, v_.window, v_.layout.far_greeting(bank(turn_), v_.comm.world.rank), v_.window,
                                   v_.layout.departed_greeting(bank(turn_), rank), sizeof(Greeting),
                                   SignalAdd{v_.layout.arrival_signal(v_.comm.world.rank)});
    if (put != GinStatus::kOk) lost_ = rank;
  }
  SWITCHYARD_DEVICE Await await(int rank) const {
    if (!is_near(rank) && !everybody_) return Await::kGone;
    if (is_near(rank)) return rolling_at_least(p_.load_acquire(&box_of(rank)->epoch), epoch_ + 1) ? Await::kReady : Await::kNotYet;
    if (rolling_at_least(gin_.read_signal(v_.layout.arrival_signal(rank)), turn_ + 1)) return Await::kReady;
    p_.net_progress(v_.comm.net);
    return Await::kNotYet;
  }

  // A rank that the network did not reach; -1 none.
  SWITCHYARD_DEVICE int lost() const { return lost_; }

 private:
  SWITCHYARD_DEVICE static int bank(uint64_t count) { return int(count % kNumBanks); }
  SWITCHYARD_DEVICE bool is_near(int rank) const { return v_.comm.lsa.contains(rank); }
  SWITCHYARD_DEVICE uint64_t near(int sender) const { return v_.layout.greeting(bank(epoch_), sender); }

  const P& p_;
  const View& v_;
  const Gin<P> gin_;
  const uint64_t epoch_, turn_;
  const bool everybody_;
  int lost_ = -1;
};

}  // namespace switchyard::coll
