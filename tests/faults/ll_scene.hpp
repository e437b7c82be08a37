// Low-latency scenarios under masks.
#pragma once
#include "ep/ll_harness.hpp"

namespace switchyard::testing {

// What the model says under masks, with results as in expert_rows.hpp.
LlScenario make_masked_scenario(uint64_t seed, oracle::Case c, oracle::Masks at_dispatch, oracle::Masks at_combine);
// Everybody but itself has masked `rank`; nobody else is masked.
oracle::Masks everyone_masks(int num_ranks, int rank);

}  // namespace switchyard::testing
