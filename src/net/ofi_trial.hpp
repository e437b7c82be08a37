// A provider is tried before it is trusted: what it says of itself does not tell which operations it takes with which
// flags, and one that refuses every write would look like a peer that is lost.
//
// THREADS, OWNERSHIP  as OfiFabric, of two that nobody else uses: they are good for nothing afterwards.
// ERRORS  naming the provider, what it did not do, and what it said; kInvalidUsage: it can't be used at all.
// BLOCKING  until all has arrived, or the limit.
#pragma once
#include "base/clock.hpp"
#include "net/ofi_fabric.hpp"

namespace switchyard {

// A write with the flags of others, a message, and where others will be injected, an injected write.
Status try_out(OfiFabric& from, OfiFabric& to, Deadline limit);

}  // namespace switchyard
