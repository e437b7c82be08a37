#include "tools/run_options.hpp"

namespace switchyard::tools {
namespace {

constexpr int kMaxRanks = 1024;
constexpr double kMaxSeconds = 1e9;

}  // namespace

void add_run_options(CLI::App& subcommand, RunOptions& options) {
  subcommand.add_option("-n,--ranks", options.num_ranks, "number of ranks, 1..1024")->required();
  subcommand.add_option("--nodes", options.num_nodes, "pretend that the ranks are spread over this many nodes");
  subcommand.add_option("--net", options.net, "network plugin between nodes (SWITCHYARD_NET)");
  subcommand.add_option("--timeout", options.timeout_s, "end the job after this many seconds, with exit code 124");
  subcommand.add_option("--grace", options.grace_s, "seconds between asking a rank to end and killing it")
      ->capture_default_str();
}

Status validate(const RunOptions& options) {
  if (options.num_ranks < 1 || options.num_ranks > kMaxRanks) {
    return Status::invalid_argument(text("-n is ", options.num_ranks, ", allowed 1..", kMaxRanks));
  }
  if (options.num_nodes < 0 || options.num_nodes > options.num_ranks) {
    return Status::invalid_argument(text("--nodes is ", options.num_nodes, ", allowed 1..", options.num_ranks,
                                         " with -n ", options.num_ranks, ": every node needs a rank"));
  }
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
