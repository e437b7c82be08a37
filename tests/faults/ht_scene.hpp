// High-throughput scenarios under masks.
#pragma once
#include "ep/ht_harness.hpp"

namespace switchyard::testing {

// Who has masked whom has no say in the model of high throughput: an update leaves out whom it misses. So a rank that
// everybody has masked is one without tokens whose experts nobody names; -1: nobody is masked. Results are those of
// expert_rows.hpp.
HtScenario make_masked_ht_scenario(uint64_t seed, oracle::HtCase c, int masked_rank);

}  // namespace switchyard::testing
