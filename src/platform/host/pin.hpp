// Keeping a rank's threads on its share of the machine's cores (hwloc).
#pragma once
#include "switchyard/status.hpp"

namespace switchyard {

// One of `num_shares` equal runs of neighbouring cores. None: nobody said how many ranks share this machine.
struct CoreShare {
  int share_idx = 0;
  int num_shares = 0;
  bool none() const { return num_shares == 0; }
};

// The share of the rank that this thread works for: a communicator sets it for the thread that makes it, and streams that
// this thread creates afterwards take it over.
CoreShare this_threads_share();
void set_this_threads_share(CoreShare share);

// Binds the calling thread to a share of the cores this process may use. With more shares than cores, shares wrap around.
// ERRORS  a build without hwloc, or an operating system that refuses, says so; the thread then stays where it was.
Status pin_current_thread(CoreShare share);

}  // namespace switchyard
