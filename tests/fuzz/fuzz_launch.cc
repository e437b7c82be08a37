// What launchers leave in the environment, one variable a line in the order of kNames: who a rank is and where it meets
// the others. And the command line of `switchyard run`, one argument a line.
#include <map>
#include <vector>

#include "comm/launch_env.hpp"
#include "comm/rendezvous.hpp"
#include "fuzz.hpp"
#include "tools/run_options.hpp"

namespace switchyard::fuzz {
namespace {

constexpr const char* kNames[] = {"SWITCHYARD_RANK",
                                  "SWITCHYARD_NUM_RANKS",
                                  "SWITCHYARD_LOCAL_RANK",
                                  "RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SWITCHYARD_STORE",
                                  "XDG_RUNTIME_DIR",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "LOCAL_WORLD_SIZE",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMIX_NAMESPACE",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_RESTART_COUNT",
                                  "SLURM_NNODES",
                                  "SLURM_STEP_NUM_NODES"};

void check_meeting_place(const LaunchEnv& launch, const EnvGetter& get) {
  auto place = choose_meeting_place(launch, get);
  if (!place.ok()) {
    require(!place.status().message().empty(), "errors have words");
    return;
  }
  const StoreSpec& store = place->store;
  require(store.path.empty() != store.host.empty(), "ranks meet at a file or at a port");
  require(store.path.empty() || store.path.front() == '/', "paths are absolute");
  require(store.host.empty() || store.port != 0, "a port is named");
  require(!place->private_folder || (store.path.starts_with(*place->private_folder + "/") && !place->identity.empty()),
          "a file in the private folder is named by its job");
  LaunchEnv other = launch;
  other.rank = launch.num_ranks - 1 - launch.rank;
  auto theirs = choose_meeting_place(other, get);
  require(theirs.ok() && theirs->store.path == store.path && theirs->store.host == store.host &&
              theirs->store.port == store.port && theirs->identity == place->identity,
          "all ranks go to one place");
}

void read_variables(Input input) {
  std::map<std::string, std::string> variables;
  for (const char* name : kNames) {
    std::string value = input.line();
    value = value.substr(0, value.find('\0'));  // no variable holds more
    if (!value.empty()) variables[name] = std::move(value);
  }
  const EnvGetter get = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  auto launch = read_launch_env(get);
  if (!launch.ok()) {
    require(!launch.status().message().empty(), "errors have words");
    return;
  }
  require(launch->num_ranks >= 1 && launch->rank >= 0 && launch->rank < launch->num_ranks, "the rank is in range");
  require(launch->local_rank >= -1 && launch->local_rank < launch->num_ranks, "the local rank is in range");
  check_meeting_place(*launch, get);
}

void parse_command_line(Input input) {
  // CLI11 reads a list of arguments from the back.
  std::vector<std::string> arguments;
  while (!input.empty() && arguments.size() < 32) arguments.insert(arguments.begin(), input.line());
  CLI::App app("fuzzer");
  tools::RunOptions options;
  CLI::App* const run = app.add_subcommand("run", "");
  tools::add_run_options(*run, options);
  options.command = {"program"};
  try {
    app.parse(arguments);
  } catch (const CLI::Error&) {
    return;
  }
  if (!run->parsed() || !tools::validate(options).ok()) return;
  require(options.num_ranks || options.hosts_file, "somebody says how many ranks there are");
  const int num_ranks = options.num_ranks.value_or(1);
  require(num_ranks >= 1 && num_ranks <= 1024, "-n is in range");
  require(!options.num_nodes || (*options.num_nodes >= 1 && *options.num_nodes <= num_ranks), "every node has a rank");
  require(options.timeout_s >= 0 && options.grace_s >= 0, "times are positive numbers");
}

}  // namespace
}  // namespace switchyard::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace switchyard::fuzz;
  Input input(data, num_bytes);
  if (input.byte() % 2 == 0) read_variables(input);
  else parse_command_line(input);
  return 0;
}
