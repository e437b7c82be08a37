// The baseline beside a run: the same rows by permutation and MPI_Alltoallv (bench/mpi_baseline.cc).
#pragma once
#include <nlohmann/json.hpp>

#include "bench/ep/spec.hpp"

namespace switchyard::tools {

// {"name", "round_trip_us", "speedup"}, or {"name", "unavailable"} with the reason: a machine without MPI is no error.
// BLOCKING until mpirun has ended, at most some minutes.
nlohmann::json run_mpi_baseline(const bench::EpSpec& spec, double our_round_trip_us);

}  // namespace switchyard::tools
