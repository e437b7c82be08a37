// Ranks as processes: a test program starts itself once more for every rank, to run a function that it names instead of
// its tests. The coordinator stays in the test's process.
//
//   int main(int argc, char** argv) { return process_ranks_main(argc, argv, {{"round_trips", round_trips}}); }
//   ...
//   auto ranks = ProcessRanks::start({.num_ranks = 4, .body = "round_trips"});
//   EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
//
// THREADS    one thread starts the ranks, uses the object and lives as long: ranks die with it.
// OWNERSHIP  owns the processes and the coordinator; the destructor kills and reaps what still runs.
// ERRORS     start() says why a rank can't be started; what ranks do is in exit() and output().
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "switchyard/status.hpp"
#include "tools/child_process.hpp"

namespace switchyard::testing {

// What a rank's process knows.
struct RankProcess {
  int rank = 0;
  int num_ranks = 1;
  std::vector<std::string> arguments;  // of ProcessRanks::Options
  UniqueId id;
};

// Empty, or what went wrong; that is printed and ends the process with code 1.
using RankBody = std::function<std::string(const RankProcess&)>;
struct NamedBody {
  std::string name;
  RankBody body;
};

// main() of a test program whose ranks are processes: runs the body that the command line names, or else the tests.
int process_ranks_main(int argc, char** argv, const std::vector<NamedBody>& bodies);

class ProcessRanks {
 public:
  struct Options {
    int num_ranks = 1;
    std::string body = {};
    std::vector<std::string> arguments = {};
    // NAME=value, beside what this process has; asked for each rank.
    std::function<std::vector<std::string>(int rank)> environment = nullptr;
    // Written before the command of each rank: nsenter and its options, say.
    std::function<std::vector<std::string>(int rank)> prefix = nullptr;
    // The ranks meet by what `environment` says; there is no coordinator here.
    bool meet_by_themselves = false;
  };
  static Result<std::unique_ptr<ProcessRanks>> start(const Options& options);
  ~ProcessRanks() = default;

  int size() const { return int(ranks_.size()); }
  // REQUIRES that they don't meet by themselves.
  const Coordinator& coordinator() const { return *coordinator_; }
  // REQUIRES running(rank).
  pid_t pid(int rank) const { return ranks_[size_t(rank)].process.pid(); }
  bool running(int rank) const { return !ranks_[size_t(rank)].exit.has_value(); }
  // Nothing happens to a rank that has ended.
  void send(int rank, int signal_number) const { ranks_[size_t(rank)].process.send(signal_number); }

  // Nothing while it runs.
  const std::optional<tools::ExitReport>& exit(int rank) const { return ranks_[size_t(rank)].exit; }
  // Standard output and error, in the order they came.
  const std::string& output(int rank) const { return ranks_[size_t(rank)].output; }

  // All return at the deadline at the latest; false: by then it had not happened.
  bool wait_for_exit(int rank, Deadline deadline);
  bool wait_for_output(int rank, const std::string& text, Deadline deadline);
  // Waits until all have ended. Empty if each exited with 0; else all that is known about those who did not.
  std::string wait(Deadline deadline);

 private:
  struct Rank {
    tools::ChildProcess process;
    Fd exited;  // pidfd: readable when the process has ended
    std::string output = {};
    std::optional<tools::ExitReport> exit = std::nullopt;
  };
  explicit ProcessRanks(std::unique_ptr<Coordinator> coordinator) : coordinator_(std::move(coordinator)) {}
  Status start_rank(const Options& options, int rank);
  bool pump_until(const std::function<bool()>& happened, Deadline deadline);
  void pump(int timeout_ms);
  static void read_output(Rank& rank, Fd& pipe);

  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Rank> ranks_;
};

}  // namespace switchyard::testing
