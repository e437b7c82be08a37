// What launchers leave in the environment, one variable a line in the order of kNames; and the command line of
// `switchyard run`, one argument a line.
#include <map>
#include <vector>

#include "comm/launch_env.hpp"
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
                                  "SLURM_LOCALID"};

void read_variables(Input input) {
  std::map<std::string, std::string> variables;
  for (const char* name : kNames) {
    if (std::string value = input.line(); !value.empty()) variables[name] = std::move(value);
  }
  auto launch = read_launch_env([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
  if (!launch.ok()) {
    require(!launch.status().message().empty(), "errors have words");
    return;
  }
  require(launch->num_ranks >= 1 && launch->rank >= 0 && launch->rank < launch->num_ranks, "the rank is in range");
  require(launch->local_rank >= -1 && launch->local_rank < launch->num_ranks, "the local rank is in range");
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
  require(options.num_ranks >= 1 && options.num_ranks <= 1024, "-n is in range");
  require(options.num_nodes >= 0 && options.num_nodes <= options.num_ranks, "every node has a rank");
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
