// The thinnest paths: two ranks, one token, there and back; every layout, budget and policy once; what a caller may
// leave out; what an overflow does.
#include <gtest/gtest.h>

#include <atomic>

#include "ep/ht_harness.hpp"
#include "platform/host/wait.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::Budget;
using oracle::Fill;
using oracle::HtLayout;
using oracle::Overflow;
using oracle::Routing;

void run_case(const HtScenario& scenario, const HtMode& mode) {
  ThreadRanks ranks(scenario.c.num_ranks);
  ranks.on_all([&](int rank) { EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, mode), ""); });
}

oracle::HtShape small_shape(int num_ranks, HtLayout layout) {
  oracle::HtShape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 2 * num_ranks + 1;
  shape.topk = 3;
  shape.hidden = 40;
  shape.max_tokens = 5;
  shape.layout = layout;
  shape.alignment = layout == HtLayout::kExpertMajor ? 4 : 1;
  shape.node_of_rank = ThreadRanks::default_nodes(num_ranks);
  return shape;
}

TEST(HighThroughput, OneTokenGoesThereAndBack) {
  oracle::HtShape shape;
  shape.num_ranks = 2;
  shape.num_experts = 2;
  shape.hidden = 8;
  shape.node_of_rank = ThreadRanks::default_nodes(2);
  run_case(make_ht_scenario(1, shape, Routing::kUniform, Fill::kFull, Budget::kExact), {.backward = false});
}

TEST(HighThroughput, ARankAloneServesItself) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    run_case(make_ht_scenario(2, small_shape(1, layout), Routing::kDuplicates, Fill::kFull, Budget::kExact), {});
  }
}

// Rank 1 comes only when rank 0's handles are gone; their memory stays for what still uses it.
TEST(HighThroughput, TheEndOfAHandleWaitsForNobody) {
  const HtScenario scenario = make_ht_scenario(4, small_shape(2, HtLayout::kFlat), Routing::kUniform, Fill::kFull, Budget::kExact);
  ThreadRanks ranks(2);
  std::atomic<bool> is_gone{false};
  ranks.on_all([&](int rank) {
    HtRank io(ranks.comm(rank), ranks.stream_ref(rank), scenario, {});
    auto group = ep::Group::create(ranks.comm(rank), group_config_for(scenario.c));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    EXPECT_TRUE(rank == 0 || wait_until([&] { return is_gone.load(); }, Deadline::after_ns(20 * kSecond)) == WaitResult::kReady);
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(io.open(**group).ok());
      ASSERT_TRUE(io.post_update().ok());
      ASSERT_TRUE(io.post_dispatch(HtRank::Pass::kForward).ok());
      io.close();
    }
    if (rank == 0) is_gone = true;
    ASSERT_TRUE(ranks.stream(rank).synchronize(Deadline::after_ns(20 * kSecond)).ok());
    EXPECT_EQ(io.check_dispatch(HtRank::Pass::kForward), "");
  });
}

// Where rows are not padded, nobody has to agree on the padding.
TEST(HighThroughput, FlatHandlesMayDifferInTheirAlignment) {
  const HtScenario scenario = make_ht_scenario(5, small_shape(2, HtLayout::kFlat), Routing::kUniform, Fill::kFull, Budget::kExact);
  ThreadRanks ranks(2);
  ranks.on_all([&](int rank) {
    auto group = ep::Group::create(ranks.comm(rank), group_config_for(scenario.c));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    auto handle = ep::Handle::create(**group, ep::Layout::kFlat, scenario.c.topk, {.expert_alignment = size_t(rank == 0 ? 1 : 8)});
    ASSERT_TRUE(handle.ok()) << handle.status().to_string();
    std::vector<int64_t> idx = scenario.named_idx[size_t(rank)];
    const size_t topk = size_t(scenario.c.topk);
    const ep::Tensor tensor = ep::Tensor::of(idx.data(), DType::kInt64, {idx.size() / topk, topk});
    ASSERT_TRUE((*handle)->update(tensor, {}, ranks.stream_ref(rank)).ok());
    EXPECT_EQ(ranks.stream(rank).synchronize(Deadline::after_ns(20 * kSecond)).to_string(), Status().to_string());
  });
}

