#include "comm/launch_env.hpp"

#include <cstdlib>

#include "base/env.hpp"
#include "comm/frame.hpp"

namespace switchyard {
namespace {

struct LauncherVariables {
  Launcher launcher;
  const char* origin;
  const char* rank;
  const char* num_ranks;
  const char* local_rank;
};

constexpr LauncherVariables kLaunchers[] = {
    {Launcher::kSwitchyardRun, "switchyard run", "SWITCHYARD_RANK", "SWITCHYARD_NUM_RANKS", "SWITCHYARD_LOCAL_RANK"},
    {Launcher::kTorchrun, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {Launcher::kOpenMpi, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {Launcher::kSlurm, "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

Result<int> to_number(const char* name, const std::string& value, int low, int high) {
  if (const auto number = parse_number(value, uint64_t(low), uint64_t(high))) return int(*number);
  return Status::invalid_argument(text(name, " is '", value, "', must be a number from ", low, " to ", high));
}

Result<LaunchEnv> read_from(const LauncherVariables& names, const EnvGetter& get) {
  const auto rank = get(names.rank), num_ranks = get(names.num_ranks), local_rank = get(names.local_rank);
  if (!rank || !num_ranks) {
    return Status::invalid_usage(text(rank ? names.rank : names.num_ranks, " is set, but ",
                                      rank ? names.num_ranks : names.rank, " is not; set both, or start with ",
                                      names.origin));
  }
  LaunchEnv launch;
  launch.launcher = names.launcher;
  launch.origin = names.origin;
  SWITCHYARD_ASSIGN(launch.num_ranks, to_number(names.num_ranks, *num_ranks, 1, kMaxBootstrapRanks));
  SWITCHYARD_ASSIGN(launch.rank, to_number(names.rank, *rank, 0, launch.num_ranks - 1));
  if (local_rank) {
    SWITCHYARD_ASSIGN(launch.local_rank, to_number(names.local_rank, *local_rank, 0, launch.num_ranks - 1));
  }
  return launch;
}

}  // namespace

EnvGetter process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see THREADS
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

Result<LaunchEnv> read_launch_env(const EnvGetter& get) {
  for (const LauncherVariables& names : kLaunchers) {
    if (get(names.rank) || get(names.num_ranks)) return read_from(names, get);
  }
  return Status::invalid_usage(
      "no launcher found in the environment; start with switchyard run, torchrun, mpirun or srun, or set "
      "SWITCHYARD_RANK and "
      "SWITCHYARD_NUM_RANKS");
}

}  // namespace switchyard
