// Masks, with ranks as threads: what the calls do, what results look like under any masks, and how ranks come back.
#include <gtest/gtest.h>

#include <functional>

#include "faults/life.hpp"
#include "faults/ll_scene.hpp"
#include "faults/mask_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;
using oracle::Masks;

constexpr uint64_t kSeed = 5;

oracle::Shape shape_of(int num_ranks, Layout layout) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 2 * num_ranks + 1;
  shape.topk = 3;
  shape.hidden = 40;
  shape.max_tokens = 7;
  shape.layout = layout;
  return shape;
}

oracle::Case case_of(int num_ranks, Layout layout) {
  return oracle::make_case(kSeed, shape_of(num_ranks, layout), oracle::Routing::kUniform, oracle::Fill::kPartial);
}

Masks nobody(int num_ranks) { return masks_of_pairs(num_ranks, 0); }

using LlMaskRank = MaskRank<LlRank, LlScenario, bool>;

void on_ranks(ThreadRanks& ranks, const LlScenario& scenario, uint64_t timeout_ns,
              const std::function<void(LlMaskRank&, int)>& body) {
  on_mask_ranks<LlMaskRank>(ranks, scenario, timeout_ns, body);
}

constexpr uint64_t kPatient = 60 * kSecond;  // where nobody is waited for in vain

// ---- the calls ----

TEST(MaskCalls, AreRefusedInAGroupWithoutMasks) {
  ThreadRanks ranks(1);
  const auto group = ep::Group::create(ranks.comm(0), group_config_for(shape_of(1, Layout::kExpertMajor)));
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  int32_t mask[] = {1};
  EXPECT_EQ(group.value()->mask_query(mask, ranks.stream_ref(0)).code(), Code::kInvalidUsage);
  EXPECT_EQ(group.value()->mask_update(mask, ranks.stream_ref(0)).code(), Code::kInvalidUsage);
  EXPECT_EQ(group.value()->mask_clean(ranks.stream_ref(0)).code(), Code::kInvalidUsage);
  EXPECT_EQ(group.value()->async_error().status().code(), Code::kInvalidUsage);
  EXPECT_EQ(group.value()->error_clear().code(), Code::kInvalidUsage);
}

TEST(MaskCalls, QueryReturnsWhatUpdateSet) {
  ThreadRanks ranks(3);
  const LlScenario scenario = make_masked_scenario(kSeed, case_of(3, Layout::kExpertMajor), nobody(3), nobody(3));
  on_ranks(ranks, scenario, kPatient, [](LlMaskRank& self, int rank) {
    EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
    std::vector<int> only_me{0, 0, 0};
    only_me[size_t(rank)] = 1;
    self.update(only_me);
    EXPECT_EQ(self.query(), only_me);
    self.update({1, 1, 1});
    EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(self.async_error(), 0);
  });
}

TEST(MaskCalls, UpdateRefusesOtherValuesAndTheRankItself) {
  ThreadRanks ranks(2);
  const LlScenario scenario = make_masked_scenario(kSeed, case_of(2, Layout::kExpertMajor), nobody(2), nobody(2));
  on_ranks(ranks, scenario, kPatient, [&](LlMaskRank& self, int rank) {
    const int32_t odd[] = {1, 2};
    EXPECT_EQ(self.group().mask_update(odd, ranks.stream_ref(rank)).code(), Code::kInvalidArgument);
    const int32_t myself[] = {rank != 0, rank != 1};
    EXPECT_EQ(self.group().mask_update(myself, ranks.stream_ref(rank)).code(), Code::kInvalidArgument);
    EXPECT_EQ(self.query(), (std::vector<int>{1, 1}));
    self.round_trip();
  });
}

// ---- results ----

class MaskedPairs : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(All, MaskedPairs, ::testing::Values(Layout::kExpertMajor, Layout::kRankMajor));

