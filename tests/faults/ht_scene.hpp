// High-throughput scenarios under masks.
#pragma once
#include "ep/ht_harness.hpp"
#include "oracle/case.hpp"

namespace switchyard::testing {

// What comes of an update under masks, with results as in expert_rows.hpp: entries that have no way to their expert are
// as if they were not there. There is none between ranks of which one has masked the other, nor, from node to node,
// through a forwarder that is one of two such ranks. Callers name all experts.
HtScenario make_masked_ht_scenario(uint64_t seed, oracle::HtCase c, const oracle::Masks& masks);

}  // namespace switchyard::testing
