#include "model/ll_model.hpp"

#include <memory>

#include "model/ll_world.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

struct AwaitCount {
  const ModelPlatform& platform;
  const uint64_t* word;
  uint64_t goal;
  bool is_reached = false;
  bool done() const { return is_reached; }
  // Acquire; pairs with the acq_rel additions in run_warp().
  bool step() { return is_reached = platform.load_acquire(word) >= goal; }
};

void await_count(ModelPlatform& platform, const uint64_t* word, uint64_t goal) {
  AwaitCount role{platform, word, goal};
  run_roles(platform, role);
}

void run_warp(ModelPlatform& p, const LlWorld& world, const Kernels& kernels, int rank, int warp_idx) {
  const int num_warps = world.shape().warps_of(rank);
  for (size_t step_idx = 0; step_idx < world.steps().size(); ++step_idx) {
    const LlStep& step = world.steps()[step_idx];
    p.set_history(step_idx);  // all else that matters from here on is in memory
    if (warp_idx > 0) await_count(p, world.launched(rank), step_idx + 1);
    else world.prepare(p, rank, step);
    if (warp_idx == 0 && num_warps > 1) p.fetch_add_acq_rel(world.launched(rank), 1);
    kernels.low_latency(p, warp_idx, num_warps, world.op(rank, step_idx));
    if (num_warps > 1) p.fetch_add_acq_rel(world.joined(rank), 1);
    if (warp_idx > 0) continue;
    if (num_warps > 1) await_count(p, world.joined(rank), (step_idx + 1) * uint64_t(num_warps));
    world.check(p, rank, step);
  }
}

}  // namespace

Report explore_ll(const LlCase& c, const Kernels& kernels, const Options& options) {
  return explore(
      [&](Arena& arena) {
        const auto world = std::make_shared<const LlWorld>(arena, c);
        Program program;
        for (int rank = 0; rank < c.num_ranks; ++rank) {
          for (int warp = 0; warp < c.warps_of(rank); ++warp) {
            program.threads.push_back({c.warps_of(rank) > 1 ? text("rank", rank, ".", warp) : text("rank", rank),
                                       [=](ModelPlatform& p) { run_warp(p, *world, kernels, rank, warp); }});
          }
        }
        program.threads.back().max_shared_writes = c.last_rank_writes;
        if (c.num_ticks > 0) {
          program.clock = world->clock();
          program.threads.push_back({"clock", [=](ModelPlatform& p) {
                                       for (uint64_t tick = 1; tick <= c.num_ticks; ++tick) {
                                         p.store_relaxed(world->clock(), tick * kSecond);
                                       }
                                     }});
        }
        if (c.suspects) {
          program.threads.push_back({"watchdog", [=](ModelPlatform& p) {
                                       for (int rank = 0; rank + 1 < c.num_ranks; ++rank) {
                                         p.store_relaxed(world->peer_state(rank, c.num_ranks - 1), 1u);
                                       }
                                     }});
        }
        return program;
      },
      options);
}

}  // namespace switchyard::model
