// `switchyard run`: starts the ranks of a job on this machine and gives each what it needs to find the others.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/coordinator.hpp"
#include "net/net.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/launcher.hpp"
#include "tools/run_options.hpp"
#include "tools/child_process.hpp"

namespace switchyard::tools {
namespace {

// Where a rank is in the job. A rank's local number counts inside its pretended node.
struct Place {
  int node_idx, local_rank;
};

// Contiguous blocks of ranks; the first num_ranks % num_nodes nodes hold one more.
std::vector<Place> place_ranks(int num_ranks, int num_nodes) {
  std::vector<Place> places;
  for (int node_idx = 0; node_idx < num_nodes; node_idx++) {
    const int node_size = num_ranks / num_nodes + (node_idx < num_ranks % num_nodes ? 1 : 0);
    for (int local_rank = 0; local_rank < node_size; local_rank++) places.push_back({node_idx, local_rank});
  }
  return places;
}

// Our environment with some variables replaced.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; entry++) {
    const std::string inherited = *entry;
    const std::string name = inherited.substr(0, inherited.find('='));
    const bool replaced =
        std::any_of(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; });
    if (!replaced) result.push_back(inherited);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<std::vector<std::string>> rank_environments(const RunOptions& options, const UniqueId& id) {
  std::vector<std::vector<std::string>> environments;
  for (const Place& place : place_ranks(options.num_ranks, std::max(1, options.num_nodes))) {
    std::vector<std::pair<std::string, std::string>> variables{
        {"SWITCHYARD_RANK", std::to_string(environments.size())},
        {"SWITCHYARD_NUM_RANKS", std::to_string(options.num_ranks)},
        {"SWITCHYARD_LOCAL_RANK", std::to_string(place.local_rank)},
        {"SWITCHYARD_UNIQUE_ID", id.to_hex()}};
    if (options.num_nodes > 0) variables.emplace_back("SWITCHYARD_NODE_ID", std::to_string(place.node_idx));
    if (!options.net.empty()) variables.emplace_back("SWITCHYARD_NET", options.net);
    environments.push_back(environment_with(variables));
  }
  return environments;
}

// Started with one of them closed, we would get its number for a rank's pipe.
void occupy_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
  }
}

Result<int> run(const RunOptions& options, const std::string& program_path) {
  occupy_standard_descriptors();
  SWITCHYARD_ASSIGN(SignalSource signals, SignalSource::open());
  CoordinatorOptions coordinator_options;
  coordinator_options.startup_ns = std::numeric_limits<uint64_t>::max();  // it lives as long as we do
  SWITCHYARD_ASSIGN(const std::unique_ptr<Coordinator> coordinator, Coordinator::start(coordinator_options));

  JobSpec job{options.command, rank_environments(options, coordinator->id())};
  job.command[0] = program_path;
  job.grace_ns = uint64_t(options.grace_s * double(kSecond));
  if (options.timeout_s > 0) job.deadline = Deadline::after_ns(uint64_t(options.timeout_s * double(kSecond)));
  return run_job(job, signals);
}

void run_command(const RunOptions& options) {
  const auto fail = [](const Status& status, int exit_code) {
    fmt::print(stderr, "switchyard run: {}\n", status.message());
    finish(exit_code);
  };
  if (const Status status = validate(options); !status.ok()) return fail(status, kExitUsage);
  if (!options.net.empty()) {
    if (const auto plugin = find_net_plugin(options.net); !plugin.ok()) return fail(plugin.status(), kExitUsage);
  }
  const auto program_path = find_program(options.command.front(), std::getenv("PATH"));
  if (!program_path.ok()) return fail(program_path.status(), kExitNotFound);
  const auto exit_code = run(options, program_path.value());
  if (!exit_code.ok()) return fail(exit_code.status(), kExitFailure);
  finish(exit_code.value());
}

}  // namespace

void register_run(CLI::App& app, std::vector<std::string> program) {
  // The subcommand outlives this function, so its options must too.
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Start the ranks of a job on this machine");
  add_run_options(*command, *options);
  command->footer(
      "The program and its arguments follow --: switchyard run -n 4 -- ./program --its-option\n\n"
      "Each line of output is preceded by [rank]; standard input is empty. When a rank fails the others are ended and\n"
      "its exit code (128 + signal if it was killed) is the command's. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed\n"
      "on; a second one kills.");
  options->command = std::move(program);
  command->callback([options] { run_command(*options); });
}

}  // namespace switchyard::tools
