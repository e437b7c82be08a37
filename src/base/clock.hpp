// Wall time for waits: nanoseconds of the monotonic clock, and deadlines made of it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

#include "switchyard/platform/backoff.hpp"

namespace switchyard {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

// A point in time that a wait must not outlast.
class Deadline {
 public:
  static Deadline after_ns(uint64_t ns) {
    const uint64_t now = now_ns();
    return Deadline(ns > std::numeric_limits<uint64_t>::max() - now ? std::numeric_limits<uint64_t>::max() : now + ns);
  }
  static Deadline never() { return Deadline(std::numeric_limits<uint64_t>::max()); }

  bool expired() const { return now_ns() >= at_ns_; }
  uint64_t remaining_ns() const {
    const uint64_t now = now_ns();
    return now >= at_ns_ ? 0 : at_ns_ - now;
  }
  // For poll(2) and friends: rounds up, so that a poll never returns just before the deadline in a busy loop.
  int remaining_ms() const {
    const uint64_t ms = (remaining_ns() + kMillisecond - 1) / kMillisecond;
    return int(std::min<uint64_t>(ms, 1u << 30));
  }
  uint64_t at_ns() const { return at_ns_; }

 private:
  explicit Deadline(uint64_t at_ns) : at_ns_(at_ns) {}
  uint64_t at_ns_;
};

}  // namespace switchyard
