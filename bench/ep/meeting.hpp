// Timing that begins at one instant on all ranks. A barrier ends at different times on different ranks, and on a
// machine with fewer cores than ranks by whole time slices; so the ranks agree on a point of the monotonic clock, which
// all processes of a machine share, and sleep until then.
//
// THREADS    one per rank; every call is COLLECTIVE.
// ERRORS     those of the work, after the communicator was aborted so that nobody waits for this rank.
// BLOCKING   up to the communicator's time limit.
#pragma once
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "comm/communicator.hpp"
#include "platform/host/wait.hpp"

namespace switchyard::bench {

inline void sleep_until_ns(uint64_t at_ns) {
  const timespec at{time_t(at_ns / kSecond), long(at_ns % kSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) continue;
}
inline void sleep_ns(uint64_t ns) { sleep_until_ns(now_ns() + ns); }

class Meeting {
 public:
  explicit Meeting(Communicator& comm) : comm_(comm) {
    prctl(PR_SET_TIMERSLACK, 1UL);  // else the kernel may wake us 50 us late
  }

  Communicator& comm() const { return comm_; }

  // The time from the common beginning of work() until the last rank was through with it, in ns. Each rank calls
  // prepare() shortly before.
  // EFFECTS repeats both as long as a rank learned of the instant only after it had passed.
  template <class Work, class Prepare>
  Result<double> time(Work work, Prepare prepare) {
    for (int attempt = 0; attempt < kMaxAttempts; attempt++) {
      SWITCHYARD_ASSIGN(const uint64_t begin_ns, agree_on_instant());
      const bool late = now_ns() > begin_ns;
      sleep_until_ns(begin_ns - kAwakeNs);
      Status done = prepare();
      wait_until([&] { return now_ns() >= begin_ns; }, Deadline::after_ns(kSecond));
      if (done.ok()) done = work();
      if (!done.ok()) {
        comm_.abort(done.message());
        return done;
      }
      const Outcome mine{double(now_ns() - begin_ns), late};
      SWITCHYARD_ASSIGN(const std::vector<Outcome> outcomes, comm_.exchange(mine));
      double slowest_ns = 0;
      bool any_late = false;
      for (const Outcome& outcome : outcomes) {
        slowest_ns = std::max(slowest_ns, outcome.elapsed_ns);
        any_late |= outcome.late != 0;
      }
      if (!any_late) return slowest_ns;
      margin_ns_ = std::min(2 * margin_ns_, kMaxMarginNs);
    }
    return Status::internal(text("the ranks could not begin together in ", kMaxAttempts,
                                 " attempts; this machine is too busy to measure on"));
  }
  template <class Work>
  Result<double> time(Work work) {
    return time(work, [] { return Status(); });
  }

  // The greatest of the ranks' values, and their sum.
  Result<double> greatest(double value) const {
    SWITCHYARD_ASSIGN(const std::vector<double> values, comm_.exchange(value));
    return *std::max_element(values.begin(), values.end());
  }
  Result<uint64_t> sum(uint64_t value) const {
    SWITCHYARD_ASSIGN(const std::vector<uint64_t> values, comm_.exchange(value));
    uint64_t total = 0;
    for (const uint64_t part : values) total += part;
    return total;
  }

 private:
  static constexpr int kMaxAttempts = 20;
  static constexpr uint64_t kMaxMarginNs = 100 * kMillisecond;
  static constexpr uint64_t kAwakeNs = 50'000;  // awake for the last bit: waking up takes about as long

  struct Outcome {
    double elapsed_ns;
    uint64_t late;
  };

  Result<uint64_t> agree_on_instant() const {
    SWITCHYARD_ASSIGN(const std::vector<uint64_t> proposals, comm_.exchange(now_ns() + margin_ns_));
    return *std::max_element(proposals.begin(), proposals.end());
  }

  Communicator& comm_;
  uint64_t margin_ns_ = kMillisecond;  // equal on all ranks: it changes with what all of them exchanged
};

}  // namespace switchyard::bench
