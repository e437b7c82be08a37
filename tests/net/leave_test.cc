// A rank that leaves a communicator in good order while others go on: its connections end, and nobody has lost it. Who
// really can't be reached any more is noticed, whatever else is going on.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/failpoint.hpp"
#include "coll/collectives.hpp"
#include "net/net_rank.hpp"
#include "net/ways.hpp"
#include "switchyard/device/gin.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::testing {
namespace {

class Leave : public ::testing::TestWithParam<NetWay> {
 protected:
  void TearDown() override { clear_failpoints(); }
  Communicator::Options options() const { return GetParam().options(30 * kSecond); }
};
INSTANTIATE_TEST_SUITE_P(All, Leave, ::testing::ValuesIn(all_ways()), name_of_way);

// An all-reduce, then a broadcast from rank 0, which leaves after it; rank 2 comes late to that one.
void broadcast_and_leave(Communicator& comm, StreamRef ref, Stream& stream, std::chrono::milliseconds late) {
  auto made = coll::Collectives::create(comm, {});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  coll::Collectives& collectives = *made.value();
  std::vector<float> in(4096, float(comm.rank())), out(in.size());
  const auto finish = [&](Status status) {
    if (status.ok()) status = stream.synchronize(Deadline::after_ns(60 * kSecond));
    EXPECT_TRUE(status.ok()) << "rank " << comm.rank() << ": " << status.to_string();
  };
  finish(collectives.all_reduce(in.data(), out.data(), in.size(), DType::kFloat32, coll::ReduceOp::kSum, ref));
  EXPECT_EQ(out[0], 3.0f);
  if (comm.rank() == 2) std::this_thread::sleep_for(late);
  finish(collectives.broadcast(in.data(), out.data(), in.size(), DType::kFloat32, 0, ref));
  EXPECT_EQ(out[4095], 0.0f);
}

// Later than a rank would be given up that takes no connection.
TEST_P(Leave, WhoLeavesAPartIsNotMissedByThoseWhoNeedNothingOfIt) {
  ThreadRanks ranks(3, options(), {0, 1, 1});
  ranks.on_all([&](int rank) {
    const std::unique_ptr<Communicator> part = ranks.comm(rank).split(0, rank).value();
    broadcast_and_leave(*part, ranks.stream_ref(rank), ranks.stream(rank), std::chrono::milliseconds(2500));
  });
}

// Others have time to find its connections ended before they hear why.
TEST_P(Leave, WhoLeavesTheJobIsNotMissedByThoseWhoNeedNothingOfIt) {
  ASSERT_TRUE(set_failpoint("bootstrap.departure_unsent", "delay:200").ok());
  for (int round = 0; round < 5; ++round) {
    ThreadRanks ranks(3, options(), {0, 1, 1});
    ranks.on_all([&](int rank) {
      broadcast_and_leave(ranks.comm(rank), ranks.stream_ref(rank), ranks.stream(rank), std::chrono::milliseconds(30));
      if (rank == 0) ranks.leave(0);
    });
  }
}

// Also at one who is busy for a while.
TEST_P(Leave, WhatWasPostedBeforeArrives) {
  for (const char* busy : {"off", "delay:2000@1"}) {
    ThreadRanks ranks(2, options(), {0, 1});
    ranks.on_all([&](int rank) {
      NetRank self(ranks.comm(rank));
      ASSERT_TRUE(self.comm.barrier().ok());
      constexpr uint64_t kPuts = 16, kBytes = kDataBytes;  // more than a kernel holds
      if (rank == 0) {
        ASSERT_TRUE(set_failpoint("net.write_arrived", busy).ok());
        for (uint64_t i = 0; i < kPuts; ++i) {
          ASSERT_EQ(self.put(self.put_of(0, 0, kBytes, 1)), NetPost::kPosted);
        }
        ranks.leave(0);
      } else {
        EXPECT_TRUE(self.wait_signal(1, kPuts)) << self.signal(1);
      }
    });
  }
}

// Rank 1 ends its part of the network without a word; then rank 0 goes on.
void end_without_a_word(const Communicator::Options& options, const std::function<void(NetRank&, Deadline)>& go_on) {
  ThreadRanks ranks(2, options, {0, 1});
  std::atomic<bool> is_gone = false;
  ranks.on_all([&](int rank) {
    std::unique_ptr<Communicator> part = ranks.comm(rank).split(0, rank).value();
    NetRank self(*part);
    ASSERT_EQ(self.put(self.put_of(0, 0, 64, 0)), NetPost::kPosted);
    ASSERT_TRUE(self.wait_signal(0, 1));
    ASSERT_TRUE(part->barrier().ok());
    if (rank == 1) {
      ASSERT_TRUE(set_failpoint("communicator.leaves_without_a_word", "error#1").ok());
      set_failpoint_rank(1);
      part.reset();
      is_gone = true;
      return;
    }
    const Deadline deadline = Deadline::after_ns(30 * kSecond);
    ASSERT_EQ(wait_until([&] { return is_gone.load(); }, deadline), WaitResult::kReady);
    go_on(self, deadline);
  });
}

// Who finds the connections ended of one that leaves may hear of it later.
TEST_P(Leave, WhoIsHeardToLeaveWhileItIsNotReachedHasOnlyLeft) {
  end_without_a_word(options(), [](NetRank& self, Deadline deadline) {
    uint64_t counter = 0, num_posted = 0;
    NetPut put = self.put_of(0, 0, 64);
    put.counter = &counter;
    // Until this end has found that nothing gets there any more.
    const auto is_suspected = [&] {
      self.net.progress();
      const NetPost posted = self.net.put(put);
      num_posted += posted == NetPost::kPosted;
      return posted != NetPost::kPosted;
    };
    ASSERT_EQ(wait_until(is_suspected, deadline), WaitResult::kReady);
    EXPECT_TRUE(self.net.usable(1)) << self.net.why_lost(1).to_string();
    self.net.forget(1);
    self.net.catch_up();
    EXPECT_TRUE(self.net.usable(1)) << self.net.why_lost(1).to_string();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(self.net.put(put), NetPost::kPosted) << i;
    EXPECT_EQ(self.flush(), NetPost::kPosted);
    EXPECT_TRUE(self.net.why_lost(1).ok());
    EXPECT_EQ(counter, num_posted + 1000) << "of those on its way, too, the sources may be reused";
  });
}

// And who is not heard to is lost, for good.
TEST_P(Leave, WhoEndsWithoutAWordIsLost) {
  end_without_a_word(options(), [](NetRank& self, Deadline deadline) {
    const auto is_lost = [&] {
      self.net.progress();
      return self.net.put(self.put_of(0, 0, 64)) == NetPost::kFailed;
    };
    ASSERT_EQ(wait_until(is_lost, deadline), WaitResult::kReady);
    EXPECT_FALSE(self.net.usable(1));
    EXPECT_NE(self.net.why_lost(1).message().find("the network lost rank 1"), std::string::npos);
    self.net.forget(1);
    self.net.catch_up();
    EXPECT_FALSE(self.net.usable(1));
  });
}

// More than anything on the way has room for, and what is for others does not stand behind it.
TEST_P(Leave, WhatIsPostedToOneThatHasLeftGoesNowhereAndHoldsUpNobody) {
  ThreadRanks ranks(3, options(), {0, 1, 2});
  std::atomic<bool> has_left = false;
  ranks.on_all([&](int rank) {
    std::unique_ptr<Communicator> part = ranks.comm(rank).split(0, rank).value();
    constexpr size_t kBytes = 4096;
    const WindowView data = part->view(*part->register_window(part->runtime().allocate(kBytes).value(), kBytes).value());
    auto device = part->create_device_comm({.num_signals = 1, .num_counters = 1});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    const HostPlatform p;
    const Gin<HostPlatform> gin(p, *device, 0);
    const auto put_to = [&](int peer) {
      return gin.put(CoopThread{}, peer, data, 0, data, 64, 64, SignalAdd{0, 1}, CounterAdd{0});
    };
    if (rank == 0) {
      ASSERT_EQ(put_to(2), GinStatus::kOk);
    }
    if (rank == 2) {
      ASSERT_EQ(gin.wait_signal(0, 1, 0), GinStatus::kOk);
      part.reset();
      has_left = true;
    } else if (rank == 0) {
      const Deadline deadline = Deadline::after_ns(20 * kSecond);
      ASSERT_EQ(wait_until([&] { return has_left && part->why_gone(2).find("has left") != std::string::npos; }, deadline),
                WaitResult::kReady);
      const uint64_t begin_ns = now_ns();
      constexpr uint64_t kPuts = 2000;
      for (uint64_t i = 0; i < kPuts; ++i) ASSERT_EQ(put_to(2), GinStatus::kOk) << i;
      ASSERT_EQ(put_to(1), GinStatus::kOk);
      ASSERT_EQ(gin.flush(), GinStatus::kOk);
      EXPECT_EQ(gin.read_counter(0), 1 + kPuts + 1);
      EXPECT_LT(now_ns() - begin_ns, promise_ns());
    } else {
      EXPECT_EQ(gin.wait_signal(0, 1, 0), GinStatus::kOk);
    }
  });
}

TEST_P(Leave, WhoWaitsForOneThatHasLeftIsToldSo) {
  ThreadRanks ranks(2, options(), {0, 1});
  ranks.on_all([&](int rank) {
    std::unique_ptr<Communicator> part = ranks.comm(rank).split(0, rank).value();
    auto device = part->create_device_comm({.num_signals = 1});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    if (rank == 0) return part.reset();
    const HostPlatform p;
    const uint64_t begin_ns = now_ns();
    EXPECT_EQ(Gin<HostPlatform>(p, *device, 0).wait_signal(0, 1, 0), GinStatus::kPeerGone);
    EXPECT_LT(now_ns() - begin_ns, promise_ns());
    EXPECT_EQ(part->why_gone(0), "rank 0 has left this communicator");
  });
}

// Rank 2's end of the network ends without a word. Rank 0 writes to it, and hears from rank 1, or writes to it, all the
// while.
TEST_P(Leave, WhoTakesNoConnectionIsLostWhateverElseIsOnItsWay) {
  for (const bool writes_too : {false, true}) {
    ThreadRanks ranks(3, options(), {0, 1, 2});
    std::atomic<bool> is_gone = false, is_over = false;
    ranks.on_all([&](int rank) {
      std::unique_ptr<Communicator> part = ranks.comm(rank).split(0, rank).value();
      NetRank self(*part);
      const auto put_to = [&](int peer, int signal) {
        NetPut put = self.put_of(0, 0, 64, signal);
        put.peer = peer;
        return self.net.put(put);
      };
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        ASSERT_EQ(self.insist([&] { return put_to(peer, 0); }), NetPost::kPosted);
      }
      ASSERT_TRUE(self.wait_signal(0, 2));
      ASSERT_TRUE(part->barrier().ok());
      if (rank == 2) {
        part->net()->abort();
        ASSERT_TRUE(set_failpoint("communicator.leaves_without_a_word", "error#2").ok());
        set_failpoint_rank(2);
        part.reset();
        is_gone = true;
      }
      ASSERT_EQ(wait_until([&] { return is_gone.load(); }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      if (rank == 1) {
        const Deadline deadline = Deadline::after_ns(60 * kSecond);
        while (!is_over && !deadline.expired()) {
          put_to(0, 1);
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
      if (rank != 0) return;
      // Who posts before libfabric has seen the connections end has an error of theirs.
      const Deadline seen = Deadline::after_ns(300 * kMillisecond);
      while (!seen.expired()) self.net.progress();
      const uint64_t begin_ns = now_ns();
      const auto is_lost = [&] {
        self.net.progress();
        if (writes_too) put_to(1, 1);
        return put_to(2, 1) == NetPost::kFailed;
      };
      EXPECT_EQ(wait_until(is_lost, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      EXPECT_LT(now_ns() - begin_ns, promise_ns());
      EXPECT_TRUE(self.net.usable(1)) << self.net.error().to_string();
      is_over = true;
    });
  }
}

}  // namespace
}  // namespace switchyard::testing