void expect_masked_results(ThreadRanks& ranks, Layout layout, unsigned pairs_at_dispatch, unsigned pairs_at_combine) {
  const Masks at_dispatch = masks_of_pairs(ranks.size(), pairs_at_dispatch);
  const Masks at_combine = masks_of_pairs(ranks.size(), pairs_at_combine);
  // Where nothing was sent, nothing comes back, masked or not.
  const Masks in_effect = masks_of_pairs(ranks.size(), pairs_at_dispatch | pairs_at_combine);
  const LlScenario scenario = make_masked_scenario(kSeed, case_of(ranks.size(), layout), at_dispatch, in_effect);
  const LlScenario before = make_masked_scenario(kSeed + 1, scenario.c, nobody(ranks.size()), nobody(ranks.size()));
  on_ranks(ranks, before, kPatient, [&](LlMaskRank& self, int rank) {
    if (!self.round_trip()) return;  // so that there is something that must not be read again
    self.expected = scenario;
    self.update(at_dispatch[size_t(rank)]) && self.steps(self.io().run_dispatch()) &&
        self.update(at_combine[size_t(rank)]) && self.steps(self.io().run_combine());
    EXPECT_EQ(self.query(), at_combine[size_t(rank)]);
    EXPECT_EQ(self.async_error(), 0);
  });
  if (::testing::Test::HasFailure()) ADD_FAILURE() << "pairs " << pairs_at_dispatch << ", then " << pairs_at_combine;
}

TEST_P(MaskedPairs, OfThreeRanksMatchTheOracleAlsoWhenTheyChangeBetweenDispatchAndCombine) {
  ThreadRanks ranks(3);
  for (unsigned before = 0; before < 8; ++before) {
    for (unsigned after = 0; after < 8 && !HasFailure(); ++after) {
      expect_masked_results(ranks, GetParam(), before, after);
    }
  }
}

TEST_P(MaskedPairs, OfFourRanksMatchTheOracle) {
  ThreadRanks ranks(4);
  for (unsigned pairs = 0; pairs < 64 && !HasFailure(); ++pairs) {
    expect_masked_results(ranks, GetParam(), pairs, pairs);
  }
}

// Rank 0 has no ear for rank 2, which finds out by waiting. The two of them get nothing from each other; rank 1 gets all.
TEST_P(MaskedPairs, WithOneSideOnlyMatchTheOracleAndCanBeReconciled) {
  Masks one_sided = nobody(3), both_sided = nobody(3);
  one_sided[0][2] = both_sided[0][2] = both_sided[2][0] = 0;
  const oracle::Case c = case_of(3, GetParam());
  const LlScenario scenario = make_masked_scenario(kSeed, c, one_sided, both_sided);
  ThreadRanks ranks(3);
  on_ranks(ranks, scenario, 300 * kMillisecond, [&](LlMaskRank& self, int rank) {
    self.update(one_sided[size_t(rank)]) && self.round_trip();
    EXPECT_EQ(self.query(), both_sided[size_t(rank)]);
    EXPECT_EQ(self.async_error(), rank == 2);
    // Ranks 0 and 1 agree to leave rank 2 out, and take it in again. That rank 2 gave up on rank 0 does not count.
    if (!self.meet()) return;
    if (rank != 2) self.update({1, 1, 0}) && self.steps(self.clean());
    self.steps(self.group().error_clear());
    self.expected = make_masked_scenario(kSeed, c, nobody(3), nobody(3));
    self.meet() && self.round_trip();
    EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(self.async_error(), 0);
  });
}

// ---- coming back ----

TEST(MaskClean, WithNobodyMaskedChangesNothing) {
  ThreadRanks ranks(3);
  const LlScenario scenario = make_masked_scenario(kSeed, case_of(3, Layout::kExpertMajor), nobody(3), nobody(3));
  on_ranks(ranks, scenario, kPatient, [](LlMaskRank& self, int) {
    self.steps(self.clean());
    for (int round = 0; round < 5 && self.steps.ok(); ++round) {
      // Between a dispatch and its combine, too.
      self.steps(self.io().run_dispatch()) && self.steps(self.clean()) && self.steps(self.io().run_combine()) &&
          self.steps(self.clean()) && self.round_trip();
    }
    EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
  });
}

TEST(MaskClean, IsRefusedWhileAStagedOperationIsOpen) {
  ThreadRanks ranks(2);
  const LlScenario scenario = make_masked_scenario(kSeed, case_of(2, Layout::kRankMajor), nobody(2), nobody(2));
  on_ranks(ranks, scenario, kPatient, [](LlMaskRank& self, int) {
    if (!self.steps(self.io().post_dispatch(/*staged=*/true))) return;
    EXPECT_EQ(self.clean().code(), Code::kInvalidUsage);
    self.steps(self.io().complete()) && self.steps(self.io().synchronize()) && self.steps(self.io().check_dispatch()) &&
        self.steps(self.clean()) && self.steps(self.io().run_combine()) && self.round_trip();
  });
}

