#include "base/clock.hpp"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(ClockTest, TimeDoesNotRunBackwards) {
  uint64_t last_ns = now_ns();
  for (int i = 0; i < 1000; ++i) {
    const uint64_t ns = now_ns();
    EXPECT_GE(ns, last_ns);
    last_ns = ns;
  }
}

TEST(DeadlineTest, OneInThePastHasExpiredAndLeavesNothing) {
  const Deadline deadline = Deadline::after_ns(0);
  EXPECT_TRUE(deadline.expired());
  EXPECT_EQ(deadline.remaining_ns(), 0u);
  EXPECT_EQ(deadline.remaining_ms(), 0);
}

TEST(DeadlineTest, OneInTheFutureLeavesAtMostWhatItWasGiven) {
  const Deadline deadline = Deadline::after_ns(100 * kSecond);
  EXPECT_FALSE(deadline.expired());
  EXPECT_LE(deadline.remaining_ns(), 100 * kSecond);
  EXPECT_GT(deadline.remaining_ns(), 90 * kSecond);
}

TEST(DeadlineTest, MillisecondsAreRoundedUpSoThatAPollDoesNotWakeEarly) {
  const Deadline deadline = Deadline::after_ns(100 * kSecond + 1);
  const uint64_t remaining_ns = deadline.remaining_ns();
  const int remaining_ms = deadline.remaining_ms();
  EXPECT_LE(uint64_t(remaining_ms), remaining_ns / kMillisecond + 1);
  EXPECT_GE((uint64_t(remaining_ms)) * kMillisecond, deadline.remaining_ns());
}

TEST(DeadlineTest, NeverStaysInTheFutureAndFitsAPoll) {
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_GT(Deadline::never().remaining_ms(), 0);
}

TEST(DeadlineTest, AHugeTimeoutSaturatesInsteadOfWrappingAround) {
  const Deadline deadline = Deadline::after_ns(std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(deadline.expired());
  EXPECT_EQ(deadline.at_ns(), Deadline::never().at_ns());
}

TEST(DeadlineTest, ItExpiresOnceItsTimeHasCome) {
  const Deadline deadline = Deadline::after_ns(kMillisecond);
  const uint64_t give_up_ns = now_ns() + 10 * kSecond;
  while (!deadline.expired() && now_ns() < give_up_ns) {
  }
  EXPECT_TRUE(deadline.expired());
  EXPECT_GE(now_ns(), deadline.at_ns());
}

}  // namespace
}  // namespace switchyard
