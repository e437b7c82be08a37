#include "base/trace.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <set>
#include <string>
#include <thread>

namespace switchyard {

// Tearing between cores is too rare to wait for; this does what a writer does that is preempted after `num_words`
// stores and goes on when others have lapped it.
struct HalfWrittenRecord {
  static void write(TraceRing& ring, uint64_t late_record_idx, size_t num_words) {
    const TraceRing::Words words = {111, 222, 333, 0};
    TraceRing::Slot& slot = ring.slots_[late_record_idx & ring.mask_];
    for (size_t i = 0; i < num_words && i < 3; ++i) slot[i].store(words[i], std::memory_order_relaxed);
    if (num_words == 4) slot[3].store(TraceRing::check_word(words, late_record_idx), std::memory_order_relaxed);
  }
  static void claim(TraceRing& ring) { ring.head_.fetch_add(1, std::memory_order_relaxed); }
};

namespace {

void record_number(TraceRing& ring, uint64_t number) {
  ring.record(TracePhase::kPost, TraceEdge::kInstant, 0, 0, number);
}

TEST(TraceTest, AnEmptyRingHasNoRecords) {
  const TraceRing ring(16);
  EXPECT_TRUE(ring.snapshot().empty());
  EXPECT_EQ(ring.num_recorded(), 0u);
}

TEST(TraceTest, EveryFieldComesBackAtItsFullWidth) {
  TraceRing ring(16);
  ring.record(TracePhase::kError, TraceEdge::kEnd, 0xfffe, 0xfedcba98u, 0x0123456789abcdefu);
  ring.record(TracePhase::kDispatchSend, TraceEdge::kBegin, 0, 0, 0);
  const auto records = ring.snapshot();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].phase, TracePhase::kError);
  EXPECT_EQ(records[0].edge, TraceEdge::kEnd);
  EXPECT_EQ(records[0].peer, 0xfffe);
  EXPECT_EQ(records[0].epoch, 0xfedcba98u);
  EXPECT_EQ(records[0].value, 0x0123456789abcdefu);
  EXPECT_EQ(records[1].phase, TracePhase::kDispatchSend);
  EXPECT_EQ(records[1].edge, TraceEdge::kBegin);
  EXPECT_EQ(records[1].peer, 0);
  EXPECT_EQ(records[1].value, 0u);
}

TEST(TraceTest, AFullRingKeepsTheYoungestInOrder) {
  TraceRing ring(16);
  for (uint64_t i = 0; i < 16 * 3 + 5; ++i) record_number(ring, i);
  const auto records = ring.snapshot();
  ASSERT_EQ(records.size(), 16u);
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(records[i].value, 16 * 2 + 5 + i);
  EXPECT_EQ(ring.num_recorded(), 16u * 3 + 5);
}

TEST(TraceTest, CapacityIsRoundedUpToAPowerOfTwo) {
  EXPECT_EQ(TraceRing(17).capacity(), 32u);
  EXPECT_EQ(TraceRing(0).capacity(), 1u);
  EXPECT_EQ(TraceRing().capacity(), env().trace_records);
}

TEST(TraceTest, TimesAreThoseOfTheMonotonicClock) {
  TraceRing ring(64);
  // A window of 20 ms makes the jitter of reading two clocks small against the slope.
  const uint64_t before_ns = now_ns();
  for (int i = 0; i < 4; ++i) {
    const uint64_t until_ns = now_ns() + 5 * kMillisecond;
    while (now_ns() < until_ns) {
    }
    record_number(ring, now_ns());
  }
  const uint64_t after_ns = now_ns();
  uint64_t last_ns = before_ns;
  for (const TraceRecord& record : ring.snapshot()) {
    EXPECT_GE(record.time_ns, last_ns);
    EXPECT_LE(record.time_ns, after_ns + kMillisecond);
    // `value` was read just before the record was made; generous, because the thread may lose its core in between.
    EXPECT_NEAR(double(record.time_ns), double(record.value), 4e6);
    last_ns = record.time_ns;
  }
}

