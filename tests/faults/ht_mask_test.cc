// Masks in high throughput, with ranks as threads, on one node and on two: what is left out, which operations say that
// their plan is of no use any more, and how ranks come back.
#include <gtest/gtest.h>

#include "base/failpoint.hpp"
#include "faults/ht_scene.hpp"
#include "faults/life.hpp"
#include "faults/ll_scene.hpp"
#include "faults/mask_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::HtLayout;
using oracle::Masks;
using Pass = ep::PassDirection;
using HtMaskRank = MaskRank<HtRank, HtScenario, HtMode>;

constexpr uint64_t kSeed = 5;
constexpr uint64_t kPatient = 60 * kSecond;  // where nobody is waited for in vain
constexpr uint64_t kImpatient = 300 * kMillisecond;

struct Place {
  const char* name;
  std::vector<int> nodes;  // of each rank
  HtLayout layout;
  bool drops;

  int num_ranks() const { return int(nodes.size()); }
};
void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }

const Place kPlaces[] = {{"one_node_flat", {0, 0, 0}, HtLayout::kFlat, false},
                         {"one_node_expert_major_dropping", {0, 0, 0}, HtLayout::kExpertMajor, true},
                         {"two_nodes_flat_dropping", {0, 0, 1, 1}, HtLayout::kFlat, true},
                         {"two_nodes_expert_major", {0, 0, 1, 1}, HtLayout::kExpertMajor, false}};

class HtMasks : public ::testing::TestWithParam<Place> {
 protected:
  int num_ranks() const { return GetParam().num_ranks(); }
  bool two_nodes() const { return GetParam().nodes.back() != 0; }
  ThreadRanks make_ranks() const { return ThreadRanks(num_ranks(), {}, GetParam().nodes); }
  Masks nobody() const { return masks_of_pairs(num_ranks(), 0); }

  oracle::HtCase make_case() const {
    oracle::HtShape shape;
    shape.num_ranks = num_ranks();
    shape.num_experts = 2 * num_ranks() + 1;
    shape.topk = 4;
    shape.hidden = 40;
    shape.max_tokens = 7;
    shape.layout = GetParam().layout;
    shape.alignment = GetParam().layout == HtLayout::kFlat ? 1 : 4;
    shape.node_of_rank = GetParam().nodes;
    oracle::HtCase c =
        oracle::make_ht_case(kSeed, shape, oracle::Routing::kUniform, oracle::Fill::kFull, oracle::Budget::kEager);
    c.budget = GetParam().drops ? 10 : 200;
    c.overflow = GetParam().drops ? oracle::Overflow::kDrop : oracle::Overflow::kTrap;
    return c;
  }
  HtScenario scenario(const Masks& masks) const { return make_masked_ht_scenario(kSeed, make_case(), masks); }
};
INSTANTIATE_TEST_SUITE_P(All, HtMasks, ::testing::ValuesIn(kPlaces),
                         [](const auto& place) { return std::string(place.param.name); });

// ---- operations one by one ----

constexpr int kUpdate = 0;
constexpr int kNumOperations = 5;

Status post(HtRank& io, int idx) {
  switch (idx) {
    case 0: return io.post_update();
    case 1: return io.post_dispatch(Pass::kForward);
    case 2: return io.post_combine(Pass::kForward);
    case 3: return io.post_dispatch(Pass::kBackward);
    default: return io.post_combine(Pass::kBackward);
  }
}
Status end(HtRank& io, int idx) { return io.take_ending(post(io, idx)); }

std::string check(const HtRank& io, int idx) {
  switch (idx) {
    case 0: return io.check_update();
    case 1: return io.check_dispatch(Pass::kForward);
    case 2: return io.check_combine(Pass::kForward);
    case 3: return io.check_dispatch(Pass::kBackward);
    default: return io.check_combine(Pass::kBackward);
  }
}

bool asks_for_update(const Status& status) {
  return !status.ok() && status.message().find("ncclEpUpdateHandle") != std::string::npos;
}

// ---- results ----

TEST_P(HtMasks, AreTriedWhereRowsAreDroppedAndWhereAllFit) {
  EXPECT_EQ(oracle::find_overflowing(make_case()).empty(), !GetParam().drops);
}

