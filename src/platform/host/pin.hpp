// Keeping a thread on its share of the machine's cores (hwloc).
#pragma once
#include "switchyard/status.hpp"

namespace switchyard {

// Binds the calling thread to share `share_idx` of the cores this process may use, cut into `num_shares` equal runs of
// neighbouring cores (0: one core each). With more shares than cores, shares wrap around.
// ERRORS  a build without hwloc, or an operating system that refuses, says so; the thread then stays where it was.
Status pin_current_thread(int share_idx, int num_shares);

}  // namespace switchyard
