// Networks that libfabric reaches (docs/networks.md): RDMA writes that carry completion data, applied at the target in the
// order of their sequence numbers, so that nothing depends on the order in which a provider delivers, or on which of
// several interfaces it does.
//
// SWITCHYARD_NET=ofi takes "tcp;ofi_rxm"; SWITCHYARD_NET=ofi:PROVIDER another provider.
#pragma once
#include "net/net.hpp"

namespace switchyard {

NetPlugin ofi_plugin();

}  // namespace switchyard
