// `switchyard run --hosts` between pretended machines (hosts.hpp), by an agent that enters them as ssh would; and by
// ssh itself, on this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "hosts/hosts.hpp"
#include "tools/tool_process.hpp"

namespace switchyard::tools {
namespace {

using switchyard::testing::Hosts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kNumHosts = 4;
// Each rank says which process it is and then lasts until somebody ends it.
const std::string kLast = "echo $$; exec sleep 1000";

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += word + " ";
  return line;
}

// The processes that `num_ranks` ranks wrote the numbers of.
std::vector<Fd> processes_of_ranks(ChildProcess& head, size_t num_ranks) {
  std::vector<Fd> processes;
  for (const std::string& line : sorted_lines(read_lines(head.standard_output(), num_ranks))) {
    processes.push_back(open_process(std::stoi(line.substr(line.find(' ')))));
    EXPECT_TRUE(processes.back().valid()) << line;
  }
  return processes;
}

void expect_exit(const std::vector<Fd>& processes) {
  for (const Fd& process : processes) EXPECT_TRUE(exits_in_time(process));
}

class RunHosts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!Hosts::why_not().empty()) return;
    auto hosts = Hosts::create(kNumHosts);
    ASSERT_TRUE(hosts.ok()) << hosts.status().to_string();
    hosts_ = std::move(hosts).value();
  }
  static void TearDownTestSuite() { hosts_.reset(); }

  void SetUp() override {
    if (const std::string why = Hosts::why_not(); !why.empty()) GTEST_SKIP() << why;
    ASSERT_NE(hosts_, nullptr);
    // Not by exec: whoever kills this program leaves the agent running, as with ssh.
    std::string script = "#!/bin/sh\nhost=$1\nshift\ncase $host in\n";
    for (int host = 0; host < kNumHosts; host++) {
      script += text("node", host, ") ", joined(hosts_->prefix(host)), "sh -c \"$*\" ;;\n");
    }
    agent_ = folder_.write_program("agent", script + "*) echo no way to $host >&2; exit 255 ;;\nesac\n");
  }

  // The head is on host 0.
  Result<ChildProcess> start(const std::string& hosts_file, std::vector<std::string> options,
                             std::vector<std::string> command) {
    std::vector<std::string> words = hosts_->prefix(0);
    words.insert(words.end(),
                 {SWITCHYARD_TOOL_PATH, "run", "--hosts", folder_.write("hosts", hosts_file), "--agent", agent_});
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return start_program(std::move(words),
                         {"SWITCHYARD_INTERFACE=" + interface_, "SWITCHYARD_NET=", "SWITCHYARD_LOG=warn"});
  }
  Result<ChildProcess> start_script(const std::string& hosts_file, const std::string& script) {
    return start(hosts_file, {"--grace", grace_}, {"sh", "-c", script});
  }

  static std::unique_ptr<Hosts> hosts_;
  TestFolder folder_;
  std::string agent_;
  std::string interface_ = "eth0";
  std::string grace_ = "0.3";
};
std::unique_ptr<Hosts> RunHosts::hosts_;

TEST_F(RunHosts, RanksAreWhereTheFileSays) {
  const std::string place = "echo $SWITCHYARD_LOCAL_RANK $SWITCHYARD_NUM_RANKS $SWITCHYARD_NET $(hostname -I)";
  const Captured job = finish(start("node0\nnode1 slots=2\nnode2\nnode3 slots=9", {"-n", "4"}, {"sh", "-c", place}));
  EXPECT_EQ(job.report.exit_code, 0) << job.error;
  EXPECT_THAT(sorted_lines(job.output), ElementsAre("[0] 0 4 ofi 10.0.0.1", "[1] 0 4 ofi 10.0.0.2",
                                                    "[2] 1 4 ofi 10.0.0.2", "[3] 0 4 ofi 10.0.0.3"));
}