// The one left out misses an odd or even number of operations, so that it would come back on the wrong bank if tags and
// banks were not agreed on anew.
TEST(MaskClean, BringsBackARankAsOftenAsOneLikes) {
  const int num_ranks = 3;
  const int num_cycles = soaking() ? 500 : 100;
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    const oracle::Case c = case_of(num_ranks, layout);
    const LlScenario together = make_masked_scenario(kSeed, c, nobody(num_ranks), nobody(num_ranks));
    std::vector<LlScenario> without;
    for (int rank = 0; rank < num_ranks; ++rank) {
      without.push_back(make_masked_scenario(kSeed, c, everyone_masks(num_ranks, rank), everyone_masks(num_ranks, rank)));
    }
    ThreadRanks ranks(num_ranks);
    on_ranks(ranks, together, kPatient, [&](LlMaskRank& self, int rank) {
      for (int cycle = 0; cycle < num_cycles && self.steps.ok(); ++cycle) {
        const int victim = cycle % num_ranks;
        if (rank != victim) {
          self.expected = without[size_t(victim)];
          if (!self.update(everyone_masks(num_ranks, victim)[size_t(rank)])) break;
          for (int missed = 0; missed < cycle % 4; missed += 2) self.round_trip();
          if (cycle % 2 != 0) self.steps(self.io().run_dispatch());
          if (!self.steps(self.clean())) break;
        }
        self.expected = together;
        self.meet() && self.round_trip();
        if (cycle % 5 == 0) self.round_trip();
      }
      EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
    });
    if (HasFailure()) break;
  }
}

// One did operations that the others know nothing of, and was never masked.
TEST(MaskClean, AgreesWhereRanksAreAtDifferentEpochs) {
  const int num_ranks = 3;
  const oracle::Case c = case_of(num_ranks, Layout::kExpertMajor);
  const Masks alone = masks_of_pairs(num_ranks, 0b111);
  ThreadRanks ranks(num_ranks);
  on_ranks(ranks, make_masked_scenario(kSeed, c, alone, alone), kPatient, [&](LlMaskRank& self, int rank) {
    for (int round = 0; round < rank; ++round) {
      self.update(alone[size_t(rank)]) && self.round_trip() && self.steps(self.io().run_dispatch());
    }
    self.expected = make_masked_scenario(kSeed, c, nobody(num_ranks), nobody(num_ranks));
    self.update({1, 1, 1}) && self.steps(self.clean()) && self.round_trip() && self.round_trip();
    EXPECT_EQ(self.async_error(), 0);
  });
}

// Its epochs pass those of the others: a new generation keeps them apart all the same.
TEST(MaskClean, BringsBackARankThatWentOnByItself) {
  const int num_ranks = 3, victim = 0;
  const oracle::Case c = case_of(num_ranks, Layout::kRankMajor);
  const LlScenario together = make_masked_scenario(kSeed, c, nobody(num_ranks), nobody(num_ranks));
  const LlScenario apart = make_masked_scenario(kSeed, c, everyone_masks(num_ranks, victim), everyone_masks(num_ranks, victim));
  ThreadRanks ranks(num_ranks);
  on_ranks(ranks, together, kPatient, [&](LlMaskRank& self, int rank) {
    for (int cycle = 0; cycle < 10 && self.steps.ok(); ++cycle) {
      self.expected = apart;
      if (!self.update(masks_of_pairs(num_ranks, 0b011)[size_t(rank)])) break;  // both pairs of rank 0
      const int num_rounds = rank == victim ? 5 + cycle : 1;
      for (int round = 0; round < num_rounds; ++round) self.round_trip();
      self.meet() && (rank == victim || self.steps(self.clean())) && self.meet();
      self.expected = together;
      self.round_trip() && self.round_trip();
    }
    EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(self.async_error(), 0);
  });
}

