#include "model/ht_model.hpp"

#include <memory>

#include "model/ht_world.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {

Report explore_ht(const HtCase& c, const Kernels& kernels, const Options& options) {
  return explore(
      [&](Arena& arena) {
        const auto world = std::make_shared<const HtWorld>(arena, c);
        Program program;
        program.couriers = world->couriers();
        for (int rank = 0; rank < c.num_ranks(); ++rank) {
          program.threads.push_back({text("rank", rank), [=](ModelPlatform& p) {
                                       for (size_t step_idx = 0; step_idx < world->steps().size(); ++step_idx) {
                                         p.set_history(step_idx);  // all else that matters from here on is in memory
                                         world->prepare(p, rank, world->steps()[step_idx]);
                                         kernels.high_throughput(p, world->op(rank, step_idx));
                                         world->check(p, rank, world->steps()[step_idx]);
                                       }
                                     }});
        }
        return program;
      },
      options);
}

}  // namespace switchyard::model
