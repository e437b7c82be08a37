// A peer that does not answer: its window of numbers fills up, and whoever posts then is told to come back, holds up
// nobody, and is counted right whatever becomes of the peer meanwhile.
#include <gtest/gtest.h>

#include <thread>

#include "base/failpoint.hpp"
#include "net/net_rank.hpp"
#include "net/signal_order.hpp"

namespace switchyard::testing {
namespace {

class FullWindow : public ::testing::Test {
 protected:
  void TearDown() override { clear_failpoints(); }

  static void await_hit(const char* name) {
    EXPECT_EQ(wait_until([&] { return failpoint_hits(name) > 0; }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady) << name;
  }
  // Rank 1 takes in no more once it has got a first write.
  static void stop_other(NetRank& self) {
    ASSERT_TRUE(set_failpoint("net.write_arrived", "delay:60000@1").ok());
    ASSERT_EQ(self.put(self.put_of(0, 0, 8, 0)), NetPost::kPosted);
    await_hit("net.write_arrived");
  }
  // And then there is one that it has to answer.
  static void pin(NetRank& self) {
    stop_other(self);
    Delivery delivery;
    ASSERT_EQ(self.net.deliver(delivery), NetPost::kBusy);
  }
  static void release() { ASSERT_TRUE(set_failpoint("net.write_arrived", "off").ok()); }

  // Posts until there is no room any more; how many.
  static uint64_t fill(NetRank& self, const NetPut& put) {
    uint64_t num_posted = 0;
    while (num_posted < kSequenceMask && self.net.put(put) == NetPost::kPosted) ++num_posted;
    return num_posted;
  }
};

// Rank 0 runs the body; rank 1 helps nobody and is there until it is over. `heard`: of its first signal.
template <class Body>
void with_idle_peer(Body body) {
  ThreadRanks ranks(2, {.timeout_ns = 30 * kSecond, .net = "ofi"}, {0, 1});
  std::atomic<const NetRank*> other = nullptr;
  std::atomic<bool> is_over = false;
  ranks.on_all([&](int rank) {
    NetRank self(ranks.comm(rank));
    ASSERT_TRUE(self.comm.barrier().ok());
    if (rank == 0) {
      ASSERT_EQ(wait_until([&] { return other.load() != nullptr; }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      body(self, [&] { return other.load()->signal(0); });
      is_over = true;
      return;
    }
    other = &self;
    EXPECT_EQ(wait_until([&] { return is_over.load(); }, Deadline::after_ns(100 * kSecond)), WaitResult::kReady);
  });
}

// Of a put whose signal travels apart nothing goes before there is room for both.
TEST_F(FullWindow, WhoFindsNoRoomForAllOfAPutComesBack) {
  with_idle_peer([&](NetRank& self, const auto& heard) {
    pin(self);
    constexpr uint64_t kValue = 1 << 20;  // does not fit beside the data
    const NetPut put = self.put_of(64, 64, 64, 0, kValue);
    const uint64_t begin_ns = now_ns();
    const uint64_t num_posted = fill(self, put);
    EXPECT_LT(now_ns() - begin_ns, 10 * kSecond) << "the rank was held up";
    EXPECT_EQ(num_posted, (kSequenceSpan - 1) / 2);  // one is the write that is to be answered
    EXPECT_TRUE(self.net.usable(1)) << self.net.why_lost(1).to_string();
    release();
    EXPECT_EQ(self.put(put), NetPost::kPosted);
    EXPECT_EQ(self.deliver(), NetPost::kPosted);
    const uint64_t all = 1 + (num_posted + 1) * kValue;
    EXPECT_EQ(wait_until([&] { return heard() == all; }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady) << heard();
  });
}

// What a connection takes along goes without a word; of so many numbers that the next is due all the same it must not be.
TEST_F(FullWindow, FewerWritesAreUnansweredThanThereAreNumbers) {
  with_idle_peer([&](NetRank& self, const auto& heard) {
    stop_other(self);
    const uint64_t num_posted = fill(self, self.put_of(64, 64, 8, 0));
    EXPECT_GT(num_posted, kSequenceSpan) << "nothing is on its way";
    EXPECT_LT(num_posted, kSequenceMask / 2);
    release();
    EXPECT_EQ(self.deliver(), NetPost::kPosted);
    const uint64_t all = 1 + num_posted;
    EXPECT_EQ(wait_until([&] { return heard() == all; }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady) << heard();
  });
}

// Others may post on and on.
TEST_F(FullWindow, ADeliveryWaitsForNothingThatWasPostedLater) {
  with_idle_peer([&](NetRank& self, const auto& heard) {
    stop_other(self);
    Delivery delivery;
    ASSERT_EQ(self.net.deliver(delivery), NetPost::kBusy);
    EXPECT_TRUE(delivery.is_open[1]);
    const NetPut put = self.put_of(64, 64, 64, 0);
    ASSERT_EQ(self.net.put(put), NetPost::kPosted);
    release();
    uint64_t num_posted = 2;
    const auto is_delivered = [&] {
      num_posted += self.net.put(put) == NetPost::kPosted;
      return self.net.deliver(delivery) == NetPost::kPosted;
    };
    EXPECT_EQ(wait_until(is_delivered, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
    EXPECT_GE(heard(), 1u);
    EXPECT_EQ(self.deliver(), NetPost::kPosted);
    EXPECT_EQ(wait_until([&] { return heard() == num_posted; }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
  });
}

// The rank is in the middle of a post, for which there is room once the peer has been given up.
TEST_F(FullWindow, WhatGoesToOneThatWasGivenUpMeanwhileIsNotWaitedFor) {
  with_idle_peer([&](NetRank& self, const auto& heard) {
    pin(self);
    const NetPut put = self.put_of(64, 64, 64, 0);
    const uint64_t num_posted = fill(self, put);
    ASSERT_EQ(num_posted, kSequenceSpan - 1);
    ASSERT_TRUE(set_failpoint("net.window_full", "delay:60000@1").ok());
    std::thread news([&] {
      await_hit("net.window_full");
      self.net.give_up(1, "its process died");
      release();
      EXPECT_EQ(wait_until([&] { return heard() == 1 + num_posted; }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      ASSERT_TRUE(set_failpoint("net.window_full", "off").ok());
    });
    EXPECT_EQ(self.net.put(put), NetPost::kPosted) << "no room, or given up too early";
    news.join();
    EXPECT_EQ(self.flush(), NetPost::kPosted);
    EXPECT_EQ(self.net.bytes_in_flight(), 0u);
    EXPECT_EQ(self.net.put(put), NetPost::kFailed);
  });
}

}  // namespace
}  // namespace switchyard::testing