TEST_P(HtMasks, OfAnyPairsLeaveOutWhatHasNoWay) {
  ThreadRanks ranks = make_ranks();
  const unsigned num_pairs = unsigned(num_ranks() * (num_ranks() - 1) / 2);
  for (unsigned pairs = 0; pairs < 1u << num_pairs && !HasFailure(); ++pairs) {
    const Masks masks = masks_of_pairs(num_ranks(), pairs);
    on_mask_ranks<HtMaskRank>(ranks, scenario(nobody()), kPatient, [&](HtMaskRank& self, int rank) {
      if (!self.round_trip()) return;  // so that there is something that must not be read again
      self.expected = scenario(masks);
      self.update(masks[size_t(rank)]) && self.round_trip() && self.round_trip();
      EXPECT_EQ(self.query(), masks[size_t(rank)]);
      EXPECT_EQ(self.async_error(), 0);
    });
    if (HasFailure()) ADD_FAILURE() << "pairs " << pairs;
  }
}

// ---- plans ----

TEST_P(HtMasks, ThatChangeMakePlansStaleUntilTheNextUpdate) {
  ThreadRanks ranks = make_ranks();
  const Masks masks = everyone_masks(num_ranks(), 1);
  on_mask_ranks<HtMaskRank>(ranks, scenario(nobody()), kPatient, [&](HtMaskRank& self, int rank) {
    if (!self.steps(self.io().run_update()) || !self.meet()) return;
    if (rank == 1) {
      // It has masked all others, too, and so has no business with them.
      Masks alone = masks_of_pairs(num_ranks(), ~0ull);
      self.update(alone[1]);
    } else {
      self.update(masks[size_t(rank)]);
    }
    for (int idx = 1; idx < kNumOperations; ++idx) {
      const Status status = end(self.io(), idx);
      EXPECT_TRUE(asks_for_update(status)) << "operation " << idx << ": " << status.to_string();
      EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.to_string();
    }
    EXPECT_EQ(self.async_error(), 0);  // the caller knows whom it masked
    if (rank == 1) return;
    self.expected = scenario(masks);
    self.round_trip() && self.round_trip();
  });
}

// Rank `victim` does not come to an operation of a round, nor to those after it, until all others have gone on without it.
void stay_away(ThreadRanks& ranks, const HtScenario& together, const HtScenario& without, int victim, int from_idx) {
  on_mask_ranks<HtMaskRank>(ranks, together, kImpatient, [&](HtMaskRank& self, int rank) {
    for (int idx = 0; idx < from_idx && self.steps.ok(); ++idx) {
      self.steps(end(self.io(), idx)) && self.steps(check(self.io(), idx));
    }
    const std::vector<int> masked = everyone_masks(ranks.size(), victim)[size_t(rank)];
    if (rank != victim && self.steps.ok()) {
      if (from_idx != kUpdate) {
        // Not everybody has to do with the victim, but who shares its node has.
        bool failed = false;
        for (int idx = from_idx; idx < kNumOperations; ++idx) {
          const Status status = end(self.io(), idx);
          EXPECT_TRUE(status.ok() || asks_for_update(status)) << "operation " << idx << ": " << status.to_string();
          failed |= !status.ok();
          EXPECT_EQ(failed ? "" : check(self.io(), idx), "") << "operation " << idx;
        }
        const Topology& topology = ranks.comm(rank).topology();
        EXPECT_TRUE(failed || topology.node_of(rank) != topology.node_of(victim));
      }
      self.expected = without;
      self.round_trip() && self.round_trip();
      EXPECT_EQ(self.query(), masked);
      EXPECT_EQ(self.async_error(), 1);
    }
    if (!self.meet()) return;
    if (rank != victim) self.steps(self.clean()) && self.steps(self.group().error_clear());
    self.expected = together;
    self.meet() && self.round_trip() && self.round_trip();
    EXPECT_EQ(self.query(), std::vector<int>(size_t(ranks.size()), 1));
    EXPECT_EQ(self.async_error(), 0);
  });
}

