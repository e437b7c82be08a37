// The network of one machine: ranks that pretend to be on different nodes, as threads or processes, reach each other by
// copying into mapped memory. Synchronous, ordered, and needs nobody's progress.
#pragma once
#include "net/net.hpp"

namespace switchyard {

NetPlugin mem_plugin();

}  // namespace switchyard
