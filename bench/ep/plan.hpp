// Where every row of a run goes, worked out from the routing alone: the list behind the memory bound and the check of
// the results. Every rank makes the same plan by itself.
//
// THREADS    immutable once made.
// ERRORS     none: REQUIRES a valid spec.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/ep/spec.hpp"

namespace switchyard::bench {

// One row of one output tensor: the token it holds and where it lies. In rank-major and flat layout a token has one at each of
// its ranks, in expert-major layout one for each of its experts.
struct RowRoute {
  int source, token;
  int owner;            // rank whose output it is in
  size_t row;           // there
  bool first_to_owner;  // no earlier row brings this token to this rank
};

// What combine adds up for one token, in this order: a row under a weight; high throughput: the rows of a node, rounded once if it is
// another one.
struct Contribution {
  float weight;
  int num_rows;
  bool rounded;
};

class EpPlan {
 public:
  explicit EpPlan(const EpSpec& spec);

  const Routing& routing() const { return routing_; }
  // Ordered by (source, token, k).
  std::span<const RowRoute> rows() const { return rows_; }
  // Rows of the output tensors of all ranks: what the fullest receives, and no less than low latency wants.
  size_t num_rows() const { return num_rows_; }
  // What each rank's dispatch counts: rows per local expert, or per source (rank-major).
  std::span<const int32_t> counters(int owner) const { return counters_[size_t(owner)]; }
  // [tokens, topk] of one rank.
  std::span<const int64_t> experts(int source) const { return slice(experts_, source); }
  std::span<const float> weights(int source) const { return slice(weights_, source); }
  std::vector<Contribution> contributions(int source, int token) const;
  // Contiguous blocks of ranks, as `switchyard run` makes them.
  int node_of(int rank) const;
  // Who brings rows of `source` to the ranks of that node: the source, or its partner there.
  int forwarder(int source, int node) const;

 private:
  template <class T>
  std::span<const T> slice(const std::vector<T>& all, int source) const {
    return std::span(all).subspan(size_t(source) * entries_per_rank_, entries_per_rank_);
  }
  void route_token(int source, int token);
  int node_first(int node) const;

  const EpSpec spec_;
  const Routing routing_;
  const size_t entries_per_rank_;
  std::vector<int64_t> experts_;
  std::vector<float> weights_;
  std::vector<RowRoute> rows_;
  std::vector<std::vector<int32_t>> counters_;
  std::vector<std::vector<size_t>> next_row_;  // [owner][block]
  size_t num_rows_ = 0;
};

// Calls body(source, forwarder) for every token and other node that has rows of it: what must cross the network.
template <class Body>
void for_each_crossing(const EpPlan& plan, Body body) {
  const RowRoute* last = nullptr;
  std::vector<int> crossed;  // nodes, by the current token
  for (const RowRoute& route : plan.rows()) {
    if (last == nullptr || last->source != route.source || last->token != route.token) crossed.clear();
    last = &route;
    const int node = plan.node_of(route.owner);
    if (node == plan.node_of(route.source) || std::find(crossed.begin(), crossed.end(), node) != crossed.end()) continue;
    crossed.push_back(node);
    body(route.source, plan.forwarder(route.source, node));
  }
}

}  // namespace switchyard::bench