TEST_P(HtMasks, GoOnWithoutARankThatStaysAwayAndTakeItBack) {
  for (int from_idx = 0; from_idx < kNumOperations && !HasFailure(); ++from_idx) {
    for (int victim = 0; victim < num_ranks() && !HasFailure(); ++victim) {
      if (!soaking() && (victim + from_idx) % num_ranks() != 0) continue;
      ThreadRanks ranks = make_ranks();
      stay_away(ranks, scenario(nobody()), scenario(everyone_masks(num_ranks(), victim)), victim, from_idx);
      if (HasFailure()) ADD_FAILURE() << "rank " << victim << " stayed away from operation " << from_idx;
    }
  }
}

// The others have its counts in their plans, but not its places.
TEST_P(HtMasks, MakeAnUpdateFailThatARankLeavesInTheMiddle) {
  const int victim = 1;
  ThreadRanks ranks = make_ranks();
  ASSERT_TRUE(set_failpoint("ht.route.counts_posted", text("delay:", 4 * kImpatient / kMillisecond, "#", victim)).ok());
  on_mask_ranks<HtMaskRank>(ranks, scenario(nobody()), kImpatient, [&](HtMaskRank& self, int rank) {
    const Status status = end(self.io(), kUpdate);
    // The victim itself may find when it wakes up that all others are gone, and go on alone.
    EXPECT_TRUE(rank == victim || asks_for_update(status)) << status.to_string();
    EXPECT_EQ(self.async_error(), 1);
    if (rank != victim) {
      const Status again = end(self.io(), 1);
      EXPECT_TRUE(asks_for_update(again)) << again.to_string();
      self.expected = scenario(everyone_masks(num_ranks(), victim));
      self.round_trip();
    }
    if (!self.meet()) return;
    if (rank == victim) clear_failpoints();
    if (rank != victim) self.steps(self.clean());
    self.expected = scenario(nobody());
    self.meet() && self.steps(self.group().error_clear()) && self.round_trip();
    EXPECT_EQ(self.async_error(), 0);
  });
}

// ---- some cases by hand ----

oracle::HtCase small_case(int num_ranks, int num_experts, int max_tokens, int budget, std::vector<int> node_of_rank = {}) {
  oracle::HtShape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = num_experts;
  shape.topk = 2;
  shape.hidden = 16;
  shape.max_tokens = max_tokens;
  shape.node_of_rank = std::move(node_of_rank);
  oracle::HtCase c =
      oracle::make_ht_case(kSeed, shape, oracle::Routing::kUniform, oracle::Fill::kFull, oracle::Budget::kEager);
  c.budget = budget;
  return c;
}

// Rank 0 has nothing to do with rank 3, but for the sums of rank 2, which lack what rank 3 should have added.
TEST(HtMaskedSums, SayThatTheyLackWhatAMissingRankShouldHaveAdded) {
  const int victim = 3;
  oracle::HtCase c = small_case(4, 4, 3, 12, {0, 0, 1, 1});
  // Rank 0 needs experts 2 and 3 of the other node; nobody else needs anything of rank 3, nor has it tokens to send.
  for (auto& entries : c.topk_idx) std::fill(entries.begin(), entries.end(), -1);
  for (size_t token = 0; token < 3; ++token) {
    c.topk_idx[0][2 * token] = 2;
    c.topk_idx[0][2 * token + 1] = 3;
  }
  const HtScenario scenario = make_masked_ht_scenario(kSeed, c, masks_of_pairs(4, 0));
  ThreadRanks ranks(4, {}, {0, 0, 1, 1});
  on_mask_ranks<HtMaskRank>(ranks, scenario, kImpatient, [&](HtMaskRank& self, int rank) {
    if (!self.steps(self.io().run_update()) || !self.steps(self.io().run_dispatch(Pass::kForward))) return;
    if (rank != victim) {
      const Status status = end(self.io(), 2);
      EXPECT_TRUE(asks_for_update(status)) << status.to_string();
      EXPECT_TRUE(rank != 0 || names_rank(status.message(), 2)) << status.to_string();
      EXPECT_EQ(self.query(), (std::vector<int>{1, 1, 1, rank == 0}));
    }
    self.meet();
  });
}

