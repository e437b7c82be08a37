// `switchyard run`: starts the ranks of a job, on this machine or on the hosts of a file, and gives each what it needs
// to find the others.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/coordinator.hpp"
#include "net/net.hpp"
#include "tools/child_process.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/launcher.hpp"
#include "tools/rank_child.hpp"
#include "tools/run_hosts.hpp"
#include "tools/run_options.hpp"

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

// The ranks as children of this process.
JobSpec ranks_job(const RunOptions& options, const std::string& program_path, const UniqueId& id) {
  JobSpec job;
  std::vector<std::string> command = options.command;
  command[0] = program_path;
  const int num_ranks = *options.num_ranks;
  for (const Place& place : place_ranks(num_ranks, options.num_nodes.value_or(1))) {
    Variables variables;
    if (options.num_nodes) variables.emplace_back("SWITCHYARD_NODE_ID", std::to_string(place.node_idx));
    if (!options.net.empty()) variables.emplace_back("SWITCHYARD_NET", options.net);
    job.children.push_back(rank_child({int(job.children.size()), num_ranks, place.local_rank}, id, command, variables));
  }
  job.grace_ns = options.grace_ns();
  return job;
}

using MakeJob = std::function<Result<JobSpec>(const UniqueId& id)>;

Result<int> run(const RunOptions& options, CoordinatorOptions coordinator_options, const MakeJob& make_job) {
  occupy_standard_descriptors();
  SWITCHYARD_ASSIGN(SignalSource signals, SignalSource::open());
  coordinator_options.startup_ns = std::numeric_limits<uint64_t>::max();  // it lives as long as we do
  SWITCHYARD_ASSIGN(const std::unique_ptr<Coordinator> coordinator, Coordinator::start(coordinator_options));
  SWITCHYARD_ASSIGN(JobSpec job, make_job(coordinator->id()));
  if (options.timeout_s > 0) job.deadline = Deadline::after_ns(options.timeout_ns());
  return run_job(job, signals);
}

void fail(const Status& status, int exit_code) {
  fmt::print(stderr, "switchyard run: {}\n", status.message());
  finish(exit_code);
}

void finish_run(const Result<int>& exit_code) {
  if (!exit_code.ok()) return fail(exit_code.status(), kExitFailure);
  finish(exit_code.value());
}

void run_here(const RunOptions& options) {
  const auto program_path = find_program(options.command.front(), std::getenv("PATH"));
  if (!program_path.ok()) return fail(program_path.status(), kExitNotFound);
  finish_run(run(options, {}, [&](const UniqueId& id) { return ranks_job(options, program_path.value(), id); }));
}

void run_on_hosts(const RunOptions& options) {
  const auto plan = plan_hosts(options);
  if (!plan.ok()) return fail(plan.status(), kExitUsage);
  CoordinatorOptions coordinator_options;
  coordinator_options.endpoint = plan.value().coordinator_endpoint;
  finish_run(
      run(options, coordinator_options, [&](const UniqueId& id) { return hosts_job(plan.value(), options, id); }));
}

void run_command(const RunOptions& options) {
  if (const Status status = validate(options); !status.ok()) return fail(status, kExitUsage);
  if (!options.net.empty()) {
    if (const auto plugin = find_net_plugin(options.net); !plugin.ok()) return fail(plugin.status(), kExitUsage);
  }
  options.hosts_file ? run_on_hosts(options) : run_here(options);
}

}  // namespace

void register_run(CLI::App& app, std::vector<std::string> program) {
  // The subcommand outlives this function, so its options must too.
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Start the ranks of a job on this machine, or on several hosts");
  add_run_options(*command, *options);
  command->footer(
      "The program and its arguments follow --: switchyard run -n 4 -- ./program --its-option\n\n"
      "Each line of output is preceded by [rank]; standard input is empty. When a rank fails the others are ended and\n"
      "its exit code (128 + signal if it was killed) is the command's. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed\n"
      "on; a second one kills.\n\n"
      "On several hosts: switchyard run --hosts FILE -- ./program, with a line 'name slots=N' for each host. The "
      "hosts\n"
      "are reached by ssh without a password, have switchyard, the program and the working directory at the same\n"
      "places, and reach this machine at SWITCHYARD_INTERFACE (default: the first that is not loopback). Ranks there\n"
      "are also ended when this command dies. The exit code is that of the first host to end with another than 0.");
  options->command = std::move(program);
  command->callback([options] { run_command(*options); });
}

}  // namespace switchyard::tools
