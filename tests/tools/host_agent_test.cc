// `switchyard host-agent` with what `switchyard run --hosts` sends it, and with what it never would; and both together
// on this machine alone. Between machines: tests/hosts/run_hosts_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool_process.hpp"
#include "tools/host_share.hpp"

namespace switchyard::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostShare share_of(const std::string& script, uint64_t grace_ns = 20 * kSecond) {
  TcpEndpoint endpoint;
  endpoint.address[0] = std::byte{127};
  endpoint.port = 1;
  return {.host = "node2",
          .directory = "/tmp",
          .first_rank = 3,
          .num_local_ranks = 2,
          .num_ranks = 6,
          .grace_ns = grace_ns,
          .environment = {"SWITCHYARD_NET=ofi", "SWITCHYARD_RANK=77"},
          .id = UniqueId::make(endpoint, {}),
          .command = {"sh", "-c", script}};
}

Result<ChildProcess> start_agent(const std::string& input) {
  Program program = Program::like_us({SWITCHYARD_TOOL_PATH, "host-agent"});
  program.reads_from_us = true;
  auto agent = ChildProcess::start(program);
  if (agent.ok()) {
    EXPECT_EQ(write(agent->standard_input().get(), input.data(), input.size()), ssize_t(input.size()));
  }
  return agent;
}

// Its input ends with that.
Captured run_agent(const std::string& input) {
  auto agent = start_agent(input);
  if (agent.ok()) agent->standard_input().reset();
  return finish(std::move(agent));
}

// Ends for nobody.
const std::string kDeaf = "trap '' TERM; trap 'echo interrupted' INT; echo ready; while :; do sleep 0.05; done";

TEST(HostAgent, StartsItsShareOfTheRanksWithAnEmptyStandardInput) {
  const std::string script =
      "echo $(pwd) $SWITCHYARD_RANK $SWITCHYARD_LOCAL_RANK $SWITCHYARD_NUM_RANKS $SWITCHYARD_NET $(wc -c)";
  const Captured agent = finish(start_agent(encode(share_of(script)).value()));
  EXPECT_EQ(agent.report.exit_code, 0) << agent.error;
  EXPECT_THAT(sorted_lines(agent.output), ElementsAre("[3] /tmp 3 0 6 ofi 0", "[4] /tmp 4 1 6 ofi 0"));
}

TEST(HostAgent, NamesRanksByTheirNumbersInTheJob) {
  const Captured agent =
      finish(start_agent(encode(share_of("[ $SWITCHYARD_RANK = 4 ] && exit 7; exec sleep 1000")).value()));
  EXPECT_EQ(agent.report.exit_code, 7);
  EXPECT_EQ(agent.error, "switchyard run on node2: rank 4 exited with code 7; ending rank 3\n");
}

TEST(HostAgent, EndsItsRanksWhenItsInputEnds) {
  auto agent = start_agent(encode(share_of("trap 'echo asked; exit 0' TERM; echo ready; sleep 1000 & wait")).value());
  ASSERT_TRUE(agent.ok());
  read_lines(agent->standard_output(), 2);
  agent->standard_input().reset();
  const Captured ended = finish(std::move(agent));
  EXPECT_EQ(ended.report.exit_code, 0) << ended.error;
  EXPECT_EQ(num_occurrences(ended.output, "asked"), 2u);
}

TEST(HostAgent, KillsRanksThatIgnoreTheEnd) {
  auto agent = start_agent(encode(share_of(kDeaf, kSecond / 10)).value());
  ASSERT_TRUE(agent.ok());
  read_lines(agent->standard_output(), 2);
  agent->standard_input().reset();
  const Captured ended = finish(std::move(agent));
  EXPECT_EQ(ended.report.exit_code, 128 + SIGTERM);
  EXPECT_THAT(ended.error, HasSubstr("ranks 3, 4 did not end in time"));
}

TEST(HostAgent, PassesSignalsOnAndTakesTheEndOfItsInputForAKillThen) {
  auto agent = start_agent(encode(share_of(kDeaf)).value());
  ASSERT_TRUE(agent.ok());
  read_lines(agent->standard_output(), 2);
  const char interrupt = SIGINT;
  ASSERT_EQ(write(agent->standard_input().get(), &interrupt, 1), 1);
  read_lines(agent->standard_output(), 2);  // "interrupted"
  const uint64_t asked_ns = now_ns();
  agent->standard_input().reset();
  const Captured ended = finish(std::move(agent));
  EXPECT_EQ(ended.report.exit_code, 128 + SIGINT);
  EXPECT_LT(now_ns() - asked_ns, 10 * kSecond) << "well within the grace";
}

TEST(HostAgent, SaysWhichDirectoryItsHostLacks) {
  HostShare share = share_of("true");
  share.directory = "/no/such/place";
  const Captured agent = run_agent(encode(share).value());
  EXPECT_EQ(agent.report.exit_code, 1);
  EXPECT_THAT(agent.error, HasSubstr("switchyard run on node2: cannot go to the directory '/no/such/place'"));
}

