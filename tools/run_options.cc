#include "tools/run_options.hpp"

#include "tools/hosts_file.hpp"

namespace switchyard::tools {
namespace {

constexpr double kMaxSeconds = 1e9;

Status validate_ranks(const RunOptions& options) {
  if (options.num_ranks && (*options.num_ranks < 1 || *options.num_ranks > kMaxRanks)) {
    return Status::invalid_argument(text("-n is ", *options.num_ranks, ", allowed 1..", kMaxRanks));
  }
  if (options.hosts_file) {
    if (!options.num_nodes) return {};
    return Status::invalid_argument(
        "--nodes makes nodes of this machine; with --hosts every host is one: give one of them");
  }
  if (options.agent) return Status::invalid_argument("--agent says how to reach the hosts of --hosts, which is missing");
  if (!options.num_ranks) {
    return Status::invalid_argument(text("-n is missing: the number of ranks, 1..", kMaxRanks,
                                         "; or name hosts and their slots with --hosts FILE"));
  }
  if (options.num_nodes && (*options.num_nodes < 1 || *options.num_nodes > *options.num_ranks)) {
    return Status::invalid_argument(text("--nodes is ", *options.num_nodes, ", allowed 1..", *options.num_ranks,
                                         " with -n ", *options.num_ranks, ": every node needs a rank"));
  }
  return {};
}

}  // namespace

void add_run_options(CLI::App& subcommand, RunOptions& options) {
  subcommand.add_option("-n,--ranks", options.num_ranks, "number of ranks, 1..1024; with --hosts: default all slots");
  subcommand.add_option("--hosts", options.hosts_file,
                        "file of the hosts to start ranks on, a line each: name [slots=N]");
  subcommand.add_option("--agent", options.agent,
                        text("command that runs another one on a host, its name and that follow; default: ", kDefaultAgent));
  subcommand.add_option("--nodes", options.num_nodes, "pretend that the ranks are spread over this many nodes");
  subcommand.add_option("--net", options.net,
                        "network plugin between nodes (SWITCHYARD_NET); between hosts: default ofi");
  subcommand.add_option("--timeout", options.timeout_s, "end the job after this many seconds, with exit code 124");
  subcommand.add_option("--grace", options.grace_s, "seconds between asking a rank to end and killing it")
      ->capture_default_str();
}

Status validate(const RunOptions& options) {
  SWITCHYARD_TRY(validate_ranks(options));
  for (const double seconds : {options.timeout_s, options.grace_s}) {
    if (!(seconds >= 0 && seconds <= kMaxSeconds)) {
      return Status::invalid_argument(text("--timeout and --grace allow 0..", kMaxSeconds, " seconds"));
    }
  }
  if (options.command.empty()) {
    return Status::invalid_argument("no program given; write it after --, as in: switchyard run -n 4 -- ./program");
  }
  return {};
}

}  // namespace switchyard::tools