TEST(TraceTest, ASpanRecordsItsBeginAndItsEnd) {
  TraceRing ring(16);
  {
    TraceSpan span(ring, TracePhase::kBarrier, 7, 3);
    span.set_value(99);
  }
  const auto records = ring.snapshot();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].edge, TraceEdge::kBegin);
  EXPECT_EQ(records[0].value, 0u);
  EXPECT_EQ(records[1].edge, TraceEdge::kEnd);
  EXPECT_EQ(records[1].value, 99u);
  EXPECT_EQ(records[1].peer, 7);
  EXPECT_EQ(records[1].epoch, 3u);
}

TEST(TraceTest, RecordsOfManyThreadsAreAllThere) {
  constexpr uint64_t kNumThreads = 4, kNumEach = 1000;
  TraceRing ring(kNumThreads * kNumEach);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&ring, t] {
      for (uint64_t i = 0; i < kNumEach; ++i) record_number(ring, t * kNumEach + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> numbers;
  for (const TraceRecord& record : ring.snapshot()) numbers.insert(record.value);
  EXPECT_EQ(numbers.size(), kNumThreads * kNumEach);
}

TEST(TraceTest, ARecordThatIsClaimedButNotWrittenIsLeftOut) {
  TraceRing ring(4);
  for (uint64_t i = 0; i < 6; ++i) record_number(ring, i);
  HalfWrittenRecord::claim(ring);  // position 6: its slot still holds record 2
  const auto records = ring.snapshot();
  ASSERT_EQ(records.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(records[i].value, 3 + i);
}

TEST(TraceTest, ARecordThatALateWriterTouchedIsLeftOutWhereverItStopped) {
  for (size_t num_words = 1; num_words <= 4; ++num_words) {
    TraceRing ring(4);
    for (uint64_t i = 0; i < 8; ++i) record_number(ring, i);
    HalfWrittenRecord::write(ring, 1, num_words);  // over record 5
    const auto records = ring.snapshot();
    ASSERT_EQ(records.size(), 3u) << num_words;
    EXPECT_EQ(records[0].value, 4u);
    EXPECT_EQ(records[1].value, 6u);
    EXPECT_EQ(records[2].value, 7u);
  }
}

// Writers lap each other in a tiny ring while a reader looks: what it accepts must be what one writer wrote.
TEST(TraceTest, AReaderNeverAcceptsAMixtureOfTwoRecords) {
  TraceRing ring(2);
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (uint16_t t = 1; t <= 3; ++t) {
    writers.emplace_back([&, t] {
      for (uint32_t i = 0; !done.load(std::memory_order_relaxed); ++i) {  // relaxed: only ends the loop
        ring.record(TracePhase::kPost, TraceEdge::kInstant, t, i, (uint64_t(i) * t) ^ 0x5555555555555555u);
      }
    });
  }
  uint64_t num_accepted = 0, num_mixed = 0;
  const Deadline deadline = Deadline::after_ns(300 * kMillisecond);
  while (!deadline.expired()) {
    for (const TraceRecord& record : ring.snapshot()) {
      ++num_accepted;
      num_mixed += record.value != ((uint64_t(record.epoch) * record.peer) ^ 0x5555555555555555u);
    }
  }
  done.store(true, std::memory_order_relaxed);
  for (std::thread& writer : writers) writer.join();
  EXPECT_GT(num_accepted, 0u);
  EXPECT_EQ(num_mixed, 0u);
}

TEST(TraceTest, EveryPhaseHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kNumTracePhases; ++i) names.insert(trace_phase_name(TracePhase(i)));
  EXPECT_EQ(names.size(), size_t(kNumTracePhases));
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_STREQ(trace_phase_name(TracePhase(kNumTracePhases)), "unknown");
}

// Prints the cost; the limit only catches a lock or a system call that slipped in.
TEST(TraceTest, ARecordCostsNanoseconds) {
  TraceRing ring(16'384);
  constexpr uint64_t kNumRecords = 200'000;
  uint64_t best_ns = UINT64_MAX;
  for (int round = 0; round < 5; ++round) {
    const uint64_t begin_ns = now_ns();
    for (uint64_t i = 0; i < kNumRecords; ++i) record_number(ring, i);
    best_ns = std::min(best_ns, now_ns() - begin_ns);
  }
  const double ns_each = double(best_ns) / kNumRecords;
  std::printf("trace record: %.1f ns\n", ns_each);
  EXPECT_LT(ns_each, 500);
}

}  // namespace
}  // namespace switchyard
