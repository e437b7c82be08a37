// Delivery in order: what a target does with the writes of one source, which may arrive in any order.
//
// Every write to a peer carries a sequence number. A signal counts only when its write and all earlier ones have arrived,
// so the receiver keeps what came too early until the gap before it is closed.
//
// THREADS    one at a time; the endpoint's lock.
// ERRORS     a number that is out of the window, or comes twice, is refused: the peer or the network is broken.
#pragma once
#include <array>
#include <cstdint>

namespace switchyard {

constexpr int kSequenceBits = 14;
constexpr uint32_t kSequenceMask = (1u << kSequenceBits) - 1;
// A source has at most half as many writes in flight, so that a number in the window names one write only.
constexpr uint32_t kSequenceWindow = 512;
constexpr uint32_t kMaxWritesInFlight = kSequenceWindow / 2;

struct Signal {
  uint32_t region = 0;
  uint64_t offset = 0;
  uint64_t value = 0;  // 0: the write carried no signal
};

class SignalOrder {
 public:
  // The write with this number has arrived. Calls apply(signal) for it and those it held up, in order, as far as there
  // is no gap. False: such a write can't be.
  template <class Apply>
  bool arrive(uint32_t sequence, const Signal& signal, Apply apply) {
    if (((sequence - next_) & kSequenceMask) >= kSequenceWindow) return false;
    Slot& slot = slots_[sequence % kSequenceWindow];
    if (slot.arrived) return false;
    slot = {true, signal};
    for (Slot* first = &slots_[next_ % kSequenceWindow]; first->arrived; first = &slots_[next_ % kSequenceWindow]) {
      if (first->signal.value != 0) apply(first->signal);
      first->arrived = false;
      next_ = (next_ + 1) & kSequenceMask;
    }
    return true;
  }

 private:
  struct Slot {
    bool arrived = false;
    Signal signal;
  };
  uint32_t next_ = 0;
  std::array<Slot, kSequenceWindow> slots_{};
};

}  // namespace switchyard