TEST_F(RunHosts, RanksOfTwoHostsAddUp) {
  const Captured job = finish(start("node0 slots=1\nnode1 slots=2", {}, {SWITCHYARD_ALL_REDUCE_PATH}));
  EXPECT_EQ(job.report.exit_code, 0) << job.error;
  EXPECT_THAT(sorted_lines(job.output), ElementsAre("[0] 7 over 2 nodes", "[1] 7 over 2 nodes", "[2] 7 over 2 nodes"));
}

TEST_F(RunHosts, RanksOfFourHostsAddUpAlsoWhereTheHeadHasNone) {
  const Captured job = finish(start("node3\nnode1\nnode2 slots=2", {}, {SWITCHYARD_ALL_REDUCE_PATH}));
  EXPECT_EQ(job.report.exit_code, 0) << job.error;
  EXPECT_EQ(num_occurrences(job.output, "15 over 3 nodes"), 4u) << job.output;
}

TEST_F(RunHosts, WithoutANamedInterfaceAnotherHostIsNotReachedByLoopback) {
  interface_ = "";
  const Captured job = finish(start("node1 slots=2", {}, {SWITCHYARD_ALL_REDUCE_PATH}));
  EXPECT_EQ(job.report.exit_code, 0) << job.error;
  EXPECT_EQ(num_occurrences(job.output, "3 over 1 nodes"), 2u) << job.output;
}

TEST_F(RunHosts, ARankThatFailsEndsAllAndItsExitCodeIsPassedOn) {
  auto head =
      start_script("node0\nnode1 slots=2", "if [ $SWITCHYARD_RANK = 2 ]; then while [ ! -e " + folder_.path("go") +
                                               " ]; do sleep 0.01; done; exit 7; fi; " + kLast);
  ASSERT_TRUE(head.ok());
  const auto ranks = processes_of_ranks(*head, 2);
  folder_.write("go", "");
  const Captured job = finish(std::move(head));
  EXPECT_EQ(job.report.exit_code, 7);
  EXPECT_THAT(job.error, HasSubstr("switchyard run on node1: rank 2 exited with code 7; ending rank 1\n"));
  EXPECT_THAT(job.error, HasSubstr("switchyard run: host node1 exited with code 7; ending host node0\n"));
  expect_exit(ranks);
}

TEST_F(RunHosts, ASignalToTheHeadEndsRanksOnAllHosts) {
  grace_ = "20";
  auto head = start_script("node0\nnode1\nnode2\nnode3", kLast);
  ASSERT_TRUE(head.ok());
  const auto ranks = processes_of_ranks(*head, 4);
  head->send(SIGTERM);
  const Captured job = finish(std::move(head));
  EXPECT_EQ(job.report.exit_code, 128 + SIGTERM);
  EXPECT_EQ(job.error, "switchyard run: passing SIGTERM on to hosts node0, node1, node2, node3\n");
  expect_exit(ranks);
}

TEST_F(RunHosts, TheEndOfTheHeadEndsRanksOnAllHosts) {
  auto head = start_script("node0\nnode1", "trap '' TERM; echo $$; while :; do sleep 1000; done");
  ASSERT_TRUE(head.ok());
  const auto ranks = processes_of_ranks(*head, 2);
  const uint64_t killed_ns = now_ns();
  head->send(SIGKILL);
  expect_exit(ranks);
  EXPECT_LT(now_ns() - killed_ns, 5 * kSecond);
}

TEST_F(RunHosts, AHostThatIsNotReachedEndsTheJob) {
  auto head = start_script("node0\nelsewhere", kLast);
  const Captured job = finish(std::move(head));
  EXPECT_EQ(job.report.exit_code, 255);
  EXPECT_THAT(job.error, HasSubstr("no way to elsewhere\nswitchyard run: host elsewhere exited with code 255: "));
  EXPECT_THAT(job.error, HasSubstr(text(" elsewhere ", SWITCHYARD_TOOL_PATH, " --version; ending host node0\n")));
}

// All command lines of this machine, as everybody can read them.
std::string command_lines() {
  std::ostringstream all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::ifstream file(entry.path() / "cmdline");
    if (file) all << file.rdbuf() << '\n';
    all.clear();  // a process without one, or that has ended
  }
  return all.str();
}

