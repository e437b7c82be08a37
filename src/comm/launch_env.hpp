// Who am I? The rank, the number of ranks and the place on the host, from what a launcher puts into the environment.
//
//   launcher         rank                   number of ranks        rank on its host (optional)
//   switchyard run   SWITCHYARD_RANK        SWITCHYARD_NUM_RANKS   SWITCHYARD_LOCAL_RANK
//   torchrun         RANK                   WORLD_SIZE             LOCAL_RANK
//   Open MPI         OMPI_COMM_WORLD_RANK   OMPI_COMM_WORLD_SIZE   OMPI_COMM_WORLD_LOCAL_RANK
//   Slurm            SLURM_PROCID           SLURM_NTASKS           SLURM_LOCALID
//
// The first launcher in this order that left a trace is taken; an empty variable counts as unset.
//
// THREADS  as the getter; that of the process must not run beside setenv().
// ERRORS   kInvalidUsage if nothing or only half of it is set, kInvalidArgument for a value out of range.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "switchyard/status.hpp"

namespace switchyard {

// The value of a variable, or nothing if it is unset or empty.
using EnvGetter = std::function<std::optional<std::string>(const char* name)>;
EnvGetter process_environment();

enum class Launcher { kSwitchyardRun, kTorchrun, kOpenMpi, kSlurm };

struct LaunchEnv {
  int rank = 0;
  int num_ranks = 1;
  int local_rank = -1;  // -1: the launcher did not say
  Launcher launcher = Launcher::kSwitchyardRun;
  std::string origin;  // the launcher in words
};

Result<LaunchEnv> read_launch_env(const EnvGetter& get);

}  // namespace switchyard
