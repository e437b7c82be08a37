// Between nodes: rows cross the network once per node, are forwarded inside, and come back as one sum per node.
#include <gtest/gtest.h>

#include "ep/ht_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::Budget;
using oracle::Fill;
using oracle::HtLayout;
using oracle::Routing;

struct Nodes {
  const char* name;
  std::vector<int> of_rank;
};
const Nodes kNodes[] = {{"two_of_one", {0, 1}},
                        {"two_of_two", {0, 0, 1, 1}},
                        {"one_and_four", {0, 1, 1, 1, 1}},
                        {"three_uneven", {0, 0, 0, 1, 2, 2}},
                        {"four_uneven", {0, 0, 0, 1, 1, 2, 3, 3}}};

// To the other nodes.
struct Way {
  const char* net;
  const char* gin;
};
const Way kWays[] = {{"mem", "direct"}, {"mem", "proxy"}, {"ofi", "direct"}, {"ofi", "proxy"}};

// Leaves out what the rank has beyond its first tokens.
void keep_tokens(oracle::HtCase& c, int rank, int num_tokens) {
  const auto rows = size_t(num_tokens);
  c.num_tokens[size_t(rank)] = num_tokens;
  c.topk_idx[size_t(rank)].resize(rows * size_t(c.topk));
  c.topk_weights[size_t(rank)].resize(rows * size_t(c.topk));
  c.tokens[size_t(rank)].resize(rows * c.input_token_bytes());
}

class HtBetweenNodes : public ::testing::TestWithParam<std::tuple<Nodes, Way>> {
 protected:
  const std::vector<int>& nodes() const { return std::get<0>(GetParam()).of_rank; }
  const Way& way() const { return std::get<1>(GetParam()); }
  int num_ranks() const { return int(nodes().size()); }
  Communicator::Options options() const { return {.net = way().net, .gin = way().gin}; }

  oracle::HtShape shape_of(HtLayout layout) const {
    oracle::HtShape shape;
    shape.num_ranks = num_ranks();
    shape.num_experts = 2 * num_ranks() + 1;
    shape.topk = 5;
    shape.hidden = 64;
    shape.max_tokens = 9;
    shape.layout = layout;
    shape.node_of_rank = nodes();
    return shape;
  }

  static void run_case(ThreadRanks& ranks, const HtScenario& scenario, const HtMode& mode) {
    ranks.on_all(
        [&](int rank) { EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, mode), ""); });
  }
};
std::string name_of(const ::testing::TestParamInfo<std::tuple<Nodes, Way>>& info) {
  const auto& [nodes, way] = info.param;
  return text(nodes.name, "_", way.net, "_", way.gin);
}
INSTANTIATE_TEST_SUITE_P(All, HtBetweenNodes,
                         ::testing::Combine(::testing::ValuesIn(kNodes), ::testing::ValuesIn(kWays)), name_of);

TEST_P(HtBetweenNodes, EveryBudgetAndRecipeMatchesTheOracle) {
  ThreadRanks ranks(num_ranks(), options(), nodes());
  uint64_t seed = 1;
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const Budget budget : oracle::kAllBudgets) {
      for (const bool forwards : {false, true}) {
        oracle::HtShape shape = shape_of(layout);
        if (forwards) {
          shape.dispatch_recipe = oracle::DispatchRecipe::kForward;
          shape.dtype = DType::kFloat8E4M3;
          shape.scale_width = 4;
          shape.combine_dtype = DType::kFloat16;
        }
        shape.overflow = seed % 2 != 0 ? oracle::Overflow::kDrop : oracle::Overflow::kTrap;
        shape.alignment = layout == HtLayout::kExpertMajor ? 4 : 1;
        const Routing routing = oracle::kAllRoutings[seed % std::size(oracle::kAllRoutings)];
        const Fill fill = oracle::kAllFills[seed % std::size(oracle::kAllFills)];
        const HtScenario scenario = make_ht_scenario(++seed, shape, routing, fill, budget);
        run_case(ranks, scenario,
                 {.windows = seed % 3 == 0, .pipelined = seed % 5 < 2, .num_rounds = 2, .timeout_ns = 20 * kSecond});
        if (HasFailure()) FAIL() << describe(shape, routing, fill, budget);
      }
    }
  }
}

// The first and the last rank send many more rows than a ring between nodes holds, so that senders and receivers run
// into each other; the others have little to do.
TEST_P(HtBetweenNodes, LongStreamsOfWideRowsMatchTheOracle) {
  ThreadRanks ranks(num_ranks(), options(), nodes());
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    oracle::HtShape shape = shape_of(layout);
    shape.topk = 2;
    shape.dtype = shape.combine_dtype = DType::kFloat32;
    shape.hidden = 4096;  // 16 KiB
    shape.max_tokens = 90;
    oracle::HtCase c = oracle::make_ht_case(3, shape, Routing::kUniform, Fill::kFull, Budget::kEager);
    for (int rank = 1; rank < num_ranks() - 1; ++rank) keep_tokens(c, rank, 2);
    run_case(ranks, make_ht_scenario(3, c), {.windows = layout == HtLayout::kFlat, .timeout_ns = 20 * kSecond});
  }
}

// ---- a rank that is not there ----

class HtMissingRank : public HtBetweenNodes {};
INSTANTIATE_TEST_SUITE_P(Some, HtMissingRank,
                         ::testing::Combine(::testing::Values(kNodes[1], kNodes[3]),
                                            ::testing::Values(kWays[0], kWays[3])),
                         name_of);

TEST_P(HtMissingRank, IsNamed) {
  ThreadRanks ranks(num_ranks(), options(), nodes());
  const HtScenario scenario =
      make_ht_scenario(3, shape_of(HtLayout::kFlat), Routing::kUniform, Fill::kFull, Budget::kExact);
  const int missing = num_ranks() - 1;
  ranks.on_all([&](int rank) {
    ep::GroupConfig config = group_config_for(scenario.c);
    config.timeout_ns = 300 * kMillisecond;
    auto group = ep::Group::create(ranks.comm(rank), config);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    HtRank io(ranks.comm(rank), ranks.stream_ref(rank), scenario, {});
    ASSERT_TRUE(io.open(**group).ok());
    if (rank != missing) {
      ASSERT_TRUE(io.post_update().ok());
      const Status done = io.synchronize();
      EXPECT_EQ(done.code(), Code::kRemoteError) << done.to_string();
      EXPECT_NE(done.message().find(text("rank ", missing)), std::string::npos) << done.to_string();
    }
    EXPECT_TRUE(ranks.comm(rank).barrier().ok());
    io.close();
  });
}

}  // namespace
}  // namespace switchyard::testing
