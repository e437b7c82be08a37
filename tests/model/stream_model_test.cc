// No wake-up of a stream is lost, and each way to lose one is found.
#include "model/stream_model.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <iterator>

#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

// A worker, a poster who then synchronizes, and optionally a second one who waits for the first task only.
template <StreamMutant kMutant>
Report explore_stream(uint64_t num_tasks, bool with_second_waiter) {
  const Report report = explore([=](Arena& arena) {
    auto* words = arena.make<StreamWords>();
    const char* const names[] = {"posted", "completed", "worker_sleeps", "wake_at",
                                 "num_wakes", "stopping",  "worker_lock",   "sync_lock"};
    for (size_t i = 0; i < std::size(names); ++i) arena.name(&words->posted + i, names[i]);
    Program program;
    program.threads.push_back({"worker", [=](ModelPlatform& p) { StreamModel<kMutant>(p, *words).work(); }});
    program.threads.push_back({"poster", [=](ModelPlatform& p) {
                                 StreamModel<kMutant> stream(p, *words);
                                 for (uint64_t task = 0; task < num_tasks; ++task) stream.post(task);
                                 stream.synchronize(num_tasks);
                                 stream.stop();
                               }});
    if (with_second_waiter) {
      program.threads.push_back({"waiter", [=](ModelPlatform& p) { StreamModel<kMutant>(p, *words).synchronize(1); }});
    }
    return program;
  });
  std::cout << report.num_executions << " executions, " << report.num_states << " states, depth " << report.max_depth
            << ", " << report.seconds << " s\n";
  return report;
}

void expect_right(const Report& report) {
  EXPECT_FALSE(report.violation) << report.to_string();
  EXPECT_TRUE(report.exhaustive) << report.to_string();
}

TEST(StreamModel, LosesNoWakeUpOfOneTask) { expect_right(explore_stream<StreamMutant::kNone>(1, false)); }
TEST(StreamModel, LosesNoWakeUpOfTwoTasks) { expect_right(explore_stream<StreamMutant::kNone>(2, false)); }
TEST(StreamModel, LosesNoWakeUpOfTwoWaiters) { expect_right(explore_stream<StreamMutant::kNone>(2, true)); }

template <StreamMutant kMutant>
void expect_found(Fault fault, bool with_second_waiter = false) {
  const Report report = explore_stream<kMutant>(2, with_second_waiter);
  ASSERT_TRUE(report.violation) << "the fault was not found: " << report.to_string();
  EXPECT_EQ(report.violation->fault, fault) << report.to_string();
}

TEST(StreamModelMutant, AStoredSleepFlagLosesAWakeUp) { expect_found<StreamMutant::kSleepIsStored>(Fault::kDeadlock); }
TEST(StreamModelMutant, AFlagThatIsOnlyLoadedLosesAWakeUp) {
  expect_found<StreamMutant::kFlagIsOnlyLoaded>(Fault::kDeadlock);
}
TEST(StreamModelMutant, SleepingWithoutASecondLookLosesAWakeUp) {
  expect_found<StreamMutant::kNoSecondLook>(Fault::kDeadlock);
}
TEST(StreamModelMutant, WakingBeforePostingLosesAWakeUp) { expect_found<StreamMutant::kWakeBeforePost>(Fault::kDeadlock); }
TEST(StreamModelMutant, ATicketThatIsOnlyLoadedLosesAWakeUp) {
  expect_found<StreamMutant::kTicketIsOnlyLoaded>(Fault::kDeadlock);
}
TEST(StreamModelMutant, AStoredTicketLosesAWakeUp) { expect_found<StreamMutant::kTicketIsStored>(Fault::kDeadlock); }
TEST(StreamModelMutant, SleepingOnTheTicketItselfLosesAWakeUp) {
  expect_found<StreamMutant::kTicketIsFutex>(Fault::kDeadlock, true);
}
TEST(StreamModelMutant, CountingWakeUpsAfterTheTicketLosesOne) {
  expect_found<StreamMutant::kWakesReadLate>(Fault::kDeadlock, true);
}
TEST(StreamModelMutant, ARelaxedPostIsARace) { expect_found<StreamMutant::kRelaxedPost>(Fault::kDataRace); }
TEST(StreamModelMutant, ARelaxedCompletionIsARace) { expect_found<StreamMutant::kRelaxedCompletion>(Fault::kDataRace); }

}  // namespace
}  // namespace switchyard::model
