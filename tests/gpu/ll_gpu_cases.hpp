// The cases that the GPU must agree with the oracle on: every layout, recipe, type, way of placing tensors, staging and
// routing with every other, over shapes that take turns.
#pragma once
#include <string>
#include <vector>

#include "ep/ll_harness.hpp"

namespace switchyard::testing {

struct GpuCase {
  uint64_t seed;
  oracle::Shape shape;
  oracle::Routing routing;
  oracle::Fill fill;
  LlMode mode;

  std::string name() const;
};

std::vector<GpuCase> gpu_cases(int num_ranks);

}  // namespace switchyard::testing
