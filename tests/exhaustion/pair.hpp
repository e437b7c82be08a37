// Two processes that live a job's life again and again, and one of them is struck: this process is rank 0, a child of
// it rank 1.
#pragma once
#include <sys/types.h>

#include <array>
#include <string>

#include "base/fd.hpp"
#include "call_faults.hpp"
#include "resources.hpp"

namespace switchyard::testing {

// What a life is like.
struct Life {
  char net[8] = {};            // between two nodes; none: one node
  char gin[8] = {};            // how kernels reach it; none: directly
  bool checksums = false;      // of what travels between nodes
  bool round_trips = false;    // with groups, dispatches and combines
  bool spare_joining = false;  // faults strike only what comes after the communicator was made
};

// What a rank is told, and what came of it. Travels over the pair's control socket.
struct Order {
  Life life;
  CallFault fault{};
  int on_rank = -1;  // none: a life without faults
  bool stop = false;
};
struct Report {
  int code = 0;
  Resources before, after;
  uint64_t took_ns = 0;
  std::array<uint64_t, kNumCalls> num_calls{};
  char message[512] = {};
};

class Pair {
 public:
  // REQUIRES: this process has one thread.
  Pair();
  ~Pair();

  // False: rank 1 crashed or hangs.
  bool live_once(const Order& order, std::array<Report, 2>& reports);

 private:
  Fd control_;
  pid_t child_ = -1;
};

}  // namespace switchyard::testing
