// Backward passes: over the plan of a forward pass, some time later, from another handle over the same memory.
#include <gtest/gtest.h>

#include "ep/ht_harness.hpp"
#include "support/guarded_runtime.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using enum ep::PassDirection;
using oracle::Budget;
using oracle::Fill;
using oracle::HtLayout;
using oracle::Routing;

oracle::HtShape shape_with(int num_ranks, HtLayout layout, int topk) {
  oracle::HtShape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 2 * num_ranks + 1;
  shape.topk = topk;
  shape.hidden = 24;
  shape.max_tokens = 6;
  shape.layout = layout;
  shape.alignment = layout == HtLayout::kExpertMajor ? 4 : 1;
  shape.node_of_rank = ThreadRanks::default_nodes(num_ranks);
  return shape;
}

class HtBackward : public ::testing::TestWithParam<std::tuple<HtLayout, bool>> {
 protected:
  HtLayout layout() const { return std::get<0>(GetParam()); }
  HtMode mode() const { return {.windows = std::get<1>(GetParam())}; }
};
INSTANTIATE_TEST_SUITE_P(All, HtBackward,
                         ::testing::Combine(::testing::Values(HtLayout::kFlat, HtLayout::kExpertMajor),
                                            ::testing::Bool()));

// Three microbatches go forward, then come back in the opposite order.
TEST_P(HtBackward, MicrobatchesComeBackInTheOppositeOrder) {
  std::vector<HtScenario> scenarios;
  for (const Routing routing : {Routing::kUniform, Routing::kDuplicates, Routing::kSomeDropped}) {
    oracle::HtCase c =
        oracle::make_ht_case(scenarios.size(), shape_with(4, layout(), 5), routing, Fill::kPartial, Budget::kExact);
    c.budget = 200;
    scenarios.push_back(make_ht_scenario(7, c));
  }
  ThreadRanks ranks(4);
  ranks.on_all([&](int rank_idx) {
    Communicator& comm = ranks.comm(rank_idx);
    std::vector<std::unique_ptr<HtRank>> batches;
    for (const HtScenario& scenario : scenarios) {
      batches.push_back(std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), scenario, mode()));
    }
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(scenarios[0].c, mode()));
    for (auto& batch : batches) steps.ok() && steps(group) && steps(batch->open(*group.value()));
    for (int round = 0; round < 3 && steps.ok(); ++round) {
      for (auto& batch : batches) {
        batch->start_round(round);
        steps.ok() && steps(batch->run_update()) && steps(batch->run_dispatch(kForward)) &&
            steps(batch->run_combine(kForward));
      }
      for (size_t i = batches.size(); i-- > 0;) {
        steps.ok() && steps(batches[i]->run_dispatch(kBackward)) && steps(batches[i]->run_combine(kBackward));
      }
    }
    EXPECT_EQ(steps.leave(std::move(group), std::move(batches[0]), std::move(batches[1]), std::move(batches[2])), "");
  });
}

// Nothing forward is needed but the update.
TEST_P(HtBackward, RunsWithoutAForwardPass) {
  const HtScenario scenario =
      make_ht_scenario(11, shape_with(3, layout(), 3), Routing::kZipf, Fill::kSomeEmpty, Budget::kGenerous);
  ThreadRanks ranks(3);
  ranks.on_all([&](int rank_idx) {
    Communicator& comm = ranks.comm(rank_idx);
    auto rank = std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), scenario, mode());
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(scenario.c, mode()));
    steps(group) && steps(rank->open(*group.value())) && steps(rank->run_update()) &&
        steps(rank->run_dispatch(kBackward)) && steps(rank->run_combine(kBackward)) &&
        steps(rank->run_combine(kBackward)) && steps(rank->run_dispatch(kBackward));
    EXPECT_EQ(steps.leave(std::move(group), std::move(rank)), "");
  });
}

// A token whose rows were dropped gets zeros back, its gradients too.
TEST_P(HtBackward, DroppedRowsReturnZeros) {
  oracle::HtShape shape = shape_with(4, layout(), 4);
  shape.overflow = oracle::Overflow::kDrop;
  for (const Routing routing : {Routing::kOneRank, Routing::kZipf, Routing::kOneExpert}) {
    const HtScenario scenario = make_ht_scenario(13, shape, routing, Fill::kFull, Budget::kTight);
    ASSERT_FALSE(oracle::find_overflowing(scenario.c).empty());
    ThreadRanks ranks(4);
    ranks.on_all(
        [&](int rank) { EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, mode()), ""); });
  }
}

// ---- relocated handles ----

// A handle over the memory of an earlier one goes on with its plan, whatever the indices' width, the budget and the
// nodes.
class HtRelocated : public ::testing::TestWithParam<std::tuple<HtLayout, bool, Budget, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, HtRelocated,
                         ::testing::Combine(::testing::Values(HtLayout::kFlat, HtLayout::kExpertMajor),
                                            ::testing::Bool(), ::testing::Values(Budget::kExact, Budget::kEager),
                                            ::testing::Bool()));