TEST(HighThroughput, CountersMayBeLeftOut) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    const HtScenario scenario =
        make_ht_scenario(3, small_shape(2, layout), Routing::kZipf, Fill::kPartial, Budget::kGenerous);
    for (int asked = 0; asked < 8 && !::testing::Test::HasFailure(); ++asked) {
      run_case(
          scenario,
          {.expert_counters = (asked & 1) != 0, .expert_offsets = (asked & 2) != 0, .recv_total = (asked & 4) != 0});
    }
  }
}

TEST(HighThroughput, ManyRoundsRunOnOneUpdate) {
  for (const bool windows : {false, true}) {
    for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
      run_case(make_ht_scenario(4, small_shape(3, layout), Routing::kUniform, Fill::kPartial, Budget::kExact),
               {.windows = windows, .num_rounds = 20, .updates_once = true});
    }
  }
}

// The same handle, in turns with a routing of many rows and one of few: nothing of the one is left for the other.
TEST(HighThroughput, AnUpdateReplacesTheRoutingBefore) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const int budget : {0, 200}) {
      std::vector<HtScenario> scenarios;
      for (const Routing routing : {Routing::kUniform, Routing::kSomeDropped, Routing::kAllDropped}) {
        oracle::HtCase c = oracle::make_ht_case(6, small_shape(3, layout), routing, Fill::kFull, Budget::kEager);
        c.budget = budget;
        scenarios.push_back(make_ht_scenario(6, c));
      }
      ThreadRanks ranks(3);
      ranks.on_all([&](int rank_idx) {
        Communicator& comm = ranks.comm(rank_idx);
        std::vector<std::unique_ptr<HtRank>> parts;
        for (const HtScenario& scenario : scenarios) {
          parts.push_back(std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), scenario, HtMode{}));
        }
        Steps steps(comm);
        auto group = ep::Group::create(comm, group_config_for(scenarios[0].c));
        HtRank* open = parts[0].get();
        steps(group) && steps(open->open(*group.value()));
        for (const size_t next : {0, 1, 2, 1, 0, 2, 0}) {
          if (parts[next].get() != open) parts[next]->take_handle(*open);
          open = parts[next].get();
          steps.ok() && run_ht_round(steps, *open, {}, /*updates=*/true);
        }
        EXPECT_EQ(steps.leave(std::move(group), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])), "");
      });
    }
  }
}

// A budget's rows, or, where the caller looks first, those that there are.
TEST(HighThroughput, OutputsWithTooFewRowsAreRefused) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const Budget budget : {Budget::kGenerous, Budget::kEager}) {
      const HtScenario scenario = make_ht_scenario(7, small_shape(1, layout), Routing::kUniform, Fill::kFull, budget);
      ThreadRanks ranks(1);
      auto group = ep::Group::create(ranks.comm(0), group_config_for(scenario.c));
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      HtRank rank(ranks.comm(0), ranks.stream_ref(0), scenario, {.num_spare_rows = -1});
      ASSERT_TRUE(rank.open(**group).ok());
      EXPECT_EQ(rank.run_update(), "");
      for (const auto pass : {ep::PassDirection::kForward, ep::PassDirection::kBackward}) {
        EXPECT_EQ(rank.post_dispatch(pass).code(), Code::kInvalidArgument);
        EXPECT_EQ(rank.post_combine(pass).code(), Code::kInvalidArgument);
        EXPECT_TRUE(rank.synchronize().ok());
        EXPECT_EQ(rank.check_untouched(), "");
      }
      rank.close();
    }
  }
}

// Of a batch that is large enough for windows to pay, which is what the default looks at.
TEST(HighThroughput, LargeBatchesInWindowsMatchTheOracleByDefault) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const Budget budget : {Budget::kExact, Budget::kEager}) {
      oracle::HtShape shape = small_shape(3, layout);
      shape.hidden = 40000;
      const HtScenario scenario = make_ht_scenario(23, shape, Routing::kZipf, Fill::kFull, budget);
      ThreadRanks ranks(3);
      ranks.on_all([&](int rank) {
        EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario,
                              {.windows = true, .num_rounds = 2, .zero_copy = ep::ZeroCopy::kAuto}),
                  "");
      });
    }
  }
}

// Each rank may have its tensors in windows or not.
TEST(HighThroughput, RanksWithAndWithoutWindowsWorkTogether) {
  oracle::HtShape shape = small_shape(2, HtLayout::kFlat);
  shape.hidden = 40000;  // windows of little are left aside
  const HtScenario scenario = make_ht_scenario(5, shape, Routing::kUniform, Fill::kFull, Budget::kExact);
  ThreadRanks ranks(2);
  ranks.on_all([&](int rank) {
    EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario,
                          {.windows = true, .plain_ranks = 2, .num_rounds = 3}),
              "");
  });
}

