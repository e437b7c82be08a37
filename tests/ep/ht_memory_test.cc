// Guard pages around every budget: buffers of the caller and of the library alike end where a page begins that nobody
// can touch. And whose memory the library uses.
#include <gtest/gtest.h>

#include "ep/ht_harness.hpp"
#include "support/counting_allocator.hpp"
#include "support/guarded_runtime.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::Budget;
using oracle::Fill;
using oracle::HtLayout;
using oracle::Overflow;
using oracle::Routing;

oracle::HtShape shape_of(HtLayout layout, int variant) {
  oracle::HtShape shape;
  shape.num_ranks = 3;
  shape.num_experts = 7;
  shape.topk = 1 + variant % 5;
  shape.hidden = 8 * (1 + variant % 19);  // rows of 16 to 304 bytes
  shape.max_tokens = 1 + variant % 6;
  shape.layout = layout;
  shape.alignment = layout == HtLayout::kExpertMajor ? 1 << variant % 5 : 1;
  shape.int32_indices = variant % 2 != 0;
  if (variant % 3 == 1) {
    shape.dispatch_recipe = oracle::DispatchRecipe::kForward;
    shape.scale_dtype = DType::kUint8;
    shape.scale_width = 16 * (1 + variant % 2);
  }
  return shape;
}

class HtGuarded : public ::testing::TestWithParam<std::tuple<HtLayout, Budget, Overflow, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, HtGuarded,
                         ::testing::Combine(::testing::Values(HtLayout::kFlat, HtLayout::kExpertMajor),
                                            ::testing::ValuesIn(oracle::kAllBudgets),
                                            ::testing::Values(Overflow::kTrap, Overflow::kDrop), ::testing::Bool()));

TEST_P(HtGuarded, NothingIsTouchedOutsideItsBuffer) {
  const auto [layout, budget, overflow, two_nodes] = GetParam();
  const std::vector<int> nodes = two_nodes ? std::vector<int>{0, 0, 1} : std::vector<int>{0, 0, 0};
  GuardedRuntime runtime;
  const size_t num_live_before = runtime.num_live();
  {
    ThreadRanks ranks(3, {.runtime = &runtime}, nodes);
    for (int variant = 0; variant < 12 && !HasFailure(); ++variant) {
      oracle::HtShape shape = shape_of(layout, variant);
      shape.overflow = overflow;
      shape.node_of_rank = nodes;
      const Routing routing = oracle::kAllRoutings[variant % 7];
      const HtScenario scenario =
          make_ht_scenario(uint64_t(variant), shape, routing, oracle::kAllFills[variant % 3], budget);
      ranks.on_all([&](int rank) {
        EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario,
                              {.windows = variant % 4 < 2, .int64_counters = variant % 5 < 2}),
                  "");
      });
      if (HasFailure()) ADD_FAILURE() << describe(shape, routing, oracle::kAllFills[variant % 3], budget);
    }
  }
  EXPECT_EQ(runtime.num_damaged(), 0u);
  EXPECT_EQ(runtime.num_live(), num_live_before);
}

TEST(HtMemory, HandleMemoryThatIsTooSmallIsRefused) {
  ThreadRanks ranks(1);
  oracle::HtShape shape = shape_of(HtLayout::kFlat, 4);
  shape.num_ranks = 1;
  shape.budget = shape.max_tokens;
  auto group = ep::Group::create(ranks.comm(0), group_config_for(shape));
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  for (const ep::Layout layout : {ep::Layout::kFlat, ep::Layout::kExpertMajor}) {
    const size_t num_bytes = ep::Handle::memory_bytes(**group, layout, shape.topk).value();
    std::vector<char> memory(num_bytes);
    const auto handle =
        ep::Handle::create(**group, layout, shape.topk, {.memory = memory.data(), .num_memory_bytes = num_bytes - 1});
    EXPECT_EQ(handle.status().code(), Code::kInvalidArgument);
  }
}

TEST(HtMemory, ACallersAllocatorGetsBackAllItGave) {
  oracle::HtShape shape = shape_of(HtLayout::kExpertMajor, 4);
  shape.node_of_rank = ThreadRanks::default_nodes(shape.num_ranks);
  const HtScenario scenario = make_ht_scenario(3, shape, Routing::kUniform, Fill::kPartial, Budget::kExact);
  ThreadRanks ranks(3);
  ranks.on_all([&](int rank_idx) {
    Communicator& comm = ranks.comm(rank_idx);
    CountingAllocator allocator;
    auto rank = std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), scenario, HtMode{});
    Steps steps(comm);
    ep::GroupConfig config = group_config_for(scenario.c);
    config.alloc = allocator.config();
    auto group = ep::Group::create(comm, config);
    if (steps(group) && steps(rank->open(*group.value()))) run_ht_round(steps, *rank, {}, /*updates=*/true);
    EXPECT_EQ(steps.leave(std::move(group), std::move(rank)), "");
    EXPECT_GT(allocator.num_allocated(), 0);
    EXPECT_EQ(allocator.num_live(), 0);
  });
}

}  // namespace
}  // namespace switchyard::testing
