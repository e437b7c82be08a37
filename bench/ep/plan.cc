#include "bench/ep/plan.hpp"

#include <algorithm>

namespace switchyard::bench {

EpPlan::EpPlan(const EpSpec& spec)
    : spec_(spec),
      routing_(spec.routing()),
      entries_per_rank_(size_t(spec.tokens) * size_t(spec.topk)),
      experts_(size_t(spec.ranks) * entries_per_rank_),
      weights_(experts_.size()) {
  const Placement placement = spec.placement();
  const auto topk = size_t(spec.topk);
  std::vector<size_t> rows_of_expert(size_t(spec.experts), 0);
  for (int source = 0; source < spec.ranks; source++) {
    for (int token = 0; token < spec.tokens; token++) {
      const size_t entry = size_t(source) * entries_per_rank_ + size_t(token) * topk;
      routing_.token(source, token, std::span(experts_).subspan(entry, topk), std::span(weights_).subspan(entry, topk));
    }
  }
  for (const int64_t expert : experts_) rows_of_expert[size_t(expert)]++;
  for (int owner = 0; owner < spec.ranks; owner++) {
    const auto num_local = size_t(placement.num_local(owner));
    const bool by_source = !spec.expert_major() && !spec.high_throughput();
    counters_.emplace_back(by_source ? size_t(spec.ranks) : num_local, 0);
    // Where the rows of each block begin: low latency leaves room for the worst case, high throughput none.
    std::vector<size_t>& next = next_row_.emplace_back(std::max(num_local, size_t(spec.ranks)), 0);
    for (size_t block = 1; block < next.size(); block++) {
      if (!spec.high_throughput()) next[block] = block * spec.inner();
      else if (spec.expert_major()) {
        const size_t before = size_t(placement.first(owner)) + block - 1;
        next[block] = next[block - 1] + (block - 1 < num_local ? rows_of_expert[before] : 0);
      }
    }
  }
  for (int source = 0; source < spec.ranks; source++) {
    for (int token = 0; token < spec.tokens; token++) route_token(source, token);
  }
  num_rows_ = spec.high_throughput() ? size_t(spec.tokens) : spec.outer(0) * spec.inner();
  for (const RowRoute& route : rows_) num_rows_ = std::max(num_rows_, route.row + 1);
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
    const auto local = size_t(int(expert) - placement.first(owner));
    std::vector<int32_t>& counters = counters_[size_t(owner)];
    if (spec_.expert_major() || spec_.high_throughput()) counters[local]++;
    else if (first) counters[size_t(source)]++;
    if (!first && !spec_.expert_major()) continue;
    const size_t block = spec_.expert_major() ? local : spec_.high_throughput() ? 0 : size_t(source);
    rows_.push_back({source, token, owner, next_row_[size_t(owner)][block]++, first});
  }
}

std::vector<Contribution> EpPlan::contributions(int source, int token) const {
  const size_t first = size_t(token) * size_t(spec_.topk);
  std::vector<Contribution> contributions;
  std::vector<int> owners, nodes;  // seen so far; nodes by contribution, -1 for single rows
  for (size_t k = 0; k < size_t(spec_.topk); k++) {
    const int owner = spec_.placement().owner(int(experts(source)[first + k]));
    const bool is_new = std::find(owners.begin(), owners.end(), owner) == owners.end();
    owners.push_back(owner);
    if (!is_new && !spec_.expert_major()) continue;
    const int node = node_of(owner);
    const bool remote = spec_.high_throughput() && node != node_of(source);
    const auto same_node = std::find(nodes.begin(), nodes.end(), node);
    if (remote && same_node != nodes.end()) {
      contributions[size_t(same_node - nodes.begin())].num_rows++;
      continue;
    }
    const bool weighted = spec_.expert_major() && !spec_.high_throughput();
    contributions.push_back({weighted ? weights(source)[first + k] : 1.0f, 1, remote});
    nodes.push_back(remote ? node : -1);
  }
  return contributions;
}

int EpPlan::node_first(int node) const {
  return node * (spec_.ranks / spec_.nodes) + std::min(node, spec_.ranks % spec_.nodes);
}

int EpPlan::node_of(int rank) const {
  int node = 0;
  while (rank >= node_first(node + 1)) node++;
  return node;
}

int EpPlan::forwarder(int source, int node) const {
  if (node == node_of(source)) return source;
  return node_first(node) + (source - node_first(node_of(source))) % (node_first(node + 1) - node_first(node));
}

}  // namespace switchyard::bench
