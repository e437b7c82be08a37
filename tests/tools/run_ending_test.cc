// How `switchyard run` ends: failures, signals, time limits, and what it leaves behind (nothing).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tool_process.hpp"

namespace switchyard::tools {
namespace {

using testing::HasSubstr;

// Announces itself and then lasts until somebody ends it. `wait` returns at a signal, so traps run at once.
const std::string kLast = "sleep 1000 & echo ready; wait; ";

TEST(RunEnding, PassesOnTheExitCodeOfTheFirstRankThatFails) {
  const Captured run = run_tool(run_script({"-n", "3"}, "[ $SWITCHYARD_RANK = 1 ] && exit 7; " + kLast));
  EXPECT_EQ(run.report.exit_code, 7);
  EXPECT_EQ(run.error, "switchyard run: rank 1 exited with code 7; ending ranks 0, 2\n");
}

TEST(RunEnding, PutsTheLastWordsOfARankBeforeTheReportOfItsEnd) {
  const Captured run = run_tool(run_script({"-n", "1"}, "echo last words >&2; exit 3"));
  EXPECT_EQ(run.error, "[0] last words\nswitchyard run: rank 0 exited with code 3\n");
}

TEST(RunEnding, ReportsASignalAs128PlusItsNumber) {
  const Captured run = run_tool(run_script({"-n", "2"}, "[ $SWITCHYARD_RANK = 0 ] && kill -KILL $$; " + kLast));
  EXPECT_EQ(run.report.exit_code, 128 + SIGKILL);
  EXPECT_EQ(run.error, "switchyard run: rank 0 was killed by SIGKILL (Killed); ending rank 1\n");
}

// A named pipe through which one script waits for another.
class Fifo {
 public:
  Fifo() { EXPECT_EQ(mkfifo(path().c_str(), 0600), 0); }
  std::string path() const { return folder_.path("fifo"); }

