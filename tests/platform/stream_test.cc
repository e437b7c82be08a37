#include "platform/host/stream.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "base/env.hpp"
#include "platform/host/pin.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

Deadline soon() { return Deadline::after_ns(30 * kSecond); }

std::unique_ptr<Stream> make_stream() {
  auto stream = Stream::create({.name = "test"});
  EXPECT_TRUE(stream.ok()) << stream.status().to_string();
  return std::move(stream).value();
}

// A door that tasks wait behind until the test opens it.
struct Gate {
  std::atomic<uint32_t> open{0};
  void release() { open.store(1, std::memory_order_release); }  // pairs with acquire in wait()
  void wait() {
    wait_until([this] { return open.load(std::memory_order_acquire) != 0; }, soon());
  }
};

TEST(Stream, RunsTasksInTheOrderTheyWerePosted) {
  auto stream = make_stream();
  std::vector<int> order;
  for (int task_idx = 0; task_idx < 2'000; ++task_idx) {
    ASSERT_TRUE(stream->post([&order, task_idx] { order.push_back(task_idx); }).ok());
  }
  ASSERT_TRUE(stream->synchronize(soon()).ok());
  ASSERT_EQ(order.size(), 2'000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(stream->posted(), 2'000u);
  EXPECT_EQ(stream->completed(), 2'000u);
  EXPECT_TRUE(stream->idle());
}

TEST(Stream, CarriesATaskOfTheFullSizeIntact) {
  auto stream = make_stream();
  struct Big {
    std::array<unsigned char, Stream::kMaxTaskBytes - sizeof(void*)> bytes;
    bool* intact;
    void operator()() const {
      for (size_t idx = 0; idx < bytes.size(); ++idx) *intact &= bytes[idx] == uint8_t(idx * 7);
    }
  };
  bool intact = true;
  Big big;
  big.intact = &intact;
  for (size_t idx = 0; idx < big.bytes.size(); ++idx) big.bytes[idx] = uint8_t(idx * 7);
  for (int repeat = 0; repeat < 600; ++repeat) ASSERT_TRUE(stream->post(big).ok());
  ASSERT_TRUE(stream->synchronize(soon()).ok());
  EXPECT_TRUE(intact);
}

TEST(Stream, DestroysWhatATaskOwnsAfterItRan) {
  auto stream = make_stream();
  auto owned = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = owned;
  ASSERT_TRUE(stream->post([owned = std::move(owned)] { EXPECT_EQ(*owned, 7); }).ok());
  ASSERT_TRUE(stream->synchronize(soon()).ok());
  EXPECT_TRUE(watch.expired());
}

TEST(Stream, AcceptsTasksFromManyThreadsAndKeepsEachThreadsOrder) {
  auto stream = make_stream();
  constexpr int kNumPosters = 6, kNumTasks = 1'000;
  std::array<std::vector<int>, kNumPosters> seen;
  std::vector<std::thread> posters;
  for (int poster_idx = 0; poster_idx < kNumPosters; ++poster_idx) {
    posters.emplace_back([&, poster_idx] {
      std::vector<int>& mine = seen[size_t(poster_idx)];
      for (int task_idx = 0; task_idx < kNumTasks; ++task_idx) {
        EXPECT_TRUE(stream->post([&mine, task_idx] { mine.push_back(task_idx); }).ok());
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  ASSERT_TRUE(stream->synchronize(soon()).ok());
  for (const std::vector<int>& mine : seen) {
    EXPECT_EQ(mine.size(), size_t(kNumTasks));
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
  }
}

TEST(Stream, BlocksThePosterWhileTheRingIsFull) {
  auto stream = make_stream();
  Gate gate;
  ASSERT_TRUE(stream->post([&] { gate.wait(); }).ok());
  for (size_t task_idx = 1; task_idx < Stream::kCapacity; ++task_idx) ASSERT_TRUE(stream->post([] {}).ok());
  std::atomic<bool> posted{false};
  std::thread poster([&] {
    EXPECT_TRUE(stream->post([] {}).ok());
    posted.store(true);
  });
  // The ring cannot take it: that the flag stays down is a property of the ring, whatever the threads' timing.
  EXPECT_EQ(wait_until([&] { return posted.load(); }, Deadline::after_ns(5 * kMillisecond)), WaitResult::kTimeout);
  gate.release();
  poster.join();
  ASSERT_TRUE(stream->synchronize(soon()).ok());
  EXPECT_EQ(stream->completed(), Stream::kCapacity + 1);
}

TEST(Stream, SynchronizeStopsAtItsDeadlineAndSaysHowMuchIsLeft) {
  auto stream = make_stream();
  Gate gate;
  ASSERT_TRUE(stream->post([&] { gate.wait(); }).ok());
  ASSERT_TRUE(stream->post([] {}).ok());
  const Status late = stream->synchronize(Deadline::after_ns(2 * kMillisecond));
  EXPECT_EQ(late.code(), Code::kInvalidUsage);
  EXPECT_NE(late.message().find("2 of 2 tasks"), std::string::npos) << late.message();
  gate.release();
  EXPECT_TRUE(stream->synchronize(soon()).ok());
}

TEST(Stream, SynchronizeFromItsOwnTaskIsRefusedInsteadOfHanging) {
  auto stream = make_stream();
  Code code = Code::kOk;
  ASSERT_TRUE(stream->post([&code](Stream& self) { code = self.synchronize(Deadline::never()).code(); }).ok());
  ASSERT_TRUE(stream->synchronize(soon()).ok());
  EXPECT_EQ(code, Code::kInvalidUsage);
}

TEST(Stream, KeepsTheFirstErrorUntilItIsTaken) {
  auto stream = make_stream();
  ASSERT_TRUE(stream->post([](Stream& self) { self.fail(Status::remote("peer 3 is gone")); }).ok());
  ASSERT_TRUE(stream->post([](Stream& self) { self.fail(Status::internal("a later one")); }).ok());
  EXPECT_EQ(stream->synchronize(soon()).message(), "peer 3 is gone");
  EXPECT_EQ(stream->synchronize(soon()).code(), Code::kRemoteError);
  EXPECT_EQ(stream->take_error().code(), Code::kRemoteError);
  EXPECT_TRUE(stream->synchronize(soon()).ok());
}

TEST(Stream, RunsWhatIsQueuedBeforeItIsDestroyed) {
  int num_run = 0;
  {
    auto stream = make_stream();
    for (int task_idx = 0; task_idx < 100; ++task_idx) ASSERT_TRUE(stream->post([&] { ++num_run; }).ok());
  }
  EXPECT_EQ(num_run, 100);
}

TEST(Stream, WakesItsWorkerFromSleepEveryTime) {
  auto stream = make_stream();
  int num_run = 0;
  for (int round = 0; round < 300; ++round) {
    // Around SWITCHYARD_POLL_US, when the worker goes to sleep: varies where the post hits the handshake.
    const timespec gap{0, long(150'000 + 1'000 * (round % 100))};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &gap, nullptr);
    ASSERT_TRUE(stream->post([&] { ++num_run; }).ok());
    ASSERT_TRUE(stream->synchronize(soon()).ok());
  }
  EXPECT_EQ(num_run, 300);
}

TEST(Stream, WakesEveryThreadThatSleepsInSynchronize) {
  auto stream = make_stream();
  Gate gates[3];
  std::vector<std::thread> sleepers;
  std::atomic<int> num_awake{0};
  for (Gate& gate : gates) {
    ASSERT_TRUE(stream->post([&gate] { gate.wait(); }).ok());
    // Each sleeps for another sequence number: the later ones must ask again after the earlier ones' wake-up.
    sleepers.emplace_back([&, ahead = stream->posted()] {
      EXPECT_TRUE(stream->synchronize(soon()).ok());
      EXPECT_GE(stream->completed(), ahead);
      num_awake.fetch_add(1);
    });
  }
  const uint64_t begin_ns = now_ns();
  const timespec gap{0, 2'000'000};  // long enough that they really sleep on the futex; nothing depends on it
  for (Gate& gate : gates) {
    clock_nanosleep(CLOCK_MONOTONIC, 0, &gap, nullptr);
    gate.release();
  }
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(num_awake.load(), 3);
  EXPECT_LT(now_ns() - begin_ns, 10 * kSecond);  // woken, not merely timed out
}

TEST(Stream, TakesStepsOnlyWhileNothingIsQueued) {
  auto stream = Stream::create();
  ASSERT_TRUE(stream.ok());
  std::atomic<int> num_steps{0};
  ASSERT_TRUE((*stream)->post([&](Stream& self) {
    self.when_idle([&] {
      const int step = num_steps.fetch_add(1) + 1;
      return step == 100 ? IdleResult::kOver : step % 2 ? IdleResult::kMoved : IdleResult::kNothingToDo;
    });
  }).ok());
  // Whatever is queued behind runs before the first step.
  std::atomic<int> steps_before_task{-1};
  std::atomic<bool> go_on{false};
  ASSERT_TRUE((*stream)->post([&] {
    steps_before_task = num_steps.load();
    wait_until([&] { return go_on.load(); }, Deadline::after_ns(10 * kSecond));
    EXPECT_EQ(num_steps.load(), steps_before_task.load());
  }).ok());
  go_on = true;
  EXPECT_EQ(wait_until([&] { return num_steps.load() == 100; }, Deadline::after_ns(10 * kSecond)), WaitResult::kReady);
  EXPECT_TRUE((*stream)->synchronize(Deadline::after_ns(10 * kSecond)).ok());
  EXPECT_EQ(num_steps.load(), 100) << "a step that is over is not taken again";
}

TEST(Stream, RunsATaskAtOnceAlthoughStepsNeverEnd) {
  auto stream = Stream::create();
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE((*stream)->post([](Stream& self) { self.when_idle([] { return IdleResult::kNothingToDo; }); }).ok());
  for (int i = 0; i < 5; ++i) {
    wait_until([] { return false; }, Deadline::after_ns(5 * kMillisecond));  // long enough for the worker to nap
    const uint64_t begin_ns = now_ns();
    ASSERT_TRUE((*stream)->post([] {}).ok());
    EXPECT_TRUE((*stream)->synchronize(Deadline::after_ns(10 * kSecond)).ok());
    EXPECT_LT(now_ns() - begin_ns, kSecond / 2);
  }
}

TEST(Stream, OneStreamsWaitNeverHoldsUpAnother) {
  // Each stream's task ends only after the next stream's has begun: in any pool smaller than the ring it would hang.
  constexpr size_t kNumStreams = 12;
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t idx = 0; idx < kNumStreams; ++idx) streams.push_back(make_stream());
  std::array<Gate, kNumStreams> begun;
  for (size_t idx = 0; idx < kNumStreams; ++idx) {
    ASSERT_TRUE(streams[idx]
                    ->post([&begun, idx] {
                      begun[idx].release();
                      begun[(idx + 1) % kNumStreams].wait();
                    })
                    .ok());
  }
  for (auto& stream : streams) EXPECT_TRUE(stream->synchronize(Deadline::after_ns(10 * kSecond)).ok());
}

TEST(Stream, PostsFastToAPollingWorkerAndWakesASleepingOneSoon) {
  auto stream = make_stream();
  const auto median_us = [&](bool cold, bool round_trip) {
    std::vector<double> times;
    for (int round = 0; round < 200; ++round) {
      if (cold) {
        const timespec gap{0, long(2 * env().poll_us * 1'000)};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &gap, nullptr);
      }
      const uint64_t begin_ns = now_ns();
      EXPECT_TRUE(stream->post([] {}).ok());
      if (round_trip) {
        EXPECT_TRUE(stream->synchronize(soon()).ok());
        times.push_back(double(now_ns() - begin_ns) / 1e3);
      } else {
        times.push_back(double(now_ns() - begin_ns) / 1e3);
        EXPECT_TRUE(stream->synchronize(soon()).ok());
      }
    }
    std::nth_element(times.begin(), times.begin() + 100, times.end());
    return times[100];
  };
  const double hot_us = median_us(false, false), cold_us = median_us(true, false);
  std::printf("post: hot %.2f us, cold %.2f us; post+synchronize: hot %.2f us, cold %.2f us (medians)\n", hot_us,
              cold_us, median_us(false, true), median_us(true, true));
  EXPECT_LT(hot_us, 200);  // figures, not promises: the machine is shared
  EXPECT_LT(cold_us, 2'000);
}

TEST(PinCurrentThread, LeavesTheThreadOnASubsetOfItsCores) {
  std::thread([] {
    cpu_set_t before, after;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    const Status pinned = pin_current_thread({1, 64});
    if (!pinned.ok()) GTEST_SKIP() << pinned.to_string();
    ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
    cpu_set_t both;
    CPU_AND(&both, &before, &after);
    EXPECT_TRUE(CPU_EQUAL(&both, &after));
    EXPECT_GE(CPU_COUNT(&after), 1);
    EXPECT_TRUE(CPU_COUNT(&before) <= 2 || CPU_COUNT(&after) < CPU_COUNT(&before));  // a core may have two threads
  }).join();
}

TEST(PinCurrentThread, RefusesSharesThatDoNotExist) {
  EXPECT_FALSE(pin_current_thread({-1, 4}).ok());
  EXPECT_FALSE(pin_current_thread({0, 0}).ok());
}

TEST(PinCurrentThread, AStreamTakesOverTheShareOfItsCreator) {
  std::thread([] {
    EXPECT_TRUE(StreamOptions().share.none());
    set_this_threads_share({3, 5});
    EXPECT_EQ(StreamOptions().share.share_idx, 3);
    EXPECT_EQ(StreamOptions().share.num_shares, 5);
  }).join();
}

}  // namespace
}  // namespace switchyard
