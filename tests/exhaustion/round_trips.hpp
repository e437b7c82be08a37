// What a job makes a communicator for: a group of each algorithm, a handle, a dispatch and a combine; and collectives.
#pragma once
#include "comm/communicator.hpp"
#include "switchyard/stream.hpp"

namespace switchyard::testing {

// COLLECTIVE. Every wait ends after `timeout_ns`. Ok: each token came back as it left, and the collectives' results are
// right.
Status make_round_trips(Communicator& comm, StreamRef stream, uint64_t timeout_ns);

}  // namespace switchyard::testing
