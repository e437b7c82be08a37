// Delivery in order: what a target does with the writes of one source, which may arrive in any order, and what the
// source does so that the target can.
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
// The writes of a source that are not all delivered span at most half as many numbers, so that a number in the window
// names one write only.
constexpr uint32_t kSequenceWindow = 512;
constexpr uint32_t kSequenceSpan = kSequenceWindow / 2;

struct Signal {
  uint32_t region = 0;
  uint64_t offset = 0;
  uint64_t value = 0;  // 0: the write carried no signal
};

template <int kBits, uint32_t kWindow>
class BasicSignalOrder {
 public:
  // The first number that has not arrived.
  uint32_t next() const { return next_; }
  // The write with this number has arrived. Calls apply(signal) for it and those it held up, in order, as far as there
  // is no gap. False: such a write can't be.
  template <class Apply>
  bool arrive(uint32_t sequence, const Signal& signal, Apply apply) {
    if (((sequence - next_) & kMask) >= kWindow) return false;
    Slot& slot = slots_[sequence % kWindow];
    if (slot.arrived) return false;
    slot = {true, signal};
    for (Slot* first = &slots_[next_ % kWindow]; first->arrived; first = &slots_[next_ % kWindow]) {
      if (first->signal.value != 0) apply(first->signal);
      first->arrived = false;
      next_ = (next_ + 1) & kMask;
    }
    return true;
  }

 private:
  struct Slot {
    bool arrived = false;
    Signal signal;
  };
  static constexpr uint32_t kMask = (1u << kBits) - 1;
  static_assert(kWindow <= kMask / 2 + 1 && (kWindow & (kWindow - 1)) == 0);

  uint32_t next_ = 0;
  std::array<Slot, kWindow> slots_{};
};
using SignalOrder = BasicSignalOrder<kSequenceBits, kSequenceWindow>;

// The source's side: the numbers of its writes to one peer. From the oldest that is not delivered on they span at most
// kSpan, however many of those in between are: else one late write would let the others run out of the target's window.
template <int kBits, uint32_t kSpan>
class BasicSentOrder {
 public:
  bool has_room(uint32_t num_writes = 1) const { return num_open() + num_writes <= kSpan; }
  // How many numbers the writes that are not delivered span.
  uint32_t num_open() const { return (next_ - oldest_) & kMask; }
  // REQUIRES  has_room(). The number of the write that is posted next; it is used up by posted().
  uint32_t next() const { return next_; }
  void posted() { next_ = (next_ + 1) & kMask; }
  // REQUIRES  it was posted, and is delivered for the first time.
  void delivered(uint32_t sequence) {
    delivered_[sequence % kSpan] = true;
    for (; delivered_[oldest_ % kSpan]; oldest_ = (oldest_ + 1) & kMask) delivered_[oldest_ % kSpan] = false;
  }

 private:
  static constexpr uint32_t kMask = (1u << kBits) - 1;
  static_assert(kSpan <= kMask / 2 + 1 && (kSpan & (kSpan - 1)) == 0);

  uint32_t next_ = 0, oldest_ = 0;
  std::array<bool, kSpan> delivered_{};
};
using SentOrder = BasicSentOrder<kSequenceBits, kSequenceSpan>;

}  // namespace switchyard
