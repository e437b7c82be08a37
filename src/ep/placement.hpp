// Which rank holds which expert. A table, so that other placements (and later replicas) change nothing else; the default
// is contiguous blocks, and where experts don't divide by ranks the first ranks hold one more.
#pragma once
#include <cstdint>
#include <vector>

namespace switchyard::ep {

struct Placement {
  std::vector<int32_t> owner;      // by expert
  std::vector<int32_t> local;      // by expert: its index at the owner
  std::vector<int32_t> num_local;  // by rank

  static Placement contiguous(int num_experts, int num_ranks) {
    Placement placement;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const int count = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
      placement.num_local.push_back(count);
      for (int local = 0; local < count; ++local) {
        placement.owner.push_back(rank);
        placement.local.push_back(local);
      }
    }
    return placement;
  }
};

}  // namespace switchyard::ep
