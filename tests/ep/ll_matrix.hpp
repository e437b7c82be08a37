// The cases of the low-latency matrix: every combination of layout, memory kind, staging and recipe, each with two
// draws of sizes, routing, fill and index form. The list is the same on every run and in every process.
#pragma once
#include <string>
#include <vector>

#include "ep/ll_harness.hpp"

namespace switchyard::testing::ll_matrix {

constexpr int kTopks[] = {1, 2, 5, 8, 9, 31, 33, 64};
constexpr int kNumTokens[] = {1, 2, 3, 7, 16, 33, 64, 127, 130};
// Row widths in units of 16 bytes: one vector, odd numbers, cache lines and beyond, a real model.
constexpr int kRowUnits[] = {1, 3, 7, 8, 33, 66, 128, 448};

struct Case {
  oracle::Shape shape;
  oracle::Routing routing;
  oracle::Fill fill;
  LlMode mode;
  uint64_t seed;

  LlScenario scenario() const { return make_scenario(seed, shape, routing, fill); }
  std::string name() const;
};

std::vector<Case> cases_for(int num_ranks);

}  // namespace switchyard::testing::ll_matrix
