// Dispatch and combine between nodes: by load and store inside a node, over the network outside, against the oracle.
#include <gtest/gtest.h>

#include <atomic>

#include "ep/ll_harness.hpp"
#include "platform/host/wait.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::Fill;
using oracle::Layout;
using oracle::Routing;

struct Nodes {
  const char* name;
  std::vector<int> of_rank;
};

const Nodes kNodes[] = {{"two_of_one", {0, 1}},
                        {"two_of_two", {0, 0, 1, 1}},
                        {"four_of_one", {0, 1, 2, 3}},
                        {"uneven", {0, 0, 0, 1, 2, 2}}};

oracle::Shape shape_of(int num_ranks, Layout layout, int recipe) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 2 * num_ranks + 1;
  shape.topk = 3;
  shape.hidden = 128;
  shape.max_tokens = 7;
  shape.layout = layout;
  if (recipe == 1) shape.dispatch_recipe = oracle::DispatchRecipe::kDsFp8;
  if (recipe == 2) {
    shape.dispatch_recipe = oracle::DispatchRecipe::kForward;
    shape.dtype = DType::kFloat8E4M3;
    shape.scale_dtype = DType::kFloat32;
    shape.scale_width = 4;
  }
  if (recipe == 3) {
    shape.combine_recipe = oracle::CombineRecipe::kNvfp4;
    shape.combine_hidden = 96;
  }
  return shape;
}

// To the other nodes.
struct Way {
  const char* net;
  const char* gin;
};
const Way kWays[] = {{"mem", "direct"}, {"mem", "proxy"}, {"ofi", "direct"}, {"ofi", "proxy"}};

class BetweenNodes : public ::testing::TestWithParam<std::tuple<Nodes, Way>> {
 protected:
  const std::vector<int>& nodes() const { return std::get<0>(GetParam()).of_rank; }
  const Way& way() const { return std::get<1>(GetParam()); }
  int num_ranks() const { return int(nodes().size()); }
  Communicator::Options options() const { return {.net = way().net, .gin = way().gin}; }

  static void run_case(ThreadRanks& ranks, const LlScenario& scenario, LlMode mode) {
    ranks.on_all([&](int rank) {
      EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, mode), "");
    });
  }
};
INSTANTIATE_TEST_SUITE_P(All, BetweenNodes,
                         ::testing::Combine(::testing::ValuesIn(kNodes), ::testing::ValuesIn(kWays)),
                         [](const auto& nodes) {
                           const Way& way = std::get<1>(nodes.param);
                           return text(std::get<0>(nodes.param).name, "_", way.net, "_", way.gin);
                         });

TEST_P(BetweenNodes, EveryRecipeMatchesTheOracle) {
  ThreadRanks ranks(num_ranks(), options(), nodes());
  uint64_t seed = 1;
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    for (int recipe = 0; recipe < 4 && !HasFailure(); ++recipe) {
      const oracle::Shape shape = shape_of(num_ranks(), layout, recipe);
      const Routing routing = oracle::kAllRoutings[seed % std::size(oracle::kAllRoutings)];
      const Fill fill = oracle::kAllFills[seed % std::size(oracle::kAllFills)];
      const LlScenario scenario = make_scenario(++seed, shape, routing, fill);
      const LlMode mode{.windows = seed % 2 == 0, .staged = seed % 3 == 0, .num_rounds = 5, .timeout_ns = 20 * kSecond};
      run_case(ranks, scenario, mode);
      if (HasFailure()) ADD_FAILURE() << describe(shape, routing, fill);
    }
  }
}

TEST_P(BetweenNodes, MasksMatchTheOracle) {
  ThreadRanks ranks(num_ranks(), options(), nodes());
  const int num_pairs = num_ranks() * (num_ranks() - 1) / 2;
  for (int pair = 0; pair < num_pairs && !HasFailure(); ++pair) {
    const Layout layout = pair % 2 ? Layout::kExpertMajor : Layout::kRankMajor;
    run_case(ranks,
             make_scenario(7, shape_of(num_ranks(), layout, 0), Routing::kUniform, Fill::kPartial,
                           masks_of_pairs(num_ranks(), uint64_t{1} << pair)),
             {.num_rounds = 2, .timeout_ns = 20 * kSecond});
  }
}

TEST_P(BetweenNodes, ARankThatStaysAwayIsNamed) {
  ThreadRanks ranks(num_ranks(), options(), nodes());
  const LlScenario scenario =
      make_scenario(3, shape_of(num_ranks(), Layout::kExpertMajor, 0), Routing::kUniform, Fill::kFull);
  const int missing = num_ranks() - 1;
  ranks.on_all([&](int rank) {
    ep::GroupConfig config = group_config_for(scenario.c);
    config.timeout_ns = 300 * kMillisecond;
    auto group = ep::Group::create(ranks.comm(rank), config);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    LlRank io(ranks.comm(rank), ranks.stream_ref(rank), scenario, /*windows=*/false);
    ASSERT_TRUE(io.open(**group).ok());
    if (rank != missing) {
      ASSERT_TRUE(io.post_dispatch().ok());
      const Status done = io.synchronize();
      EXPECT_EQ(done.code(), Code::kRemoteError) << done.to_string();
      EXPECT_NE(done.message().find(text("rank ", missing)), std::string::npos) << done.to_string();
    }
    EXPECT_TRUE(ranks.comm(rank).barrier().ok());
    io.close();
  });
}

// A group that all is well with does not wait, as it ends, for ranks that another group of the communicator could not reach.
TEST_P(BetweenNodes, AGroupEndsAtOnceWhereAnotherOneFailed) {
  ThreadRanks ranks(num_ranks(), options(), nodes());
  const LlScenario scenario =
      make_scenario(3, shape_of(num_ranks(), Layout::kExpertMajor, 0), Routing::kUniform, Fill::kFull);
  const int missing = num_ranks() - 1;
  std::atomic<int> num_ended = 0;
  ranks.on_all([&](int rank) {
    ep::GroupConfig config = group_config_for(scenario.c);
    config.timeout_ns = 300 * kMillisecond;
    auto group = ep::Group::create(ranks.comm(rank), config);
    auto other = ep::Group::create(ranks.comm(rank), config);
    ASSERT_TRUE(group.ok() && other.ok()) << group.status().to_string() << other.status().to_string();
    LlRank io(ranks.comm(rank), ranks.stream_ref(rank), scenario, /*windows=*/false);
    ASSERT_TRUE(io.open(**group).ok());
    if (rank != missing) {
      ASSERT_TRUE(io.post_dispatch().ok());
      EXPECT_EQ(io.synchronize().code(), Code::kRemoteError);
      const uint64_t begin_ns = now_ns();
      EXPECT_TRUE((*other)->close().ok());
      EXPECT_LT(now_ns() - begin_ns, 5 * kSecond);
      io.close();
      ++num_ended;
    } else {
      wait_until([&] { return num_ended == num_ranks() - 1; }, Deadline::after_ns(60 * kSecond));
      ranks.comm(rank).abort("the others are done");  // else it waits for them
      io.close();
    }
  });
}

}  // namespace
}  // namespace switchyard::testing
