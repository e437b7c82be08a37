// An all-to-all of small messages, for kernels that must not block and may have to do without somebody: every rank keeps a box
// for every other. What is for whom is written into the boxes, published to all, and heard from each as it comes.
//
// With it the ranks in a collective learn what the others are doing and how much they have (greetings.hpp), and the update
// of a high-throughput handle exchanges its numbers (ep/ht_route.hpp). Both have their own idea of who is there, who is
// missing, and how a rank is told: that is the business of Peers.
//   int num_ranks()
//   Box* box_for(rank)         what I write for that rank: its box for me, or my copy of that; null: it is left out
//   const Box* box_of(rank)    what that rank wrote for me
//   void publish(rank)         what is in box_for(rank) is complete
//   Await await(rank)          has what that rank wrote for me come?
#pragma once
#include "switchyard/device/wait.hpp"

namespace switchyard::coll {

template <class Peers>
class Notices {
 public:
  SWITCHYARD_DEVICE explicit Notices(const Peers& peers) : peers_(peers) {}

  // write(rank, box), unless the rank is left out. All of it before anybody hears of it: who does may look at what others were told.
  template <class Write>
  SWITCHYARD_DEVICE void post(Write write) {
    for (int rank = 0; rank < peers_.num_ranks(); ++rank) {
      if (auto* const box = peers_.box_for(rank)) write(rank, box);
    }
    for (int rank = 0; rank < peers_.num_ranks(); ++rank) {
      if (peers_.box_for(rank) != nullptr) peers_.publish(rank);
    }
  }

  // body(rank, box) for every rank in order, as its message comes; a null box: it is left out or gone. False: the one of next()
  // has not come yet, and the caller is to ask again.
  template <class Body>
  SWITCHYARD_DEVICE bool hear(Body body) {
    for (; next_ < peers_.num_ranks(); ++next_) {
      const Await come = peers_.await(next_);
      if (come == Await::kNotYet) return false;
      body(next_, come == Await::kReady ? peers_.box_of(next_) : nullptr);
    }
    return true;
  }
  // Who is waited for. REQUIRES  hear() has returned false.
  SWITCHYARD_DEVICE int next() const { return next_; }

  SWITCHYARD_DEVICE const Peers& peers() const { return peers_; }

 private:
  Peers peers_;
  int next_ = 0;
};

}  // namespace switchyard::coll
