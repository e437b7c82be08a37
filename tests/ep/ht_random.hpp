// Random high-throughput cases: what the matrix has and what lies between, forms of zero copy, updates that ask for
// less.
#pragma once
#include <string>
#include <vector>

#include "ep/ht_harness.hpp"

namespace switchyard::testing::ht_random {

struct Case {
  oracle::HtShape shape;
  oracle::Routing routing = oracle::Routing::kUniform;
  oracle::Fill fill = oracle::Fill::kFull;
  oracle::Budget budget = oracle::Budget::kExact;
  HtMode mode;
  uint64_t seed = 0;

  HtScenario scenario() const { return make_ht_scenario(seed, shape, routing, fill, budget); }
  std::string name() const { return text(describe(shape, routing, fill, budget), mode.name(), ", seed ", seed); }
};

// node_of_rank: where the ranks are; empty: all on one node. REQUIRES  to be called inside a property of RapidCheck.
Case draw_case(int num_ranks, const std::vector<int>& node_of_rank);
// Outside of one: so many, the same on every run and in every process.
std::vector<Case> cases_for(int num_ranks, const std::vector<int>& node_of_rank, size_t num_cases);

}  // namespace switchyard::testing::ht_random
