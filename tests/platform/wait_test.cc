#include "platform/host/wait.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <thread>
#include <vector>

namespace switchyard {
namespace {

// A barrier made of nothing but wait_until().
class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads) {}
  void arrive_and_wait() {
    const int round = round_.load(std::memory_order_acquire);  // pairs with release below
    if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) == num_threads_ - 1) {
      num_arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);  // pairs with the acquires of the waiters
      return;
    }
    wait_until([&] { return round_.load(std::memory_order_acquire) != round; }, Deadline::never());
  }

 private:
  const int num_threads_;
  std::atomic<int> num_arrived_{0};
  std::atomic<int> round_{0};
};

TEST(WaitUntil, IsReadyAtOnceWhenThePredicateHoldsEvenPastItsDeadline) {
  EXPECT_EQ(wait_until([] { return true; }, Deadline::after_ns(0)), WaitResult::kReady);
}

TEST(WaitUntil, TimesOutNotBeforeItsDeadlineAndSoonAfter) {
  const uint64_t begin_ns = now_ns();
  EXPECT_EQ(wait_until([] { return false; }, Deadline::after_ns(5 * kMillisecond)), WaitResult::kTimeout);
  const uint64_t waited_ns = now_ns() - begin_ns;
  EXPECT_GE(waited_ns, 5 * kMillisecond);
  EXPECT_LT(waited_ns, 500 * kMillisecond);
}

TEST(WaitUntil, LooksOnceMoreAfterTheDeadline) {
  // True only after the deadline: a thread that slept through the whole wait must still find what is there.
  const Deadline deadline = Deadline::after_ns(kMillisecond);
  EXPECT_EQ(wait_until([&] { return deadline.expired(); }, deadline), WaitResult::kReady);
}

TEST(WaitUntil, EndsAbortedWhenTheFlagIsRaised) {
  std::atomic<uint32_t> abort{0};
  std::thread raiser([&] { abort.store(1, std::memory_order_release); });
  EXPECT_EQ(wait_until([] { return false; }, Deadline::after_ns(30 * kSecond), &abort), WaitResult::kAborted);
  raiser.join();
}

TEST(WaitUntil, PrefersReadyOverAborted) {
  const std::atomic<uint32_t> abort{1};
  EXPECT_EQ(wait_until([] { return true; }, Deadline::never(), &abort), WaitResult::kReady);
}

TEST(WaitUntil, LooksRarelyWhenItWaitsLong) {
  int num_looks = 0;
  EXPECT_EQ(wait_until([&] { return ++num_looks == 0; }, Deadline::after_ns(200 * kMillisecond)), WaitResult::kTimeout);
  EXPECT_LT(num_looks, 3'000);  // naps of 20-200 us; yielding alone looks hundreds of thousands of times
}

TEST(WaitUntil, LetsManyMoreThreadsThanCoresMeetInABarrier) {
  constexpr int kNumThreads = 16, kNumRounds = 500;
  Barrier barrier(kNumThreads);
  std::atomic<int> num_in_round{0};
  std::atomic<bool> out_of_step{false};
  const uint64_t begin_ns = now_ns();
  std::vector<std::thread> threads;
  for (int thread_idx = 0; thread_idx < kNumThreads; ++thread_idx) {
    threads.emplace_back([&] {
      for (int round = 1; round <= kNumRounds; ++round) {
        num_in_round.fetch_add(1, std::memory_order_relaxed);
        barrier.arrive_and_wait();
        if (num_in_round.load(std::memory_order_relaxed) != round * kNumThreads) out_of_step.store(true);
        barrier.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double barrier_us = double(now_ns() - begin_ns) / 1e3 / (2 * kNumRounds);
  EXPECT_FALSE(out_of_step.load());
  std::printf("%d threads on %u cores: %.1f us a barrier\n", kNumThreads, std::thread::hardware_concurrency(),
              barrier_us);
  EXPECT_LT(barrier_us, 5'000);  // generous: the machine is shared; without yielding it is tens of milliseconds
}

}  // namespace
}  // namespace switchyard
