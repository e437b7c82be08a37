// The same cases with ranks as processes: windows are mapped from other processes, and nothing is left behind.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "ep/ll_harness.hpp"
#include "platform/host/stream.hpp"
#include "platform/host/wait.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

// Every rank makes the scenarios by itself: equal seeds give equal cases in every process.
oracle::Shape make_shape(int num_ranks, oracle::Layout layout, int variant) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 3 * num_ranks + variant;  // divides for variant 0 only
  shape.topk = 1 + 2 * variant;
  shape.hidden = 24 + 512 * variant;
  shape.max_tokens = 5 + 20 * variant;
  shape.layout = layout;
  shape.int32_indices = variant % 2 != 0;
  return shape;
}

// Shared memory with a name could outlive its processes. Other programs may use /dev/shm at the same time, so that each
// rank looks at what it has mapped itself.
std::string named_memory_fault() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/") != std::string::npos) return "memory with a name: " + line;
  }
  return "";
}

// Arguments: expert-major or rank-major, plain or windows, at-once or staged.
std::string round_trips(const RankProcess& self) {
  const auto layout =
      self.arguments.at(0) == "expert-major" ? oracle::Layout::kExpertMajor : oracle::Layout::kRankMajor;
  const LlMode mode{.windows = self.arguments.at(1) == "windows", .staged = self.arguments.at(2) == "staged",
                    .num_rounds = 5};
  const auto stream = Stream::create();
  if (!stream.ok()) return stream.status().to_string();
  const auto comm = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!comm.ok()) return comm.status().to_string();
  int variant = 0;
  for (const oracle::Routing routing : oracle::kAllRoutings) {
    const oracle::Fill fill = oracle::kAllFills[variant % 3];
    const LlScenario scenario =
        make_scenario(uint64_t(variant), make_shape(self.num_ranks, layout, variant % 3), routing, fill);
    const std::string fault = run_ll_case(*comm.value(), {stream.value().get()}, scenario, mode);
    if (!fault.empty()) return text(describe(scenario.c, routing, fill), ": ", fault);
    ++variant;
  }
  const auto group = ep::Group::create(*comm.value(), group_config_for(make_shape(self.num_ranks, layout, 0)));
  return group.ok() ? named_memory_fault() : group.status().to_string();
}

using Mode = std::tuple<int, std::string, std::string, std::string>;
class LowLatencyProcesses : public ::testing::TestWithParam<Mode> {};

TEST_P(LowLatencyProcesses, MatchTheOracleAndLeaveNothingBehind) {
  const auto& [num_ranks, layout, memory, staging] = GetParam();
  auto ranks =
      ProcessRanks::start({.num_ranks = num_ranks, .body = "round_trips", .arguments = {layout, memory, staging}});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < num_ranks; ++rank) pids.push_back(ranks.value()->pid(rank));
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
  // The whole group of each rank is gone, not only its leader.
  for (const pid_t pid : pids) EXPECT_EQ(kill(-pid, 0), -1) << pid;
  // With its last rank gone the coordinator ends too.
  EXPECT_EQ(wait_until([&] { return ranks.value()->coordinator().ended(); }, Deadline::after_ns(10 * kSecond)),
            WaitResult::kReady);
}

INSTANTIATE_TEST_SUITE_P(All, LowLatencyProcesses,
                         ::testing::Combine(::testing::Values(2, 3, 4, 8),
                                            ::testing::Values("expert-major", "rank-major"),
                                            ::testing::Values("plain", "windows"),
                                            ::testing::Values("at-once", "staged")));

// ---- the support itself: fault tests rely on it ----

std::string say_and_wait(const RankProcess& self) {
  printf("rank %d of %d is here\n", self.rank, self.num_ranks);
  fflush(stdout);
  for (;;) pause();
}

std::string print_mark(const RankProcess&) {
  puts(getenv("SWITCHYARD_TEST_MARK"));
  return "";
}

std::string fail_on_rank_1(const RankProcess& self) { return self.rank == 1 ? "rank 1 does not like this" : ""; }

TEST(ProcessRanksTest, ReportsTheExitAndTheOutputOfARankThatFails) {
  auto ranks = ProcessRanks::start({.num_ranks = 2, .body = "fail_on_rank_1"});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(30 * kSecond)),
            "rank 1 exited with code 1; it printed:\nrank 1 does not like this\n");
  EXPECT_EQ(ranks.value()->exit(0)->exit_code, 0);
}

TEST(ProcessRanksTest, WaitsForOutputSendsSignalsAndReportsThem) {
  auto ranks = ProcessRanks::start({.num_ranks = 2, .body = "say_and_wait"});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  ASSERT_TRUE(ranks.value()->wait_for_output(1, "rank 1 of 2 is here\n", Deadline::after_ns(30 * kSecond)));
  EXPECT_FALSE(ranks.value()->wait_for_exit(1, Deadline::after_ns(1)));
  ranks.value()->send(1, SIGKILL);
  ASSERT_TRUE(ranks.value()->wait_for_exit(1, Deadline::after_ns(30 * kSecond)));
  EXPECT_EQ(ranks.value()->exit(1)->exit_code, 128 + SIGKILL);
  EXPECT_TRUE(ranks.value()->running(0));
}

TEST(ProcessRanksTest, KillsWhatStillRunsInTheEnd) {
  pid_t pid = 0;
  {
    auto ranks = ProcessRanks::start({.num_ranks = 1, .body = "say_and_wait"});
    ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
    pid = ranks.value()->pid(0);
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(ProcessRanksTest, GivesEachRankItsEnvironment) {
  auto ranks = ProcessRanks::start({.num_ranks = 2, .body = "print_mark", .environment = [](int rank) {
                                      return std::vector<std::string>{text("SWITCHYARD_TEST_MARK=", 10 + rank)};
                                    }});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(30 * kSecond)), "");
  EXPECT_EQ(ranks.value()->output(0), "10\n");
  EXPECT_EQ(ranks.value()->output(1), "11\n");
}

TEST(ProcessRanksTest, RefusesABodyThatTheProgramDoesNotHave) {
  auto ranks = ProcessRanks::start({.num_ranks = 1, .body = "no_such_body"});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(30 * kSecond)),
            "rank 0 exited with code 2; it printed:\n--rank-body=no_such_body names no body of this program\n");
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(
      argc, argv,
      {{"round_trips", round_trips}, {"say_and_wait", say_and_wait}, {"print_mark", print_mark},
       {"fail_on_rank_1", fail_on_rank_1}});
}