TEST(HostAgent, SaysWhichProgramItsHostLacks) {
  HostShare share = share_of("");
  share.command = {"no-such-program"};
  const Captured agent = run_agent(encode(share).value());
  EXPECT_EQ(agent.report.exit_code, 127);
  EXPECT_THAT(agent.error, HasSubstr("switchyard run on node2: program 'no-such-program' not found in PATH"));
}

TEST(HostAgent, StartsNothingForInputThatIsNotForIt) {
  const std::string whole = encode(share_of("echo started")).value();
  for (const std::string& input : {std::string(), std::string("ls\n"), whole.substr(0, whole.size() - 1)}) {
    const Captured agent = run_agent(input);
    EXPECT_EQ(agent.report.exit_code, 2);
    EXPECT_EQ(agent.output, "");
    EXPECT_THAT(agent.error, HasSubstr("switchyard host-agent: the description of this host's ranks"));
  }
}

TEST(HostAgent, IsNotInTheHelp) { EXPECT_EQ(run_tool({"--help"}).output.find("host-agent"), std::string::npos); }

// An agent that stays here, whatever the host is called.
class RunHostsHere : public testing::Test {
 protected:
  Captured run(const std::string& hosts, std::vector<std::string> command) {
    std::vector<std::string> words{"run", "--hosts", folder_.write("hosts", hosts), "--agent", "  sh " + agent_ + " x ",
                                   "--"};
    words.insert(words.end(), command.begin(), command.end());
    return run_tool(std::move(words), {"SWITCHYARD_INTERFACE=", "SWITCHYARD_NET="});
  }
  TestFolder folder_;
  const std::string agent_ =
      folder_.write("agent", "shift 2; exec sh -c \"$*\"\n");  // x, host, command as ssh takes it
};

TEST_F(RunHostsHere, RanksOfOneHostMeetOverLoopback) {
  const Captured job = run("localhost slots=3\n", {SWITCHYARD_JOIN_PROGRAM_PATH});
  EXPECT_EQ(job.report.exit_code, 0) << job.error;
  EXPECT_THAT(sorted_lines(job.output), ElementsAre("[0] 7", "[1] 7", "[2] 7"));
}

TEST_F(RunHostsHere, PassesArgumentsOnUntouched) {
  const Captured job = run("localhost", {"printf", "%s|", "[a,b]", "$HOME", "'", "", "two words", "--", "\xff"});
  EXPECT_EQ(job.output, "[0] [a,b]|$HOME|'||two words|--|\xff|\n") << job.error;
}

TEST_F(RunHostsHere, KeepsLongLinesWhole) {
  const Captured job = run("localhost slots=2", {"sh", "-c", "head -c 1048576 /dev/zero | tr '\\0' x; echo; echo end"});
  const auto lines = sorted_lines(job.output);
  const std::string longest(1048576, 'x');
  EXPECT_THAT(lines, ElementsAre("[0] end", "[0] " + longest, "[1] end", "[1] " + longest));
}

TEST_F(RunHostsHere, GivesMoreThanAPipeHoldsToAnAgentThatTakesItsTime) {
  const std::string long_word(100000, 'x');
  const Captured job = run("localhost", {"sh", "-c", "echo $# ${#1}", "sh", long_word, long_word, long_word});
  EXPECT_EQ(job.output, "[0] 3 100000\n") << job.error;
}

TEST_F(RunHostsHere, SaysWhatToCheckWhereAHostHasNoSwitchyard) {
  folder_.write("agent", "exit 127\n");
  const Captured job = run("localhost", {"true"});
  EXPECT_EQ(job.report.exit_code, 127);
  EXPECT_THAT(job.error,
              HasSubstr("switchyard run: host localhost exited with code 127: unless a line above says why"));
  EXPECT_THAT(job.error, HasSubstr(text(agent_, " x localhost ", SWITCHYARD_TOOL_PATH, " --version")));
}

TEST_F(RunHostsHere, RefusesMoreRanksThanSlotsAndAgentsThatAreNotThere) {
  const std::string hosts = folder_.write("hosts", "a slots=2\nb\n");
  const Captured ranks = run_tool({"run", "--hosts", hosts, "-n", "4", "--", "true"});
  EXPECT_EQ(ranks.report.exit_code, 2);
  EXPECT_THAT(ranks.error, HasSubstr("-n is 4, allowed 1..3: the slots of all hosts"));
  const Captured agent = run_tool({"run", "--hosts", hosts, "--agent", "no-such-agent -x", "--", "true"});
  EXPECT_EQ(agent.report.exit_code, 2);
  EXPECT_THAT(agent.error, HasSubstr("--agent: program 'no-such-agent' not found in PATH"));
}

}  // namespace
}  // namespace switchyard::tools
