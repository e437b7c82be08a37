// Writes of one source arrive in any order; signals are applied in the order in which they were sent.
#include "net/signal_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace switchyard {
namespace {

// Collects what is applied; signals carry their own number.
struct Applied {
  std::vector<uint64_t> values;
  void operator()(const Signal& signal) { values.push_back(signal.value); }
};

TEST(SignalOrder, AppliesInOrderWhateverOrderTheyArriveIn) {
  std::mt19937_64 engine(3);
  for (int round = 0; round < 200; ++round) {
    SignalOrder order;
    Applied applied;
    // More numbers than there are, in batches of what may be in flight.
    uint64_t sent = 0;
    while (sent < 3 * (kSequenceMask + 1) / 2) {
      std::vector<uint64_t> batch(1 + engine() % kSequenceSpan);
      for (uint64_t& number : batch) number = sent++;
      std::shuffle(batch.begin(), batch.end(), engine);
      for (const uint64_t number : batch) {
        ASSERT_TRUE(order.arrive(uint32_t(number) & kSequenceMask, {1, 0, number + 1}, std::ref(applied)));
      }
      ASSERT_EQ(applied.values.size(), sent) << "nothing is held back without a gap";
      if (round > 0) break;  // once all the way round the numbers
    }
    for (uint64_t i = 0; i < sent; ++i) ASSERT_EQ(applied.values[i], i + 1);
  }
}

TEST(SignalOrder, HoldsBackWhatComesBeforeItsPredecessors) {
  SignalOrder order;
  Applied applied;
  EXPECT_TRUE(order.arrive(2, {1, 0, 30}, std::ref(applied)));
  EXPECT_TRUE(order.arrive(1, {1, 0, 0}, std::ref(applied)));  // a write without a signal counts, too
  EXPECT_TRUE(applied.values.empty());
  EXPECT_TRUE(order.has_gap());
  EXPECT_TRUE(order.arrive(0, {1, 0, 10}, std::ref(applied)));
  EXPECT_FALSE(order.has_gap());
  EXPECT_EQ(applied.values, (std::vector<uint64_t>{10, 30}));
}

TEST(SignalOrder, RefusesWhatCannotBe) {
  SignalOrder order;
  Applied applied;
  EXPECT_TRUE(order.arrive(1, {1, 0, 1}, std::ref(applied)));
  EXPECT_FALSE(order.arrive(1, {1, 0, 1}, std::ref(applied))) << "twice";
  EXPECT_FALSE(order.arrive(kSequenceWindow, {1, 0, 1}, std::ref(applied))) << "too far ahead";
  EXPECT_FALSE(order.arrive(kSequenceMask, {1, 0, 1}, std::ref(applied))) << "long past";
  EXPECT_TRUE(order.arrive(0, {1, 0, 5}, std::ref(applied)));
  EXPECT_EQ(applied.values, (std::vector<uint64_t>{5, 1}));
  EXPECT_FALSE(order.arrive(0, {1, 0, 1}, std::ref(applied))) << "again";
}

TEST(SentOrder, WaitsForALateWriteHoweverManyOthersAreDelivered) {
  SentOrder sent;
  uint32_t num_posted = 0;
  for (; sent.has_room(); ++num_posted) {
    const uint32_t sequence = sent.next();
    sent.posted();
    if (sequence > 0) sent.delivered(sequence);
  }
  EXPECT_EQ(num_posted, kSequenceSpan);
  sent.delivered(0);
  for (uint32_t i = 0; i < 2 * kSequenceMask; ++i) {  // round the numbers
    ASSERT_TRUE(sent.has_room());
    const uint32_t sequence = sent.next();
    ASSERT_EQ(sequence, (num_posted + i) & kSequenceMask);
    sent.posted();
    sent.delivered(sequence);
  }
}

TEST(SentOrder, OneThatIsDeliveredInOrderVouchesForThoseBeforeIt) {
  SentOrder sent;
  for (uint32_t i = 0; i < 3 * (kSequenceMask + 1); ++i) {  // round the numbers
    ASSERT_EQ(sent.num_open(), i % kSequenceSpan);
    ASSERT_TRUE(sent.has_room());
    const uint32_t sequence = sent.next();
    sent.posted();
    if (i % kSequenceSpan != kSequenceSpan - 1) continue;
    EXPECT_FALSE(sent.has_room());
    sent.delivered_through((sequence - 1) & kSequenceMask);
    EXPECT_EQ(sent.num_open(), 1u);
    sent.delivered_through(sequence);
  }
}

}  // namespace
}  // namespace switchyard
