// Random low-latency cases: what the matrix has and what lies between, ranks that stage or don't, masks.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ep/ll_harness.hpp"

namespace switchyard::testing::ll_random {

struct Case {
  oracle::Shape shape;
  oracle::Routing routing = oracle::Routing::kUniform;
  oracle::Fill fill = oracle::Fill::kFull;
  bool windows = false;
  unsigned staged = 0;  // bit r: rank r stages. Ranks need not do the same.
  int num_rounds = 1;
  std::optional<int> masked_pairs;  // none: a group without masks
  uint64_t seed = 0;

  LlMode mode_of(int rank) const;
  LlScenario scenario() const;
  std::string name() const;
};

// REQUIRES  to be called inside a property of RapidCheck.
Case draw_case(int num_ranks);
// Outside of one: so many, the same on every run and in every process.
std::vector<Case> cases_for(int num_ranks, size_t num_cases);

}  // namespace switchyard::testing::ll_random
