// The cases of the high-throughput matrix: every combination of layout, budget, overflow policy, memory kind and
// recipe, with draws of sizes, routing, fill, alignment, index and counter form. The list is the same on every run and
// in every process.
#pragma once
#include <string>
#include <vector>

#include "ep/ht_harness.hpp"

namespace switchyard::testing::ht_matrix {

constexpr int kTopks[] = {1, 2, 3, 5, 8, 9, 33, 64};
constexpr int kNumTokens[] = {1, 2, 3, 7, 16, 33};
// Row widths in units of 16 bytes: one vector, odd numbers, cache lines and beyond.
constexpr int kRowUnits[] = {1, 3, 7, 8, 33, 66};
constexpr int kAlignments[] = {1, 4, 16, 128};
constexpr DType kScaleTypes[] = {DType::kFloat32,    DType::kFloat16,    DType::kBfloat16,
                                 DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kUint8};

struct Case {
  oracle::HtShape shape;
  oracle::Routing routing;
  oracle::Fill fill;
  oracle::Budget budget;
  HtMode mode;
  uint64_t seed;

  HtScenario scenario() const { return make_ht_scenario(seed, shape, routing, fill, budget); }
  std::string name() const { return text(describe(shape, routing, fill, budget), mode.name(), ", seed ", seed); }
};

// node_of_rank: where the ranks are; empty: all on one node.
std::vector<Case> cases_for(int num_ranks, const std::vector<int>& node_of_rank);

}  // namespace switchyard::testing::ht_matrix
