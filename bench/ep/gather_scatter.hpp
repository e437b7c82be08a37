// Baseline: a round trip by all-gather and reduce-scatter over the same communicator. Every rank gets all tokens, takes those that
// name its experts, and adds its results up with everybody's in one reduction. No rank has to know who needs what; that costs
// bytes that nobody asked for.
//
//   dispatch  all-gather of tokens, ids and weights; rows of this rank's experts to a flat tensor, as high throughput delivers them
//   combine   this rank's results at their tokens' places, zeros elsewhere; reduce-scatter
//
// THREADS    as the rank; every call is COLLECTIVE.
// OWNERSHIP  owns its buffers; reads the rank's tokens.
// ERRORS     create() where memory lacks; the collectives' own.
#pragma once
#include <memory>
#include <vector>

#include "bench/ep/rank.hpp"
#include "coll/collectives.hpp"

namespace switchyard::bench {

class GatherScatter {
 public:
  static Result<std::unique_ptr<GatherScatter>> create(EpRank& rank);

  // Everybody's ids to everybody: the least that routing takes where all ranks scan all of it.
  Status gather_routing();
  Status dispatch();
  Status combine();
  // Of this rank, after both: tokens whose sums differ from what the experts' results add up to.
  uint64_t count_errors() const;

 private:
  explicit GatherScatter(EpRank& rank) : rank_(rank) {}

  EpRank& rank_;
  std::unique_ptr<coll::Collectives> collectives_;
  std::unique_ptr<Buffer> indices_, weights_, all_tokens_, all_indices_, all_weights_, taken_, results_, combined_;
  std::vector<size_t> mine_;  // of all tokens, those with an expert here
};

}  // namespace switchyard::bench