class HighThroughputModes : public ::testing::TestWithParam<std::tuple<HtLayout, bool, bool, int>> {};

TEST_P(HighThroughputModes, MatchTheOracle) {
  const auto [layout, windows, pipelined, num_ranks] = GetParam();
  ThreadRanks ranks(num_ranks);
  uint64_t seed = 0;
  for (const Overflow overflow : {Overflow::kTrap, Overflow::kDrop}) {
    for (const Budget budget : oracle::kAllBudgets) {
      oracle::HtShape shape = small_shape(num_ranks, layout);
      shape.overflow = overflow;
      const Routing routing = oracle::kAllRoutings[seed++ % std::size(oracle::kAllRoutings)];
      const HtScenario scenario = make_ht_scenario(seed, shape, routing, Fill::kPartial, budget);
      ranks.on_all([&, windows = windows, pipelined = pipelined](int rank) {
        EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario,
                              {.windows = windows, .pipelined = pipelined, .num_rounds = 3}),
                  "");
      });
      if (HasFailure()) FAIL() << describe(shape, routing, Fill::kPartial, budget);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HighThroughputModes,
                         ::testing::Combine(::testing::Values(HtLayout::kFlat, HtLayout::kExpertMajor),
                                            ::testing::Bool(), ::testing::Bool(), ::testing::Values(1, 2, 3, 8)));

// ---- overflow ----

class HighThroughputOverflow : public ::testing::TestWithParam<std::tuple<HtLayout, bool>> {};

// All tokens go to one rank, which has room for those of two.
oracle::HtCase overflowing_case(HtLayout layout, Overflow overflow) {
  oracle::HtShape shape = small_shape(4, layout);
  shape.overflow = overflow;
  oracle::HtCase c = oracle::make_ht_case(5, shape, Routing::kOneRank, Fill::kFull, Budget::kExact);
  c.budget = 2 * c.max_tokens;
  return c;
}

// Every rank is told, also those that received nothing; the handle and the group live on.
TEST_P(HighThroughputOverflow, IsAnErrorOnEveryRankAndNothingIsWritten) {
  const auto [layout, pipelined] = GetParam();
  const HtScenario scenario = make_ht_scenario(6, overflowing_case(layout, Overflow::kTrap));
  ASSERT_EQ(scenario.overflowing.size(), 1u);
  run_case(scenario, {.pipelined = pipelined});
}

TEST_P(HighThroughputOverflow, CanComeAgainAfterARoutingThatFits) {
  const auto [layout, pipelined] = GetParam();
  const HtScenario overflowing = make_ht_scenario(6, overflowing_case(layout, Overflow::kTrap));
  const HtScenario fitting = make_ht_scenario(7, oracle::fit_to_budget(overflowing.c));
  const HtMode mode{.pipelined = pipelined};
  ThreadRanks ranks(4);
  ranks.on_all([&](int rank_idx) {
    Communicator& comm = ranks.comm(rank_idx);
    auto bad = std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), overflowing, mode);
    auto good = std::make_unique<HtRank>(comm, ranks.stream_ref(rank_idx), fitting, mode);
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(overflowing.c, mode));
    steps(group) && steps(bad->open(*group.value())) && steps(good->open(*group.value()));
    for (int round = 0; round < 3 && steps.ok(); ++round) {
      steps(bad->run_trapped_update(mode.pipelined)) && run_ht_round(steps, *good, mode, round == 0);
    }
    EXPECT_EQ(steps.leave(std::move(group), std::move(bad), std::move(good)), "");
  });
}

TEST_P(HighThroughputOverflow, DropsWhatIsOverTheBudgetWhenAsked) {
  const auto [layout, pipelined] = GetParam();
  run_case(make_ht_scenario(8, overflowing_case(layout, Overflow::kDrop)),
           {.pipelined = pipelined, .num_spare_rows = 3});
}

INSTANTIATE_TEST_SUITE_P(All, HighThroughputOverflow,
                         ::testing::Combine(::testing::Values(HtLayout::kFlat, HtLayout::kExpertMajor),
                                            ::testing::Bool()));

}  // namespace
}  // namespace switchyard::testing
