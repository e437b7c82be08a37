// The trace ring of a rank: the last few thousand things it did, always on.
//
// A record costs one fetch_add, one time-stamp counter and four stores, whatever else is going on; nobody ever waits.
// The oldest records are overwritten. A reader may look at any time: each record carries a check word over its content
// and its position, so that one that is being (over)written is recognised and left out, without ordering any of the
// stores. (A preempted writer may finish its record a lap late; a plain sequence number would not catch that mixture.)
//
// THREADS    record() and snapshot(): any thread, at the same time.
// OWNERSHIP  the ring owns its memory; a snapshot is a copy.
// ERRORS     none.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/clock.hpp"
#include "base/env.hpp"

namespace switchyard {

// What a rank was doing. Append only: trace files carry the numbers.
enum class TracePhase : uint8_t {
  kDispatchSend,
  kDispatchReceive,
  kCombineSend,
  kCombineReceive,
  kWaitPeer,
  kBarrier,
  kBootstrap,
  kWindow,  // registration of symmetric memory
  kPost,    // an operation handed to a stream or to the network
  kHandle,  // routing exchanged and planned
  kCollective,
  kMask,  // a rank masked or re-admitted
  kError,
  kDispatch,  // both halves in one
  kCombine,
};
constexpr int kNumTracePhases = int(TracePhase::kCombine) + 1;

const char* trace_phase_name(TracePhase phase);

enum class TraceEdge : uint8_t { kInstant, kBegin, kEnd };

// `peer` of a record that concerns no single peer.
constexpr uint16_t kNoTracePeer = 0xffff;

struct TraceRecord {
  uint64_t time_ns;  // of the monotonic clock, so that ranks of one machine share it
  uint64_t value;    // bytes, rows or a code, as the phase has it
  uint32_t epoch;    // low half of the operation's epoch
  uint16_t peer;
  TracePhase phase;
  TraceEdge edge;
};

class TraceRing {
 public:
  // The capacity is rounded up to a power of two.
  explicit TraceRing(uint64_t num_records = env().trace_records);
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  void record(TracePhase phase, TraceEdge edge, uint16_t peer, uint32_t epoch, uint64_t value) {
    // Relaxed: makes positions unique and orders nothing.
    const uint64_t record_idx = head_.fetch_add(1, std::memory_order_relaxed);
    const Words words = {read_ticks(), value,
                         uint64_t(epoch) | uint64_t(peer) << 32 | uint64_t(phase) << 48 | uint64_t(edge) << 56, 0};
    Slot& slot = slots_[record_idx & mask_];
    // Relaxed, like the loads in snapshot(): the check word alone decides whether the four belong together.
    slot[0].store(words[0], std::memory_order_relaxed);
    slot[1].store(words[1], std::memory_order_relaxed);
    slot[2].store(words[2], std::memory_order_relaxed);
    slot[3].store(check_word(words, record_idx), std::memory_order_relaxed);
  }

  // The records that are whole at this moment, oldest first.
  std::vector<TraceRecord> snapshot() const;

  // Records ever written; more than capacity() means that the oldest are gone.
  uint64_t num_recorded() const { return head_.load(std::memory_order_relaxed); }
  uint64_t capacity() const { return mask_ + 1; }

 private:
  friend struct HalfWrittenRecord;  // a test that leaves a record as a preempted writer would
  using Words = std::array<uint64_t, 4>;
  using Slot = std::array<std::atomic<uint64_t>, 4>;
  static_assert(sizeof(Slot) == 32, "two records to a cache line");

  static uint64_t read_ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return now_ns();
#endif
  }

  // Rotations keep equal differences in two words from cancelling out; + 1 tells record 0 from an empty slot.
  static uint64_t check_word(const Words& words, uint64_t record_idx) {
    return words[0] ^ std::rotl(words[1], 21) ^ std::rotl(words[2], 42) ^ (record_idx + 1);
  }

  const uint64_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  // Where ticks and nanoseconds met first; snapshot() finds the second point of the line between them.
  const uint64_t first_ticks_;
  const uint64_t first_ns_;
  alignas(64) std::atomic<uint64_t> head_{0};
};

// Records the begin of a phase now, and its end, with `value`, when it goes out of scope.
class TraceSpan {
 public:
  TraceSpan(TraceRing& ring, TracePhase phase, uint16_t peer, uint32_t epoch, uint64_t value = 0)
      : ring_(ring), phase_(phase), peer_(peer), epoch_(epoch), value_(value) {
    ring_.record(phase_, TraceEdge::kBegin, peer_, epoch_, value_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() { ring_.record(phase_, TraceEdge::kEnd, peer_, epoch_, value_); }

  // What the end will say, where it is known only then.
  void set_value(uint64_t value) { value_ = value; }

 private:
  TraceRing& ring_;
  const TracePhase phase_;
  const uint16_t peer_;
  const uint32_t epoch_;
  uint64_t value_;
};

}  // namespace switchyard
