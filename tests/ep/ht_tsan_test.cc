// Ranks as threads, hundreds of rounds of all passes: small enough for the thread sanitizer, long enough that every
// bank, line, ring and window is used again and again. Without the sanitizer it is a test of endurance.
//
//   SWITCHYARD_ROUND_TRIPS   how many rounds (default 800)
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/env.hpp"
#include "ep/ht_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::HtLayout;

constexpr int kNumParams = 8;

int num_rounds() {
  const char* value = getenv("SWITCHYARD_ROUND_TRIPS");
  return int(parse_number(value ? value : "", kNumParams, 100'000'000).value_or(800));
}

class HighThroughputRounds : public ::testing::TestWithParam<std::tuple<HtLayout, bool, bool>> {};

// Ranks wait for each other's results or run ahead, differently in each round and on each rank.
TEST_P(HighThroughputRounds, RepeatWithoutRacesOrDifferences) {
  const auto [layout, windows, two_nodes] = GetParam();
  oracle::HtShape shape;
  shape.num_ranks = 5;
  shape.num_experts = 7;
  shape.topk = 3;
  shape.hidden = 72;  // 144 bytes: whole lines, which are streamed, and edges, which are not
  shape.max_tokens = 3;
  shape.layout = layout;
  shape.alignment = layout == HtLayout::kExpertMajor ? 2 : 1;
  shape.node_of_rank = two_nodes ? std::vector<int>{0, 0, 0, 1, 1} : std::vector<int>{0, 0, 0, 0, 0};
  const HtScenario scenario =
      make_ht_scenario(3, shape, oracle::Routing::kZipf, oracle::Fill::kPartial, oracle::Budget::kExact);
  const int share = num_rounds() / kNumParams;
  ThreadRanks ranks(shape.num_ranks, {}, shape.node_of_rank);
  ranks.on_all([&, windows = windows](int rank_idx) {
    Communicator& comm = ranks.comm(rank_idx);
    HtMode mode{.windows = windows};
    auto rank = std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), scenario, mode);
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(scenario.c, mode));
    steps(group) && steps(rank->open(*group.value()));
    for (int round = 0; round < share && steps.ok(); ++round) {
      rank->start_round(round);
      mode.pipelined = (round + rank_idx) % 3 == 0;
      run_ht_round(steps, *rank, mode, /*updates=*/round % 2 == 0);
    }
    EXPECT_EQ(steps.leave(std::move(group), std::move(rank)), "");
  });
}

INSTANTIATE_TEST_SUITE_P(All, HighThroughputRounds,
                         ::testing::Combine(::testing::Values(HtLayout::kFlat, HtLayout::kExpertMajor),
                                            ::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace switchyard::testing
