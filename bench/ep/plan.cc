#include "bench/ep/plan.hpp"

#include <algorithm>

namespace switchyard::bench {

EpPlan::EpPlan(const EpSpec& spec)
    : spec_(spec),
      routing_(spec.routing()),
      entries_per_rank_(size_t(spec.tokens) * size_t(spec.topk)),
      experts_(size_t(spec.ranks) * entries_per_rank_),
      weights_(experts_.size()) {
  for (int owner = 0; owner < spec.ranks; owner++) counters_.emplace_back(spec.outer(owner), 0);
  const auto topk = size_t(spec.topk);
  for (int source = 0; source < spec.ranks; source++) {
    for (int token = 0; token < spec.tokens; token++) {
      const size_t entry = size_t(source) * entries_per_rank_ + size_t(token) * topk;
      routing_.token(source, token, std::span(experts_).subspan(entry, topk), std::span(weights_).subspan(entry, topk));
      route_token(source, token);
    }
  }
}

// Rows follow each other by (source, token, k) inside a block, as the library promises.
void EpPlan::route_token(int source, int token) {
  std::vector<int> used;
  const Placement placement = spec_.placement();
  const auto mine = experts(source).subspan(size_t(token) * size_t(spec_.topk), size_t(spec_.topk));
  for (const int64_t expert : mine) {
    const int owner = placement.owner(int(expert));
    const bool first = std::find(used.begin(), used.end(), owner) == used.end();
    if (first) used.push_back(owner);
    if (!first && !spec_.expert_major()) continue;
    const auto block = size_t(spec_.expert_major() ? int(expert) - placement.first(owner) : source);
    int32_t& ordinal = counters_[size_t(owner)][block];
    rows_.push_back({source, token, owner, block * spec_.inner() + size_t(ordinal), first});
    ordinal++;
  }
}

std::vector<float> EpPlan::contributions(int source, int token) const {
  const size_t first = size_t(token) * size_t(spec_.topk);
  if (spec_.expert_major()) {
    const auto mine = weights(source).subspan(first, size_t(spec_.topk));
    return {mine.begin(), mine.end()};
  }
  std::vector<int> owners;
  for (const int64_t expert : experts(source).subspan(first, size_t(spec_.topk))) {
    const int owner = spec_.placement().owner(int(expert));
    if (std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
  }
  return std::vector<float>(owners.size(), 1.0f);
}

}  // namespace switchyard::bench
