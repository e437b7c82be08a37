// The thinnest path: two ranks, one token, there and back; then the same with everything turned on.
#include <gtest/gtest.h>

#include "ep/ll_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

void run_case(const oracle::Shape& shape, oracle::Routing routing, oracle::Fill fill, LlMode mode) {
  const LlScenario scenario = make_scenario(7, shape, routing, fill);
  ThreadRanks ranks(shape.num_ranks);
  ranks.on_all([&](int rank) {
    EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, mode), "");
  });
}

oracle::Shape small_shape(int num_ranks, oracle::Layout layout) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 4 * num_ranks;
  shape.topk = 2;
  shape.hidden = 64;
  shape.max_tokens = 3;
  shape.layout = layout;
  return shape;
}

TEST(LowLatency, TwoRanksOneTokenThereAndBack) {
  oracle::Shape shape = small_shape(2, oracle::Layout::kExpertMajor);
  shape.max_tokens = 1;
  shape.topk = 1;
  run_case(shape, oracle::Routing::kUniform, oracle::Fill::kFull, {});
}

class LowLatencyModes : public ::testing::TestWithParam<std::tuple<oracle::Layout, bool, bool, int>> {};

TEST_P(LowLatencyModes, MatchTheOracle) {
  const auto [layout, windows, staged, num_ranks] = GetParam();
  for (const oracle::Routing routing : oracle::kAllRoutings) {
    run_case(small_shape(num_ranks, layout), routing, oracle::Fill::kPartial, {windows, staged, 5});
    if (HasFailure()) FAIL() << oracle::routing_name(routing);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LowLatencyModes,
                         ::testing::Combine(::testing::Values(oracle::Layout::kExpertMajor, oracle::Layout::kRankMajor),
                                            ::testing::Bool(), ::testing::Bool(), ::testing::Values(1, 2, 3, 8)));

}  // namespace
}  // namespace switchyard::testing
