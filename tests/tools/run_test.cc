// `switchyard run` while all goes well, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/unique_id.hpp"
#include "tool_process.hpp"

namespace switchyard::tools {
namespace {

using testing::HasSubstr;

TEST(Run, ExitsWithZeroWhenEveryRankDoes) {
  const Captured run = run_tool({"run", "-n", "3", "--", "true"});
  EXPECT_EQ(run.report.exit_code, 0);
  EXPECT_EQ(run.output, "");
  EXPECT_EQ(run.error, "");
}

TEST(Run, PrefixesLinesWithTheRankAndKeepsTheStreamsApart) {
  const Captured run = run_tool(run_script({"-n", "1"}, "echo one; echo bad >&2; echo two; printf end"));
  EXPECT_EQ(run.output, "[0] one\n[0] two\n[0] end\n");
  EXPECT_EQ(run.error, "[0] bad\n");
}

TEST(Run, KeepsLongLinesWholeWhenRanksWriteAtOnce) {
  // 20000 bytes is more than a pipe takes at once, so lines arrive in pieces.
  const Captured run = run_tool(run_script(
      {"-n", "4"}, "i=0; while [ $i -lt 20 ]; do printf '%020000d\\n' 0 | tr 0 $SWITCHYARD_RANK; i=$((i+1)); done"));
  const auto lines = sorted_lines(run.output);
  ASSERT_EQ(lines.size(), 80u);
  for (size_t i = 0; i < lines.size(); i++) {
    const char digit = char('0' + i / 20);
    EXPECT_EQ(lines[i], std::string("[") + digit + "] " + std::string(20000, digit));
  }
}

TEST(Run, PassesArgumentsOnUntouched) {
  const Captured run =
      run_tool({"run", "-n", "1", "--", "printf", "%s|", "[a,b]", "{}", "--", "-n", "", "two words", "run"});
  EXPECT_EQ(run.output, "[0] [a,b]|{}|--|-n||two words|run|\n");
}

TEST(Run, TellsEachRankItsPlace) {
  const Captured run =
      run_tool(run_script({"-n", "5", "--nodes", "2", "--net", "mem"},
                          "echo $SWITCHYARD_NUM_RANKS $SWITCHYARD_NODE_ID $SWITCHYARD_LOCAL_RANK $SWITCHYARD_NET"),
               {"SWITCHYARD_RANK=77", "SWITCHYARD_NET=other"});
  EXPECT_THAT(sorted_lines(run.output), testing::ElementsAre("[0] 5 0 0 mem", "[1] 5 0 1 mem", "[2] 5 0 2 mem",
                                                             "[3] 5 1 0 mem", "[4] 5 1 1 mem"));
}

TEST(Run, LeavesNodeAndNetworkAloneUnlessAsked) {
  const Captured run =
      run_tool(run_script({"-n", "1"}, "echo ${SWITCHYARD_NODE_ID-unset} $SWITCHYARD_NET"), {"SWITCHYARD_NET=mine"});
  EXPECT_EQ(run.output, "[0] unset mine\n");
}

TEST(Run, GivesAllRanksTheSameValidUniqueId) {
  const Captured run = run_tool(run_script({"-n", "2"}, "echo $SWITCHYARD_UNIQUE_ID"));
  const auto lines = sorted_lines(run.output);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].substr(4), lines[1].substr(4));
  EXPECT_TRUE(UniqueId::from_hex(lines[0].substr(4)).ok());
}

TEST(Run, LetsRanksMeet) {
  const Captured run = run_tool({"run", "-n", "4", "--nodes", "2", "--", SWITCHYARD_JOIN_PROGRAM_PATH});
  EXPECT_EQ(run.report.exit_code, 0) << run.error;
  EXPECT_THAT(sorted_lines(run.output), testing::ElementsAre("[0] 15", "[1] 15", "[2] 15", "[3] 15"));
}

TEST(Run, GivesRanksAnEmptyStandardInput) {
  EXPECT_EQ(run_tool({"run", "-n", "1", "--", "wc", "-c"}).output, "[0] 0\n");
}

TEST(Run, StartsAsManyRanksAsItPromises) {
  const Captured run = run_tool(run_script({"-n", "300"}, "ulimit -n"));
  EXPECT_EQ(run.report.exit_code, 0) << run.error;
  EXPECT_EQ(sorted_lines(run.output).size(), 300u);
}

TEST(Run, RefusesAProgramThatIsNotThere) {
  const Captured by_name = run_tool({"run", "-n", "2", "--", "no-such-program"});
  EXPECT_EQ(by_name.report.exit_code, 127);
  EXPECT_THAT(by_name.error, HasSubstr("'no-such-program' not found in PATH"));
  const Captured by_path = run_tool({"run", "-n", "2", "--", "/dev/null"});
  EXPECT_EQ(by_path.report.exit_code, 127);
  EXPECT_THAT(by_path.error, HasSubstr("'/dev/null' is not an executable file"));
}

struct Refusal {
  std::vector<std::string> arguments;
  const char* message;
};

class RunRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(RunRefuses, WithAMessageThatNamesWhatIsAllowed) {
  const Captured run = run_tool(GetParam().arguments);
  EXPECT_EQ(run.report.exit_code, 2);
  EXPECT_THAT(run.error, HasSubstr(GetParam().message));
  EXPECT_EQ(run.output, "");
}

INSTANTIATE_TEST_SUITE_P(
    Usage, RunRefuses,
    testing::Values(Refusal{{"run", "-n", "0", "--", "true"}, "-n is 0, allowed 1..1024"},
                    Refusal{{"run", "-n", "1025", "--", "true"}, "-n is 1025, allowed 1..1024"},
                    Refusal{{"run", "-n", "2", "--nodes", "3", "--", "true"}, "--nodes is 3, allowed 1..2"},
                    Refusal{{"run", "-n", "2", "--nodes", "0", "--", "true"}, "--nodes is 0, allowed 1..2"},
                    Refusal{{"run", "-n", "2", "--nodes", "-1", "--", "true"}, "--nodes is -1, allowed 1..2"},
                    Refusal{{"run", "-n", "2", "--timeout", "-1", "--", "true"}, "--timeout and --grace allow"},
                    Refusal{{"run", "-n", "2"}, "no program given"},
                    Refusal{{"run", "-n", "2", "true"}, "not expected: true"},
                    Refusal{{"run", "-n", "2", "--bogus", "--", "true"}, "not expected: --bogus"},
                    Refusal{{"run", "--", "true"}, "-n is missing: the number of ranks, 1..1024"},
                    Refusal{{"run", "--hosts", "", "-n", "1", "--", "true"}, "cannot read the file ''"},
                    Refusal{{"run", "-n", "1", "--agent", "ssh", "--", "true"}, "--agent says how to reach the hosts of --hosts"},
                    Refusal{{"run", "--hosts", "/dev/null", "--", "true"}, "hosts file /dev/null names no host"},
                    Refusal{{"run", "--hosts", "/no/such/file", "--", "true"}, "cannot read the file '/no/such/file'"},
                    Refusal{{"run", "--hosts", "/", "--", "true"}, "cannot read the file '/'"},
                    Refusal{{"run", "--hosts", "/dev/zero", "--", "true"}, "more than 1048576 bytes"},
                    Refusal{{"run", "--hosts", "hosts", "-n", "2", "--nodes", "2", "--", "true"},
                            "with --hosts every host is one"}));

}  // namespace
}  // namespace switchyard::tools
