// Random cases, found and shrunk by RapidCheck. A failure prints the smallest case it could find and the RC_PARAMS that
// bring it back.
#include "ep/ht_random.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "ep/random_cases.hpp"
#include "ep/random_draws.hpp"

namespace switchyard::testing {
namespace {

constexpr uint64_t kDefaultNumCases = 5'000;
constexpr int kMaxRanks = 8;

// One split for every number of ranks, because each needs communicators of its own: half of the ranks, most of the
// others, the last one. Where the environment says how many nodes there are, that is it.
std::vector<int> draw_nodes(int num_ranks) {
  std::vector<int> nodes = ThreadRanks::default_nodes(num_ranks);
  if (!nodes.empty() || between(0, 2) != 2) return nodes;
  const int num_first = (num_ranks + 1) / 2;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const bool is_alone = rank == num_ranks - 1 && rank > num_first;
    nodes.push_back(rank < num_first ? 0 : is_alone ? 2 : 1);
  }
  return nodes;
}

TEST(HighThroughputRandom, EveryCaseMatchesTheOracle) {
  set_num_cases(kDefaultNumCases);
  RankPool pool;
  const bool passed = rc::check("forward and backward passes give every rank what the oracle says", [&] {
    const int num_ranks = between(1, kMaxRanks);
    const ht_random::Case random_case = ht_random::draw_case(num_ranks, draw_nodes(num_ranks));
    RC_LOG() << random_case.name() << "\n";
    const HtScenario scenario = random_case.scenario();
    const std::string faults = pool.run(
        num_ranks, random_case.shape.node_of_rank,
        [&](Communicator& comm, StreamRef stream) { return run_ht_case(comm, stream, scenario, random_case.mode); });
    if (!faults.empty()) RC_FAIL(faults);
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace switchyard::testing
