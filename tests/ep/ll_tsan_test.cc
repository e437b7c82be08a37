// Eight ranks as threads, ten thousand epochs: small enough for the thread sanitizer, long enough that every bank, line
// and window is used again thousands of times. Without the sanitizer it is a test of endurance.
//
//   SWITCHYARD_ROUND_TRIPS   how many (default 5000)
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/env.hpp"
#include "ep/ll_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRanks = 8;
// A dispatch and a combine each.
int num_round_trips() {
  const char* value = getenv("SWITCHYARD_ROUND_TRIPS");
  return int(parse_number(value ? value : "", 4, 100'000'000).value_or(5'000));
}

oracle::Shape tiny_shape(oracle::Layout layout) {
  oracle::Shape shape;
  shape.num_ranks = kNumRanks;
  shape.num_experts = kNumRanks + 1;
  shape.topk = 2;
  shape.hidden = 72;  // 144 bytes: whole lines, which are streamed, and edges, which are not
  shape.max_tokens = 2;
  shape.layout = layout;
  return shape;
}

// Staged and unstaged operations alternate, differently on each rank, so that ranks are in different states.
std::string run_round_trips(LlRank& rank, int rank_idx, int num_round_trips) {
  for (int round = 0; round < num_round_trips; ++round) {
    std::string fault = rank.run_dispatch((round + rank_idx) % 3 == 0);
    if (fault.empty()) fault = rank.run_combine((round + rank_idx) % 2 == 0);
    if (!fault.empty()) return text("round trip ", round, ": ", fault);
  }
  return "";
}

class LowLatencyEpochs : public ::testing::TestWithParam<std::tuple<oracle::Layout, bool>> {};

TEST_P(LowLatencyEpochs, RepeatWithoutRacesOrDifferences) {
  const auto [layout, windows] = GetParam();
  const int share = num_round_trips() / 4;  // the four parameters together make the whole number
  const LlScenario scenario = make_scenario(3, tiny_shape(layout), oracle::Routing::kZipf, oracle::Fill::kPartial);
  ThreadRanks ranks(kNumRanks);
  ranks.on_all([&, windows = windows](int rank_idx) {
    Communicator& comm = ranks.comm(rank_idx);
    auto rank = std::make_unique<LlRank>(comm, ranks.stream_ref(rank_idx), scenario, windows);
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(scenario.c));
    if (steps(group) && steps(rank->open(*group.value()))) steps(run_round_trips(*rank, rank_idx, share));
    EXPECT_EQ(steps.leave(std::move(group), std::move(rank)), "");
  });
}

INSTANTIATE_TEST_SUITE_P(All, LowLatencyEpochs,
                         ::testing::Combine(::testing::Values(oracle::Layout::kExpertMajor, oracle::Layout::kRankMajor),
                                            ::testing::Bool()));

}  // namespace
}  // namespace switchyard::testing
