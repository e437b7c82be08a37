// Every expected value was worked out on paper; the case is in ht_small_case.hpp.
#include "oracle/ht_oracle.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "oracle/ht_small_case.hpp"

namespace switchyard::oracle {
namespace {

using Refs = std::vector<std::optional<TokenRef>>;
using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
constexpr std::nullopt_t kPadding = std::nullopt;

TEST(HtFlatDispatch, DeliversOneRowPerTokenInSourceTokenOrder) {
  const HtDispatch dispatch = expected_ht_dispatch(small_ht_case(HtLayout::kFlat));
  EXPECT_EQ(dispatch.ranks[0].rows, (Refs{TokenRef{0, 0}, TokenRef{0, 1}, TokenRef{1, 0}, TokenRef{1, 1}}));
  EXPECT_EQ(dispatch.ranks[1].rows, (Refs{TokenRef{0, 0}, TokenRef{1, 0}, TokenRef{1, 1}}));
}

TEST(HtFlatDispatch, CountsTokensAndTheRowsOfEveryExpert) {
  const HtDispatch dispatch = expected_ht_dispatch(small_ht_case(HtLayout::kFlat));
  EXPECT_EQ(dispatch.ranks[0].num_total, 4);
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{3, 2}));
  EXPECT_EQ(dispatch.ranks[1].num_total, 3);
  EXPECT_EQ(dispatch.ranks[1].expert_counters, (Ints{2, 2}));
  EXPECT_TRUE(dispatch.ranks[0].expert_offsets.empty());
}

// A duplicate is one hit, with the weight of its last entry.
TEST(HtFlatDispatch, ListsHitsAscendingAndCompactedWithTheirWeights) {
  const HtDispatch dispatch = expected_ht_dispatch(small_ht_case(HtLayout::kFlat));
  EXPECT_EQ(dispatch.ranks[0].topk_idx, (Ints{0, -1, -1, 1, -1, -1, 0, 1, -1, 0, -1, -1}));
  EXPECT_EQ(dispatch.ranks[0].topk_weights, (Floats{2, 0, 0, 5, 0, 0, 10, 11, 0, 14, 0, 0}));
  EXPECT_EQ(dispatch.ranks[1].topk_idx, (Ints{0, 1, -1, 0, -1, -1, 1, -1, -1}));
  EXPECT_EQ(dispatch.ranks[1].topk_weights, (Floats{1, 3, 0, 12, 0, 0, 15, 0, 0}));
}

TEST(HtFlatDispatch, ListsGlobalIdsWhenAsked) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.id_kind = IdKind::kGlobal;
  const HtDispatch dispatch = expected_ht_dispatch(c);
  EXPECT_EQ(dispatch.ranks[1].topk_idx, (Ints{2, 3, -1, 2, -1, -1, 3, -1, -1}));
}

TEST(HtFlatDispatch, RecordsTheRowOfEveryEntry) {
  const HtDispatch dispatch = expected_ht_dispatch(small_ht_case(HtLayout::kFlat));
  EXPECT_EQ(dispatch.slots[0], (Ints{0, 0, 0, 1, 1, -1, -1, -1, -1}));
  EXPECT_EQ(dispatch.slots[1], (Ints{2, 2, 1, 2, 3, 2}));
}

TEST(HtFlatDispatch, DropsTheTokensPastTheBudget) {
  const HtDispatch dispatch = expected_ht_dispatch(small_drop_case(HtLayout::kFlat, 3));
  EXPECT_EQ(dispatch.ranks[0].rows, (Refs{TokenRef{0, 0}, TokenRef{0, 1}, TokenRef{1, 0}}));
  EXPECT_EQ(dispatch.ranks[0].num_total, 4);
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{2, 2}));
  EXPECT_EQ(dispatch.ranks[0].topk_idx.size(), 9u);
  EXPECT_EQ(dispatch.slots[1], (Ints{2, 2, 1, 2, -1, 2}));
  EXPECT_EQ(dispatch.ranks[1].rows.size(), 3u);
}

TEST(HtExpertMajorDispatch, FillsZonesInSourceTokenOrder) {
  const HtDispatch dispatch = expected_ht_dispatch(small_ht_case(HtLayout::kExpertMajor));
  EXPECT_EQ(dispatch.ranks[0].rows,
            (Refs{TokenRef{0, 0}, TokenRef{1, 0}, TokenRef{1, 1}, TokenRef{0, 1}, TokenRef{1, 0}}));
  EXPECT_EQ(dispatch.ranks[0].topk_weights, (Floats{2, 10, 14, 5, 11}));
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{3, 2}));
  EXPECT_EQ(dispatch.ranks[0].expert_offsets, (Ints{0, 3}));
  EXPECT_EQ(dispatch.ranks[0].num_total, 5);
  EXPECT_EQ(dispatch.ranks[1].rows, (Refs{TokenRef{0, 0}, TokenRef{1, 0}, TokenRef{0, 0}, TokenRef{1, 1}}));
  EXPECT_EQ(dispatch.ranks[1].topk_weights, (Floats{1, 12, 3, 15}));
  EXPECT_EQ(dispatch.ranks[1].expert_counters, (Ints{2, 2}));
  EXPECT_EQ(dispatch.ranks[1].expert_offsets, (Ints{0, 2}));
  EXPECT_TRUE(dispatch.ranks[0].topk_idx.empty());
}

TEST(HtExpertMajorDispatch, RecordsTheRowOfEveryEntry) {
  const HtDispatch dispatch = expected_ht_dispatch(small_ht_case(HtLayout::kExpertMajor));
  EXPECT_EQ(dispatch.slots[0], (Ints{0, 0, 2, 3, 3, -1, -1, -1, -1}));
  EXPECT_EQ(dispatch.slots[1], (Ints{1, 4, 1, 3, 2, 3}));
}

