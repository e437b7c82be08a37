// No wake-up of a stream is lost, and each way to lose one is found.
#include "model/stream_model.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <iterator>

#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

enum class Sleeper { kWorker, kSynchronizers };

// A worker and a poster. Either the worker sleeps between tasks and is stopped in the end, or the poster and another
// thread, which waits for the first task only, sleep until their tasks are complete.
template <StreamMutant kMutant>
Report explore_stream(Sleeper sleeper, uint64_t num_tasks) {
  const Report report = explore([=](Arena& arena) {
    auto* words = arena.make<StreamWords>();
    const char* const names[] = {"posted",    "completed", "worker_sleeps", "wake_at",
                                 "num_wakes", "stopping",  "worker_lock",   "sync_lock"};
    for (size_t i = 0; i < std::size(names); ++i) arena.name(&words->posted + i, names[i]);
    const bool worker_sleeps = sleeper == Sleeper::kWorker;
    Program program;
    program.threads.push_back({"worker", [=](ModelPlatform& p) {
                                 StreamModel<kMutant> stream(p, *words);
                                 if (worker_sleeps) stream.work();
                                 else stream.poll_and_work(num_tasks);
                               }});
    program.threads.push_back({"poster", [=](ModelPlatform& p) {
                                 StreamModel<kMutant> stream(p, *words);
                                 for (uint64_t task = 0; task < num_tasks; ++task) stream.post(task);
                                 if (!worker_sleeps) return stream.synchronize(num_tasks);
                                 stream.poll_until_completed(num_tasks);
                                 stream.stop();
                               }});
    if (worker_sleeps) return program;
    program.threads.push_back({"waiter", [=](ModelPlatform& p) { StreamModel<kMutant>(p, *words).synchronize(1); }});
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

TEST(StreamModel, LosesNoWakeUpOfTheWorker) {
  expect_right(explore_stream<StreamMutant::kNone>(Sleeper::kWorker, 2));
}
TEST(StreamModel, LosesNoWakeUpOfTwoSynchronizers) {
  expect_right(explore_stream<StreamMutant::kNone>(Sleeper::kSynchronizers, 2));
}

template <StreamMutant kMutant>
void expect_found(Sleeper sleeper, Fault fault) {
  const Report report = explore_stream<kMutant>(sleeper, 2);
  ASSERT_TRUE(report.violation) << "the fault was not found: " << report.to_string();
  EXPECT_EQ(report.violation->fault, fault) << report.to_string();
}

TEST(StreamModelMutant, AStoredSleepFlagLosesAWakeUp) {
  expect_found<StreamMutant::kSleepIsStored>(Sleeper::kWorker, Fault::kDeadlock);
}
TEST(StreamModelMutant, AFlagThatIsOnlyLoadedLosesAWakeUp) {
  expect_found<StreamMutant::kFlagIsOnlyLoaded>(Sleeper::kWorker, Fault::kDeadlock);
}
TEST(StreamModelMutant, SleepingWithoutASecondLookLosesAWakeUp) {
  expect_found<StreamMutant::kNoSecondLook>(Sleeper::kWorker, Fault::kDeadlock);
}
TEST(StreamModelMutant, WakingBeforePostingLosesAWakeUp) {
  expect_found<StreamMutant::kWakeBeforePost>(Sleeper::kWorker, Fault::kDeadlock);
}
TEST(StreamModelMutant, ATicketThatIsOnlyLoadedLosesAWakeUp) {
  expect_found<StreamMutant::kTicketIsOnlyLoaded>(Sleeper::kSynchronizers, Fault::kDeadlock);
}
TEST(StreamModelMutant, AStoredTicketLosesAWakeUp) {
  expect_found<StreamMutant::kTicketIsStored>(Sleeper::kSynchronizers, Fault::kDeadlock);
}
TEST(StreamModelMutant, SleepingOnTheTicketItselfLosesAWakeUp) {
  expect_found<StreamMutant::kTicketIsFutex>(Sleeper::kSynchronizers, Fault::kDeadlock);
}
TEST(StreamModelMutant, CountingWakeUpsAfterTheTicketLosesOne) {
  expect_found<StreamMutant::kWakesReadLate>(Sleeper::kSynchronizers, Fault::kDeadlock);
}
TEST(StreamModelMutant, ARelaxedPostIsARace) {
  expect_found<StreamMutant::kRelaxedPost>(Sleeper::kWorker, Fault::kDataRace);
}
TEST(StreamModelMutant, ARelaxedCompletionIsARace) {
  expect_found<StreamMutant::kRelaxedCompletion>(Sleeper::kSynchronizers, Fault::kDataRace);
}

}  // namespace
}  // namespace switchyard::model