TEST_F(RunHosts, TheKeyIsOnNoCommandLine) {
  auto head = start_script("node0\nnode1", "echo $SWITCHYARD_UNIQUE_ID; exec sleep 1000");
  ASSERT_TRUE(head.ok());
  const std::string id = read_lines(head->standard_output(), 2).substr(4, 256);
  const std::string lines = command_lines();
  EXPECT_EQ(num_occurrences(lines, id), 0u);
  EXPECT_GE(num_occurrences(lines, "host-agent"), 2u);  // they are among those
  head->send(SIGTERM);
  EXPECT_EQ(finish(std::move(head)).report.exit_code, 128 + SIGTERM);
}

// ---- by ssh ----

class RunBySsh : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const path = "/usr/sbin:/usr/bin:/sbin:/bin";
    const auto sshd = find_program("sshd", path), keygen = find_program("ssh-keygen", path),
               ssh = find_program("ssh", path);
    if (!sshd.ok() || !keygen.ok() || !ssh.ok()) GTEST_SKIP() << "no OpenSSH here (openssh-server, openssh-client)";
    if (geteuid() != 0) GTEST_SKIP() << "sshd needs root to let somebody in";
    const std::string key = folder_.path("key");
    ASSERT_EQ(finish(start_program({keygen.value(), "-q", "-t", "ed25519", "-N", "", "-f", key}, {})).report.exit_code,
              0);
    std::filesystem::create_directories("/run/sshd");  // sshd wants it, init scripts make it
    const int port = free_port();
    const std::string config = folder_.write(
        "config",
        text("Port ", port, "\nListenAddress 127.0.0.1\nHostKey ", key, "\nAuthorizedKeysFile ", key,
             ".pub\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"));
    auto daemon = start_program({sshd.value(), "-D", "-e", "-f", config}, {});
    ASSERT_TRUE(daemon.ok());
    ASSERT_THAT(read_lines(daemon->standard_error(), 1), HasSubstr("Server listening"));
    daemon_.emplace(*std::move(daemon));
    agent_ = text("ssh -T -F /dev/null -p ", port, " -i ", key, " -o BatchMode=yes -o StrictHostKeyChecking=no",
                  " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR");
  }

  Result<ChildProcess> start(std::vector<std::string> command, const char* grace = "0.3") {
    std::vector<std::string> words{
        "run", "--hosts", folder_.write("hosts", "localhost slots=2"), "--agent", agent_, "--grace", grace, "--"};
    words.insert(words.end(), command.begin(), command.end());
    return start_tool(std::move(words), {"SWITCHYARD_INTERFACE="});
  }

  TestFolder folder_;
  std::optional<ChildProcess> daemon_;
  std::string agent_;
};

TEST_F(RunBySsh, RanksMeetAndTheirExitCodeComesBack) {
  const std::string script = text(SWITCHYARD_ALL_REDUCE_PATH, " && [ $SWITCHYARD_RANK = 0 ] || exit 7");
  const Captured job = finish(start({"sh", "-c", script}));
  EXPECT_EQ(job.report.exit_code, 7) << job.error;
  EXPECT_EQ(num_occurrences(job.output, "3 over 1 nodes"), 2u) << job.output;
}

TEST_F(RunBySsh, ASecondSignalToTheHeadKillsTheRanks) {
  auto head = start({"sh", "-c", "trap '' TERM INT; echo $$; while :; do sleep 1000; done"}, "600");
  ASSERT_TRUE(head.ok());
  const auto ranks = processes_of_ranks(*head, 2);
  head->send(SIGINT);
  head->send(SIGTERM);  // the same once more would be one, if the first has not been seen
  EXPECT_EQ(finish(std::move(head)).report.exit_code, 128 + SIGINT);
  expect_exit(ranks);
}

TEST_F(RunBySsh, TheEndOfTheHeadEndsTheRanks) {
  auto head = start({"sh", "-c", kLast});
  ASSERT_TRUE(head.ok());
  const auto ranks = processes_of_ranks(*head, 2);
  head->send(SIGKILL);
  expect_exit(ranks);
}

}  // namespace
}  // namespace switchyard::tools
