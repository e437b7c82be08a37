// The device API in kernels on a GPU: puts with signals round a ring, values, barriers.
#pragma once
#include <string>

#include "gpu/gpu_ranks.hpp"

namespace switchyard::testing {

// Empty, or what went wrong first.
std::string run_gin(GpuRanks& ranks);

}  // namespace switchyard::testing
