// The low-latency protocol (src/ep/ll_*.hpp, as it is) as a program for the explorer.
//
// A few ranks, each one worker or several warps, do a script of operations on memory in the arena. Every row is one cell
// that says which operation, source and token it is of. After each operation its rank checks every row it got, and then
// prepares the next one, so that early reuse of any buffer is a race.
#pragma once
#include <cstdint>
#include <string>

#include "ep/ll_kernel.hpp"
#include "model/explorer.hpp"
#include "model/kernel_platform.hpp"

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
  bool masks = false;
  bool suspects = false;  // each other rank is told at some moment that the last one is gone, be it true or not
  int warps_of(int rank) const { return rank == 0 ? num_warps : 1; }
  uint32_t last_rank_writes = UINT32_MAX;  // the last rank is killed before it writes to shared memory once more
};

// Runs one operation on one warp.
using RunOperation = void (*)(const ModelPlatform& platform, int warp_idx, int num_warps, const ep::LlOp& op);

// What a stream's task does (src/ep/ll_launch_host.cc), over the model.
template <int kTag>
void run_operation(const ModelPlatform& base, int warp_idx, int num_warps, const ep::LlOp& op) {
  const KernelPlatform<kTag> platform(base, warp_idx, num_warps);
  if (op.group.masks_enabled && op.part != ep::LlPart::kReceive) ep::run_admission(platform, op);
  if (op.kind == ep::LlKind::kDispatch) ep::run_dispatch(platform, op);
  else ep::run_combine(platform, op);
}

Report explore_ll(const LlCase& c, RunOperation run, const Options& options = {});

}  // namespace switchyard::model