TEST(HtExpertMajorDispatch, PadsZonesToTheAlignment) {
  HtCase c = small_ht_case(HtLayout::kExpertMajor);
  c.alignment = 4;
  const HtDispatch dispatch = expected_ht_dispatch(c);
  EXPECT_EQ(dispatch.ranks[0].rows, (Refs{TokenRef{0, 0}, TokenRef{1, 0}, TokenRef{1, 1}, kPadding, TokenRef{0, 1},
                                          TokenRef{1, 0}, kPadding, kPadding}));
  EXPECT_EQ(dispatch.ranks[0].topk_weights, (Floats{2, 10, 14, 0, 5, 11, 0, 0}));
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{4, 4}));
  EXPECT_EQ(dispatch.ranks[0].expert_offsets, (Ints{0, 4}));
  EXPECT_EQ(dispatch.ranks[0].num_total, 8);
  EXPECT_EQ(dispatch.slots[1], (Ints{1, 5, 1, 5, 2, 5}));
}

TEST(HtExpertMajorDispatch, GivesUnusedExpertsNoRows) {
  HtCase c = small_ht_case(HtLayout::kExpertMajor);
  c.num_experts = 6;  // 0 1 2 | 3 4 5
  c.alignment = 4;
  const HtDispatch dispatch = expected_ht_dispatch(c);
  EXPECT_EQ(dispatch.ranks[1].expert_counters, (Ints{4, 0, 0}));
  EXPECT_EQ(dispatch.ranks[1].expert_offsets, (Ints{0, 4, 4}));
  EXPECT_EQ(dispatch.ranks[1].num_total, 4);
}

TEST(HtExpertMajorDispatch, FollowsAnUnevenPlacement) {
  HtCase c = small_ht_case(HtLayout::kExpertMajor);
  c.num_experts = 5;  // 0 1 2 | 3 4
  const HtDispatch dispatch = expected_ht_dispatch(c);
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{3, 2, 2}));
  EXPECT_EQ(dispatch.ranks[1].expert_counters, (Ints{2, 0}));
}

TEST(HtExpertMajorDispatch, CutsAZoneAtTheBudgetAndLosesThoseBehind) {
  const HtDispatch dispatch = expected_ht_dispatch(small_drop_case(HtLayout::kExpertMajor, 3));
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{3, 0}));
  EXPECT_EQ(dispatch.ranks[0].expert_offsets, (Ints{0, 3}));
  EXPECT_EQ(dispatch.ranks[0].num_total, 5);
  EXPECT_EQ(dispatch.ranks[0].rows, (Refs{TokenRef{0, 0}, TokenRef{1, 0}, TokenRef{1, 1}}));
  EXPECT_EQ(dispatch.ranks[1].expert_counters, (Ints{2, 1}));
  EXPECT_EQ(dispatch.ranks[1].expert_offsets, (Ints{0, 2}));
  EXPECT_EQ(dispatch.ranks[1].rows, (Refs{TokenRef{0, 0}, TokenRef{1, 0}, TokenRef{0, 0}}));
  EXPECT_EQ(dispatch.slots[0], (Ints{0, 0, 2, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(dispatch.slots[1], (Ints{1, -1, 1, -1, 2, -1}));
}

TEST(HtExpertMajorDispatch, CutsPaddedZonesAndClampsTheirOffsets) {
  HtCase c = small_drop_case(HtLayout::kExpertMajor, 5);
  c.alignment = 4;
  HtDispatch dispatch = expected_ht_dispatch(c);
  EXPECT_EQ(dispatch.ranks[0].rows, (Refs{TokenRef{0, 0}, TokenRef{1, 0}, TokenRef{1, 1}, kPadding, TokenRef{0, 1}}));
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{4, 1}));
  EXPECT_EQ(dispatch.ranks[0].num_total, 8);
  c.budget = 3;
  dispatch = expected_ht_dispatch(c);
  EXPECT_EQ(dispatch.ranks[0].expert_counters, (Ints{3, 0}));
  EXPECT_EQ(dispatch.ranks[0].expert_offsets, (Ints{0, 3}));  // the zone would start at 4
  EXPECT_EQ(dispatch.ranks[0].num_total, 8);
}

TEST(HtOverflow, NamesEveryRankOverItsBudget) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.budget = 4;
  EXPECT_TRUE(find_overflowing(c).empty());
  EXPECT_FALSE(traps(c));
  c.budget = 3;
  EXPECT_EQ(find_overflowing(c), (std::vector<HtOverflowing>{{0, 4}}));
  EXPECT_TRUE(traps(c));
  c.layout = HtLayout::kExpertMajor;
  EXPECT_EQ(find_overflowing(c), (std::vector<HtOverflowing>{{0, 5}, {1, 4}}));
  c.alignment = 4;
  EXPECT_EQ(find_overflowing(c), (std::vector<HtOverflowing>{{0, 8}, {1, 8}}));
  c.overflow = Overflow::kDrop;
  EXPECT_FALSE(traps(c));
}

TEST(HtOverflow, LeavesNoResultsWhenItTraps) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.budget = 3;
  EXPECT_THROW(expected_ht_dispatch(c), std::invalid_argument);
}

TEST(HtDispatch, RefusesAnInconsistentCase) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.topk_idx[0][0] = 4;
  EXPECT_THROW(expected_ht_dispatch(c), std::invalid_argument);
}

}  // namespace
}  // namespace switchyard::oracle
