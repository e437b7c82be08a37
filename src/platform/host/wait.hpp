// The one way to wait on the host side: wait_until(), over Backoff (switchyard/platform/backoff.hpp). No other loop may spin.
//
// ERRORS    none; a wait ends as ready, timed out or aborted.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "switchyard/platform/backoff.hpp"

namespace switchyard {

enum class WaitResult { kReady, kTimeout, kAborted };

// Waits until ready() is true, the deadline passes, or *abort becomes nonzero (abort may be null).
// ready() runs on this thread, often, and always once more after the clock was seen to pass the deadline: a thread that
// was not scheduled for long does not report a timeout for something that is there.
// BLOCKING  until the deadline; may overshoot it by one nap (Backoff::kMaxNapNs).
template <class Pred>
WaitResult wait_until(Pred ready, Deadline deadline, const std::atomic<uint32_t>* abort = nullptr) {
  Backoff backoff;
  for (;;) {
    if (ready()) return WaitResult::kReady;
    // acquire; pairs with the release store of whoever raises the abort flag, so that the reason is visible
    if (abort != nullptr && abort->load(std::memory_order_acquire) != 0) return WaitResult::kAborted;
    if (backoff.now_ns() >= deadline.at_ns()) return WaitResult::kTimeout;
    backoff.pause();
  }
}

// For who must not wait as long as whoever holds the lock: false, and not locked, when the time is over.
// REQUIRES  lock was made with std::defer_lock.
template <class Lock>
bool lock_within(Lock& lock, uint64_t limit_ns) {
  return wait_until([&] { return lock.try_lock(); }, Deadline::after_ns(limit_ns)) == WaitResult::kReady;
}

}  // namespace switchyard