// The same without anybody's say: a rank stays away, the others wait for it in vain.
TEST(MaskClean, BringsBackARankThatStayedAway) {
  const int num_ranks = 3, victim = 1;
  const oracle::Case c = case_of(num_ranks, Layout::kExpertMajor);
  const LlScenario together = make_masked_scenario(kSeed, c, nobody(num_ranks), nobody(num_ranks));
  const LlScenario without = make_masked_scenario(kSeed, c, everyone_masks(num_ranks, victim), everyone_masks(num_ranks, victim));
  ThreadRanks ranks(num_ranks);
  on_ranks(ranks, together, 300 * kMillisecond, [&](LlMaskRank& self, int rank) {
    for (int cycle = 0; cycle < 4 && self.steps.ok(); ++cycle) {
      if (!self.meet()) break;
      if (rank != victim) {
        self.expected = without;
        self.round_trip();
        if (cycle % 2 != 0) self.steps(self.io().run_dispatch());
        EXPECT_EQ(self.query(), (std::vector<int>{1, 0, 1}));
        EXPECT_EQ(self.async_error(), 1);
        self.expected = together;
        if (!self.meet() || !self.steps(self.clean()) || !self.steps(self.group().error_clear())) break;
      } else {
        // Every second time it asks to come back, at the moment when the others clean up or a little before.
        if (!self.meet()) break;
        Status cleaned = cycle < 2 ? self.clean() : Status();
        for (int attempt = 0; !cleaned.ok() && attempt < 20; ++attempt) cleaned = self.clean();
        if (!self.steps(cleaned)) break;
      }
      self.meet() && self.round_trip() && self.round_trip();
      EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
      EXPECT_EQ(self.async_error(), 0);
    }
  });
}

// It comes back between its dispatch and its combine, while the others are at their next dispatch: nobody may take the
// combine for a dispatch, or the other way round. The others stay among themselves until the next clean-up.
TEST_P(MaskedPairs, LeaveOutARankThatComesBackWithAnotherOperation) {
  const int num_ranks = 3, victim = 2;
  const oracle::Case c = case_of(num_ranks, GetParam());
  const LlScenario together = make_masked_scenario(kSeed, c, nobody(num_ranks), nobody(num_ranks));
  const LlScenario without = make_masked_scenario(kSeed, c, everyone_masks(num_ranks, victim), everyone_masks(num_ranks, victim));
  ThreadRanks ranks(num_ranks);
  on_ranks(ranks, together, 300 * kMillisecond, [&](LlMaskRank& self, int rank) {
    if (!self.steps(self.io().run_dispatch())) return;
    if (rank != victim) {
      self.expected = make_masked_scenario(kSeed, c, nobody(num_ranks), everyone_masks(num_ranks, victim));
      if (!self.steps(self.io().run_combine()) || !self.steps(self.clean()) || !self.meet()) return;
      self.expected = without;
      self.round_trip();
      EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 0}));
    } else {
      if (!self.meet()) return;
      self.steps(self.io().post_combine(/*staged=*/false)) && self.steps(self.io().synchronize());
    }
    EXPECT_EQ(self.async_error(), 1);
    self.expected = together;
    if (!self.meet() || !self.steps(self.clean()) || !self.steps(self.group().error_clear())) return;
    self.meet() && self.round_trip() && self.round_trip();
    EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(self.async_error(), 0);
  });
}

// ---- time limits ----

TEST(MaskTimeout, OfLessThanAMillisecondIsKept) {
  const uint64_t timeout_ns = 300'000;
  const oracle::Case c = case_of(2, Layout::kRankMajor);
  const LlScenario without = make_masked_scenario(kSeed, c, everyone_masks(2, 1), everyone_masks(2, 1));
  ThreadRanks ranks(2);
  on_ranks(ranks, without, timeout_ns, [](LlMaskRank& self, int rank) {
    if (rank == 0) {
      self.round_trip();
      EXPECT_EQ(self.query(), (std::vector<int>{1, 0}));
      EXPECT_EQ(self.async_error(), 1);
      self.steps(self.clean());
      EXPECT_EQ(self.query(), (std::vector<int>{1, 1}));
    }
    self.meet();
  });
}

TEST(MaskTimeout, OfLessThanAMillisecondIsToldAsItIs) {
  ThreadRanks ranks(2);
  const LlScenario scenario = make_masked_scenario(kSeed, case_of(2, Layout::kExpertMajor), nobody(2), nobody(2));
  ranks.on_all([&](int rank) {
    LlRank io(ranks.comm(rank), ranks.stream_ref(rank), scenario, /*windows=*/false);
    ep::GroupConfig config = group_config_for(scenario.c);
    config.timeout_ns = 300'000;
    const auto group = ep::Group::create(ranks.comm(rank), config);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    ASSERT_TRUE(io.open(*group.value()).ok());
    if (rank == 0) {
      ASSERT_TRUE(io.post_dispatch().ok());
      const Status status = io.synchronize();
      EXPECT_EQ(status.code(), Code::kRemoteError);
      EXPECT_NE(status.message().find("rank 1's dispatch rows did not arrive within 0.3 ms"), std::string::npos)
          << status.message();
    }
    io.close();
    EXPECT_TRUE(ranks.comm(rank).barrier().ok());
  });
}

}  // namespace
}  // namespace switchyard::testing
