// The measurements of `switchyard bench gin`, as its two ranks make them.
//
// Raw and ours take turns, round by round, so that a change of the machine's mood meets both; each round has connections of
// its own.
//
// THREADS    one per rank, and one more at rank 0 that keeps the network busy.
// ERRORS     which path failed, and at what.
// BLOCKING   seconds.
#pragma once
#include "bench/gin/spec.hpp"
#include "comm/communicator.hpp"

namespace switchyard::bench {

// COLLECTIVE over two ranks. The result is rank 0's: {"runs": [one per size], "behind_bulk": {...}}.
Result<nlohmann::json> run_gin_job(const GinSpec& spec, Communicator& comm);

}  // namespace switchyard::bench
