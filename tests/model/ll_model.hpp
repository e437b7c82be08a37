// The low-latency protocol (src/ep/ll_*.hpp, as it is) as a program for the explorer.
//
// A few ranks do a script of operations on memory in the arena. Every row is one cell that says which operation, source
// and token it is of. After each operation its rank checks every row it got, and then prepares the next one, so that
// early reuse of any buffer is a race.
#pragma once
#include <cstdint>
#include <string>

#include "model/explorer.hpp"
#include "model/kernels.hpp"

namespace switchyard::model {

struct LlCase {
  int num_ranks = 2;  // rank r holds expert r
  int num_warps = 1;  // of rank 0; every other rank is one worker
  int num_tokens = 2;
  int topk = 1;
  bool expert_major = true;
  bool in_place = false;  // outputs and expert results in windows
  // One letter an operation: D dispatch, C combine; d, c their send halves alone; r the receive half of the oldest.
  std::string script = "DCDC";
  uint64_t num_ticks = 0;  // of a second, each at any moment: staged sends give up waiting for consent
  bool masks = false;
  bool suspects = false;  // each other rank is told at some moment that the last one is gone, be it true or not
  uint32_t last_rank_writes = UINT32_MAX;  // the last rank is killed before it writes to shared memory once more

  int warps_of(int rank) const { return rank == 0 ? num_warps : 1; }
};

Report explore_ll(const LlCase& c, const Kernels& kernels, const Options& options = {});

}  // namespace switchyard::model