// Rank 1 can't follow its plan, which its caller learns from the dispatch: what it combines then is not worth adding up.
TEST(HtMaskedResults, OfARankWithAStalePlanAreNotUsed) {
  oracle::HtCase c = small_case(3, 3, 5, 30);
  const HtScenario scenario = make_masked_ht_scenario(kSeed, c, masks_of_pairs(3, 0));
  ThreadRanks ranks(3, {}, {0, 0, 0});
  on_mask_ranks<HtMaskRank>(ranks, scenario, kImpatient, [&](HtMaskRank& self, int rank) {
    if (!self.steps(self.io().run_update())) return;
    if (rank == 1) self.update({1, 1, 0});
    const Status dispatched = end(self.io(), 1);
    EXPECT_EQ(asks_for_update(dispatched), rank != 0) << dispatched.to_string();
    EXPECT_EQ(rank == 0 ? self.io().check_dispatch(Pass::kForward) : "", "");
    const Status combined = end(self.io(), 2);
    EXPECT_TRUE(asks_for_update(combined)) << combined.to_string();
    EXPECT_TRUE(rank != 0 || names_rank(combined.message(), 1)) << combined.to_string();
    self.meet();
  });
}

// A rank that is masked is no reason to keep back what is wrong with an operation.
TEST(HtMaskedFaults, AreToldAfterSomebodyWasMasked) {
  oracle::HtCase c = small_case(2, 4, 3, 12);
  const HtScenario without = make_masked_ht_scenario(kSeed, c, everyone_masks(2, 1));
  ThreadRanks ranks(2, {}, {0, 0});
  on_mask_ranks<HtMaskRank>(ranks, without, kImpatient, [&](HtMaskRank& self, int rank) {
    if (rank == 0) {
      self.round_trip();
      EXPECT_EQ(self.async_error(), 1);
      self.expected.named_idx[0][0] = 4;  // no such expert
      const Status status = end(self.io(), kUpdate);
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_NE(status.message().find("topk_idx holds an id outside -1..3"), std::string::npos) << status.to_string();
      EXPECT_EQ(self.async_error(), 1);
    }
    self.meet();
  });
}

// ---- coming back ----

// The one left out misses an odd or even number of operations.
TEST_P(HtMasks, AreCleanedAsOftenAsOneLikes) {
  std::vector<HtScenario> without;
  for (int rank = 0; rank < num_ranks(); ++rank) without.push_back(scenario(everyone_masks(num_ranks(), rank)));
  const HtScenario together = scenario(nobody());
  const int num_cycles = soaking() ? 500 : 40;
  ThreadRanks ranks = make_ranks();
  on_mask_ranks<HtMaskRank>(ranks, together, kPatient, [&](HtMaskRank& self, int rank) {
    for (int cycle = 0; cycle < num_cycles && self.steps.ok(); ++cycle) {
      const int victim = cycle % num_ranks();
      if (rank != victim) {
        self.expected = without[size_t(victim)];
        if (!self.update(everyone_masks(num_ranks(), victim)[size_t(rank)])) break;
        for (int missed = 0; missed < cycle % 4; missed += 2) self.round_trip();
        if (cycle % 2 != 0) self.steps(self.io().run_update());
        if (!self.steps(self.clean())) break;
      }
      self.expected = together;
      self.meet() && self.round_trip();
      if (cycle % 5 == 0) self.round_trip();
    }
    EXPECT_EQ(self.query(), std::vector<int>(size_t(num_ranks()), 1));
  });
}

// Nobody was masked: plans are as good as before.
TEST_P(HtMasks, ThatAreCleanChangeNothing) {
  ThreadRanks ranks = make_ranks();
  on_mask_ranks<HtMaskRank>(ranks, scenario(nobody()), kPatient, [](HtMaskRank& self, int) {
    for (int idx = 0; idx < kNumOperations && self.steps.ok(); ++idx) {
      self.steps(end(self.io(), idx)) && self.steps(check(self.io(), idx)) && self.steps(self.clean());
    }
    self.round_trip();
  });
}

}  // namespace
}  // namespace switchyard::testing
