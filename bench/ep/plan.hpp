// Where every row of a run goes, worked out from the routing alone: the list behind the memory bound and the check of
// the results. Every rank makes the same plan by itself.
//
// THREADS    immutable once made.
// ERRORS     none: REQUIRES a valid spec.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/ep/spec.hpp"

namespace switchyard::bench {

// One row of one output tensor: the token it holds and where it lies. In rank-major layout a token has one at each of
// its ranks, in expert-major layout one for each of its experts.
struct RowRoute {
  int source, token;
  int owner;            // rank whose output it is in
  size_t row;           // there
  bool first_to_owner;  // no earlier row brings this token to this rank
};

class EpPlan {
 public:
  explicit EpPlan(const EpSpec& spec);

  const Routing& routing() const { return routing_; }
  // Ordered by (source, token, k).
  std::span<const RowRoute> rows() const { return rows_; }
  // What each rank's dispatch counts: rows per local expert, or per source.
  std::span<const int32_t> counters(int owner) const { return counters_[size_t(owner)]; }
  // [tokens, topk] of one rank.
  std::span<const int64_t> experts(int source) const { return slice(experts_, source); }
  std::span<const float> weights(int source) const { return slice(weights_, source); }
  // The weights that combine gives to the rows of one token, in the order in which it adds them up.
  std::vector<float> contributions(int source, int token) const;

 private:
  template <class T>
  std::span<const T> slice(const std::vector<T>& all, int source) const {
    return std::span(all).subspan(size_t(source) * entries_per_rank_, entries_per_rank_);
  }
  void route_token(int source, int token);

  const EpSpec spec_;
  const Routing routing_;
  const size_t entries_per_rank_;
  std::vector<int64_t> experts_;
  std::vector<float> weights_;
  std::vector<RowRoute> rows_;
  std::vector<std::vector<int32_t>> counters_;
};

}  // namespace switchyard::bench
