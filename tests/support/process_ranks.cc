#include "support/process_ranks.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "comm/launch_env.hpp"
#include "comm/rendezvous.hpp"
#include "support/run_tests.hpp"

namespace switchyard::testing {
namespace {

constexpr const char* kBodyOption = "--rank-body=";
constexpr int kExitFailed = 1;
constexpr int kExitMisused = 2;

Result<RankProcess> rank_of_this_process(std::vector<std::string> arguments) {
  SWITCHYARD_ASSIGN(const LaunchEnv launch, read_launch_env(process_environment()));
  SWITCHYARD_ASSIGN(const UniqueId id, rendezvous(launch, process_environment(), Deadline::after_ns(30 * kSecond)));
  return RankProcess{launch.rank, launch.num_ranks, std::move(arguments), id};
}

int run_body(const NamedBody& named, std::vector<std::string> arguments) {
  const auto rank = rank_of_this_process(std::move(arguments));
  if (!rank.ok()) {
    fprintf(stderr, "%s\n", rank.status().to_string().c_str());
    return kExitMisused;
  }
  const std::string fault = named.body(rank.value());
  if (fault.empty()) return 0;
  fprintf(stderr, "%s\n", fault.c_str());
  return kExitFailed;
}

Result<std::string> own_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length < 0) return Status::system_error("finding the path of this program");
  return std::string(path, size_t(length));
}

}  // namespace

int process_ranks_main(int argc, char** argv, const std::vector<NamedBody>& bodies) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.starts_with(kBodyOption)) {
    return run_tests(argc, argv);
  }
  for (const NamedBody& named : bodies) {
    if (named.name == first.substr(strlen(kBodyOption))) return run_body(named, {argv + 2, argv + argc});
  }
  fprintf(stderr, "%s names no body of this program\n", first.c_str());
  return kExitMisused;
}

Result<std::unique_ptr<ProcessRanks>> ProcessRanks::start(const Options& options) {
  std::unique_ptr<Coordinator> coordinator;
  if (!options.meet_by_themselves) {
    SWITCHYARD_ASSIGN(coordinator, Coordinator::start());
  }
  std::unique_ptr<ProcessRanks> ranks(new ProcessRanks(std::move(coordinator)));
  for (int rank = 0; rank < options.num_ranks; ++rank) SWITCHYARD_TRY(ranks->start_rank(options, rank));
  return ranks;
}

Status ProcessRanks::start_rank(const Options& options, int rank) {
  SWITCHYARD_ASSIGN(const std::string path, own_path());
  std::vector<std::string> command;
  if (options.prefix) command = options.prefix(rank);
  command.insert(command.end(), {path, kBodyOption + options.body});
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  tools::Program program = tools::Program::like_us(std::move(command));
  // A child's getenv() takes the first entry of a name.
  std::vector<std::string> environment{text("SWITCHYARD_RANK=", rank),
                                       text("SWITCHYARD_NUM_RANKS=", options.num_ranks)};
  if (coordinator_) environment.push_back(text("SWITCHYARD_UNIQUE_ID=", coordinator_->id().to_hex()));
  if (options.environment) {
    for (std::string& variable : options.environment(rank)) environment.push_back(std::move(variable));
  }
  program.environment.insert(program.environment.begin(), environment.begin(), environment.end());
  SWITCHYARD_ASSIGN(tools::ChildProcess process, tools::ChildProcess::start(program));
  Fd exited(int(syscall(SYS_pidfd_open, process.pid(), 0)));
  if (!exited.valid()) return Status::system_error(text("watching the process of rank ", rank));
  ranks_.push_back({std::move(process), std::move(exited)});
  return {};
}

// Reads what is there; closes the pipe at its end.
void ProcessRanks::read_output(Rank& rank, Fd& pipe) {
  char bytes[4096];
  while (pipe.valid()) {
    const ssize_t num_read = read(pipe.get(), bytes, sizeof(bytes));
    if (num_read > 0) rank.output.append(bytes, size_t(num_read));
    else if (num_read < 0 && errno == EINTR) continue;
    else if (num_read < 0 && errno == EAGAIN) return;
    else pipe.reset();
  }
}

// Takes in whatever happens to any rank within the time.
void ProcessRanks::pump(int timeout_ms) {
  std::vector<pollfd> watched;  // poll() skips entries whose descriptor is -1
  for (Rank& rank : ranks_) {
    watched.push_back({rank.process.standard_output().get(), POLLIN, 0});
    watched.push_back({rank.process.standard_error().get(), POLLIN, 0});
    watched.push_back({rank.exited.get(), POLLIN, 0});
  }
  poll(watched.data(), watched.size(), timeout_ms);
  for (Rank& rank : ranks_) {
    if (rank.exit) continue;
    // First the end, then the output: what is read afterwards is all there is.
    rank.exit = rank.process.try_reap();
    read_output(rank, rank.process.standard_output());
    read_output(rank, rank.process.standard_error());
    if (rank.exit) rank.exited.reset();
  }
}

bool ProcessRanks::pump_until(const std::function<bool()>& happened, Deadline deadline) {
  while (!happened()) {
    if (deadline.expired()) return false;
    pump(deadline.remaining_ms());
  }
  return true;
}

bool ProcessRanks::wait_for_exit(int rank, Deadline deadline) {
  return pump_until([&] { return !running(rank); }, deadline);
}

bool ProcessRanks::wait_for_output(int rank, const std::string& text, Deadline deadline) {
  const auto printed = [&] { return output(rank).find(text) != std::string::npos; };
  pump_until([&] { return printed() || !running(rank); }, deadline);
  return printed();
}

std::string ProcessRanks::wait(Deadline deadline) {
  const auto all_ended = [&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.exit.has_value(); });
  };
  pump_until(all_ended, deadline);
  std::string faults;
  for (int rank = 0; rank < size(); ++rank) {
    if (exit(rank) && !exit(rank)->failed()) continue;
    faults += text("rank ", rank, " ", exit(rank) ? exit(rank)->reason : "still runs", "; it printed:\n", output(rank));
  }
  return faults;
}

}  // namespace switchyard::testing
