// A provider is tried before it is trusted: what it says of itself does not tell which operations it takes with which
// flags, and one that refuses every write would look like a peer that is lost.
//
// THREADS, OWNERSHIP  as OfiFabric, of one that nobody else uses: it is good for nothing afterwards.
// ERRORS  naming the provider, what it did not do, and what it said.
// BLOCKING  until it is connected to itself and both have arrived, or the limit.
#pragma once
#include "base/clock.hpp"
#include "net/ofi_fabric.hpp"

namespace switchyard {

// One write to oneself with the flags of all others, and one message.
Status try_out(OfiFabric& fabric, Deadline limit);

}  // namespace switchyard
