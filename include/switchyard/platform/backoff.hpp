// How a CPU waits: it burns half a microsecond (with a core per rank the answer is usually that close), then gives the
// core away on each look (with more ranks than cores the thread that would make it true needs this very core), and after
// kYieldNs it sleeps in short naps, so that a long wait costs next to nothing.
// The few busy spins are measured: 48 instead of 16 double the time of a barrier of 16 threads on 2 cores.
//
// THREADS  a Backoff belongs to one wait of one thread.
#pragma once
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

namespace switchyard {

// Nanoseconds of the monotonic clock.
inline uint64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return uint64_t(ts.tv_sec) * 1'000'000'000u + uint64_t(ts.tv_nsec);
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // "yield" is a no-op on most cores; isb really stalls the pipeline a little
#endif
}

class Backoff {
 public:
  // Waits a little, longer the longer this wait has lasted, but never more than kMaxNapNs.
  void pause() {
    if (spin()) return;
    if (waited_ns_ < kYieldNs) return;
    // An eighth of the time already waited: a late answer is noticed late by at most that share.
    const uint64_t nap_ns = std::clamp(waited_ns_ / 8, kMinNapNs, kMaxNapNs);
    const timespec nap{0, long(nap_ns)};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
  }

  // Like pause(), but never sleeps: for those who have something better to sleep on (a futex).
  // True while still too early to even look at the clock.
  bool spin() {
    if (num_spins_ < kNumBusySpins) {
      ++num_spins_;
      cpu_relax();
      return true;
    }
    sched_yield();
    now_ns_ = switchyard::now_ns();
    if (started_ns_ == 0) started_ns_ = now_ns_;
    waited_ns_ = now_ns_ - started_ns_;
    return false;
  }

  void reset() { *this = Backoff(); }

  // The clock as of the last pause; 0 during the busy spins. Saves the caller a clock read per look.
  uint64_t now_ns() const { return now_ns_; }
  uint64_t waited_ns() const { return waited_ns_; }

  static constexpr uint32_t kNumBusySpins = 16;
  static constexpr uint64_t kYieldNs = 100'000;
  static constexpr uint64_t kMinNapNs = 20'000;
  static constexpr uint64_t kMaxNapNs = 200'000;

 private:
  uint32_t num_spins_ = 0;
  uint64_t started_ns_ = 0;
  uint64_t now_ns_ = 0;
  uint64_t waited_ns_ = 0;
};

}  // namespace switchyard