 private:
  TestFolder folder_;
};

TEST(RunEnding, KillsARankThatIgnoresTheRequestToEnd) {
  const Fifo deaf;
  // Rank 0 fails only once rank 1 ignores the signal.
  const Captured run = run_tool(run_script({"-n", "2", "--grace", "0.1"},
                                           "if [ $SWITCHYARD_RANK = 0 ]; then cat " + deaf.path() + "; exit 5; fi; " +
                                               "trap '' TERM; : > " + deaf.path() + "; while :; do sleep 1000; done"));
  EXPECT_EQ(run.report.exit_code, 5);
  EXPECT_THAT(run.error, HasSubstr("rank 1 did not end in time after being asked to; killing"));
}

TEST(RunEnding, EndsTheJobAtItsTimeLimit) {
  const Captured run = run_tool(run_script({"-n", "2", "--timeout", "0.3"}, kLast));
  EXPECT_EQ(run.report.exit_code, 124);
  EXPECT_THAT(run.error, HasSubstr("time limit reached; ending ranks 0, 1"));
}

TEST(RunEnding, DoesNotMindATimeLimitThatIsNotReached) {
  EXPECT_EQ(run_tool({"run", "-n", "2", "--timeout", "1000", "--", "true"}).report.exit_code, 0);
}

TEST(RunEnding, PassesASignalOnToEveryRank) {
  auto tool = start_tool(run_script({"-n", "3"}, "trap 'echo got it; exit 0' INT; " + kLast));
  ASSERT_TRUE(tool.ok());
  read_lines(tool->standard_output(), 3);
  tool->send(SIGINT);
  auto run = capture(*std::move(tool), test_deadline());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(run->report.exit_code, 0) << run->error;
  EXPECT_EQ(num_occurrences(run->output, "got it"), 3u);
}

TEST(RunEnding, ExitsWith128PlusTheSignalThatRanksDieOf) {
  auto tool = start_tool(run_script({"-n", "2"}, kLast));
  ASSERT_TRUE(tool.ok());
  read_lines(tool->standard_output(), 2);
  tool->send(SIGTERM);
  auto run = capture(*std::move(tool), test_deadline());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(run->report.exit_code, 128 + SIGTERM);
  EXPECT_EQ(run->error, "switchyard run: passing SIGTERM on to ranks 0, 1\n");
}

TEST(RunEnding, KillsAtTheSecondSignal) {
  auto tool = start_tool(
      run_script({"-n", "2", "--grace", "1000"}, "trap '' INT TERM; echo ready; while :; do sleep 1000; done"));
  ASSERT_TRUE(tool.ok());
  read_lines(tool->standard_output(), 2);
  tool->send(SIGINT);
  read_lines(tool->standard_error(), 1);  // the first signal has been seen
  tool->send(SIGINT);
  auto run = capture(*std::move(tool), test_deadline());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(run->report.exit_code, 128 + SIGINT);
}

TEST(RunEnding, TakesTheRanksWithItWhenItIsKilled) {
  auto tool = start_tool(run_script({"-n", "1"}, "echo $$; exec sleep 1000"));
  ASSERT_TRUE(tool.ok());
  const std::string line = read_lines(tool->standard_output(), 1);
  ASSERT_GT(line.size(), 4u);
  const Fd rank = open_process(std::stoi(line.substr(4)));
  ASSERT_TRUE(rank.valid());
  tool->send(SIGKILL);
  EXPECT_TRUE(exits_in_time(rank));
}

TEST(RunEnding, LeavesNothingBehindThatARankStarted) {
  const Fifo go_on;
  auto tool = start_tool(run_script({"-n", "1"}, "sleep 1000 & echo $!; cat " + go_on.path()));
  ASSERT_TRUE(tool.ok());
  const std::string line = read_lines(tool->standard_output(), 1);
  ASSERT_GT(line.size(), 4u);
  const Fd grandchild = open_process(std::stoi(line.substr(4)));
  ASSERT_TRUE(grandchild.valid());
  Fd(open(go_on.path().c_str(), O_WRONLY));  // lets the rank end by itself
  EXPECT_TRUE(exits_in_time(grandchild));    // first, since capture() would kill what is left of the tool's group
  auto run = capture(*std::move(tool), test_deadline());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(run->report.exit_code, 0);
}

TEST(RunEnding, KeepsRanksOutOfReachOfTheTerminalsCtrlC) {
  // The terminal signals its foreground group, which is the launcher's; ranks must hear of it from the launcher alone.
  auto tool = start_tool(run_script({"-n", "1"}, "echo $$; exec sleep 1000"));
  ASSERT_TRUE(tool.ok());
  const std::string line = read_lines(tool->standard_output(), 1);
  ASSERT_GT(line.size(), 4u);
  const pid_t rank = std::stoi(line.substr(4));
  EXPECT_EQ(getpgid(rank), rank);
}

TEST(RunEnding, DoesNotWaitForADescendantThatHidesWithThePipes) {
  const Fifo hidden;
  // In a session of its own it is out of reach, and it holds the rank's output open.
  const Captured run = run_tool(run_script(
      {"-n", "1"}, "setsid sh -c 'echo $$; : > " + hidden.path() + "; exec sleep 1000' & cat " + hidden.path()));
  EXPECT_EQ(run.report.exit_code, 0);
  ASSERT_GT(run.output.size(), 4u);
  EXPECT_EQ(kill(std::stoi(run.output.substr(4)), SIGKILL), 0);
}

TEST(RunEnding, EndsTheRanksWhenNobodyReadsTheirOutput) {
  auto tool = start_tool({"run", "-n", "2", "--", "yes"});
  ASSERT_TRUE(tool.ok());
  read_lines(tool->standard_output(), 1);
  tool->standard_output().reset();
  auto run = capture(*std::move(tool), test_deadline());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_EQ(run->report.exit_code, 128 + SIGPIPE);
  EXPECT_THAT(run->error, HasSubstr("standard output was closed"));
}

TEST(RunEnding, ObeysSignalsWhileNobodyTakesItsOutput) {
  auto tool = start_tool({"run", "-n", "1", "--grace", "1000", "--", "yes"});
  ASSERT_TRUE(tool.ok());
  read_lines(tool->standard_output(), 1);  // and no more: the pipe fills
  const Fd process = open_process(tool->pid());
  ASSERT_TRUE(process.valid());
  tool->send(SIGTERM);
  read_lines(tool->standard_error(), 1);
  tool->send(SIGTERM);
  EXPECT_TRUE(exits_in_time(process));
}

}  // namespace
}  // namespace switchyard::tools