TEST_P(HtRelocated, RunsBackwardOverTheSameMemoryWithoutAnUpdate) {
  const auto [layout, int32_indices, budget, two_nodes] = GetParam();
  oracle::HtShape shape = shape_with(3, layout, 4);
  shape.int32_indices = int32_indices;
  if (two_nodes) shape.node_of_rank = {0, 1, 1};
  const HtScenario scenario = make_ht_scenario(17, shape, Routing::kDuplicates, Fill::kPartial, budget);
  const auto ep_layout = layout == HtLayout::kFlat ? ep::Layout::kFlat : ep::Layout::kExpertMajor;
  GuardedRuntime runtime;
  {
    ThreadRanks ranks(3, {.runtime = &runtime}, shape.node_of_rank);
    ranks.on_all([&](int rank_idx) {
      Communicator& comm = ranks.comm(rank_idx);
      auto rank = std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), scenario, HtMode{.windows = true});
      Steps steps(comm);
      auto group = ep::Group::create(comm, group_config_for(scenario.c, {.windows = true}));
      ASSERT_TRUE(steps(group));
      const auto num_bytes = ep::Handle::memory_bytes(*group.value(), ep_layout, shape.topk);
      ASSERT_TRUE(steps(num_bytes));
      const Buffer memory(comm, num_bytes.value());
      const auto open = [&] { return rank->open(*group.value(), memory.span().data(), num_bytes.value()); };
      steps(open()) && steps(rank->run_update()) && steps(rank->run_dispatch(kForward)) &&
          steps(rank->run_combine(kForward));
      rank->close();
      steps.ok() && steps(open()) && steps(rank->run_dispatch(kBackward)) && steps(rank->run_combine(kBackward));
      rank->close();
      // A combine can be the first, and a forward dispatch needs no update either.
      rank->start_round(1);
      steps.ok() && steps(open()) && steps(rank->run_combine(kForward)) && steps(rank->run_dispatch(kForward));
      EXPECT_EQ(steps.leave(std::move(group), std::move(rank)), "");
    });
  }
  EXPECT_EQ(runtime.num_damaged(), 0u);
}

// Of tokens there are as many as the plan has; a call that says otherwise spoils nothing for the next.
TEST(HtRelocatedMemory, AnotherNumberOfTokensIsAnErrorOfThatCallAlone) {
  for (const Budget budget : {Budget::kExact, Budget::kEager}) {
    const HtScenario scenario = make_ht_scenario(23, shape_with(1, HtLayout::kFlat, 2), Routing::kUniform, Fill::kFull, budget);
    ThreadRanks ranks(1);
    HtRank rank(ranks.comm(0), ranks.stream_ref(0), scenario, {});
    auto group = ep::Group::create(ranks.comm(0), group_config_for(scenario.c));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    const size_t num_bytes = ep::Handle::memory_bytes(**group, ep::Layout::kFlat, scenario.c.topk).value();
    Buffer memory(ranks.comm(0), num_bytes);
    ASSERT_TRUE(rank.open(**group, memory.span().data(), num_bytes).ok());
    EXPECT_EQ(rank.run_update(), "");
    rank.close();
    ASSERT_TRUE(rank.open(**group, memory.span().data(), num_bytes).ok());
    const size_t hidden = size_t(scenario.c.hidden), num_tokens = scenario.named_idx[0].size() / size_t(scenario.c.topk);
    ASSERT_GT(num_tokens, 1u);
    std::vector<uint16_t> in((num_tokens - 1) * hidden), out(64 * num_tokens * hidden);
    ep::DispatchArgs args;
    args.direction = kBackward;
    args.tokens = ep::Tensor::of(in.data(), DType::kBfloat16, {num_tokens - 1, hidden});
    args.out_tokens = ep::Tensor::of(out.data(), DType::kBfloat16, {64 * num_tokens, hidden});
    const Status posted = rank.handle().dispatch(args, ranks.stream_ref(0));
    EXPECT_EQ(posted.ok(), budget == Budget::kExact) << posted.to_string();  // eager: the host has looked at the plan
    EXPECT_FALSE((posted.ok() ? rank.synchronize() : posted).ok());
    (void)ranks.stream(0).take_error();
    EXPECT_EQ(rank.run_dispatch(kBackward), "");
    rank.close();
  }
}

// Memory that never was a plan is none.
TEST(HtRelocatedMemory, WithoutAPlanIsRefused) {
  const HtScenario scenario =
      make_ht_scenario(19, shape_with(1, HtLayout::kFlat, 2), Routing::kUniform, Fill::kFull, Budget::kExact);
  ThreadRanks ranks(1);
  for (const uint8_t content : {uint8_t{0}, uint8_t{0x5a}, uint8_t{0xff}}) {
    HtRank rank(ranks.comm(0), ranks.stream_ref(0), scenario, {});
    auto group = ep::Group::create(ranks.comm(0), group_config_for(scenario.c));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    const size_t num_bytes = ep::Handle::memory_bytes(**group, ep::Layout::kFlat, scenario.c.topk).value();
    Buffer memory(ranks.comm(0), num_bytes);
    memory.fill(content);
    ASSERT_TRUE(rank.open(**group, memory.span().data(), num_bytes).ok());
    const Status posted = rank.post_dispatch(kBackward);
    const Status done = posted.ok() ? rank.synchronize() : posted;
    EXPECT_FALSE(done.ok()) << "memory of " << int{content};
    (void)ranks.stream(0).take_error();
    EXPECT_EQ(rank.run_update(), "") << "the group goes on";
    EXPECT_EQ(rank.run_dispatch(kBackward), "");
    rank.close();
  }
}

}  // namespace
}  // namespace switchyard::testing
