// Sleeping on a 32-bit word and waking those who do. Only for threads of one process.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <limits>

#include "base/clock.hpp"

namespace switchyard {

// Sleeps while the word holds `expected`, at most until the deadline. May return early for no reason: callers loop.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Deadline deadline) {
  const timespec at{time_t(deadline.at_ns() / kSecond), long(deadline.at_ns() % kSecond)};
  const bool forever = deadline.at_ns() == Deadline::never().at_ns();
  // The BITSET form, because its timeout is a point in time of the monotonic clock, as a Deadline is.
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, forever ? nullptr : &at, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

inline void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace switchyard
