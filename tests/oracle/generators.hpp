// Low-latency cases for the oracle and the library alike: patterns and contents that find bugs, the same for the same
// seed everywhere.
//
// THREADS    pure functions.
// OWNERSHIP  results are values.
// ERRORS     none; make_case() returns cases in which describe_fault() finds nothing, for every sound Shape.
#pragma once
#include <cstdint>

#include "oracle/inputs.hpp"
#include "oracle/oracle.hpp"

namespace switchyard::oracle {

// Nobody is masked.
Case make_case(uint64_t seed, const Shape& shape, Routing routing, Fill fill);

// Random finite rows for every live slot, with zeros, denormals and large values sprinkled in; no sum of them leaves
// FP32, so a combine never yields NaN. Global scales are those a caller would compute.
ExpertOutputs make_expert_outputs(uint64_t seed, const Case& c, const Dispatch& dispatch);

}  // namespace switchyard::oracle
