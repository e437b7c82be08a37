#include "oracle/ht_generators.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracle/float_formats.hpp"

namespace switchyard::oracle {
namespace {

HtShape medium_shape(HtLayout layout) {
  HtShape shape;
  shape.num_ranks = 3;
  shape.num_experts = 10;
  shape.topk = 4;
  shape.hidden = 16;
  shape.max_tokens = 12;
  shape.layout = layout;
  shape.alignment = 8;
  return shape;
}

TEST(MakeHtCase, IsSoundForEveryPatternFillBudgetAndPolicy) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const Overflow overflow : {Overflow::kTrap, Overflow::kDrop}) {
      for (const Routing routing : kAllRoutings) {
        for (const Fill fill : kAllFills) {
          for (const Budget budget : kAllBudgets) {
            HtShape shape = medium_shape(layout);
            shape.overflow = overflow;
            const HtCase c = make_ht_case(3, shape, routing, fill, budget);
            EXPECT_EQ(describe_fault(c), "") << routing_name(routing) << ", " << budget_name(budget);
          }
        }
      }
    }
  }
}

TEST(MakeHtCase, SetsTheBudgetByWhatArrives) {
  const HtShape shape = medium_shape(HtLayout::kExpertMajor);
  const auto budget_of = [&](Budget budget) {
    return make_ht_case(3, shape, Routing::kUniform, Fill::kFull, budget).budget;
  };
  const HtCase exact = make_ht_case(3, shape, Routing::kUniform, Fill::kFull, Budget::kExact);
  int64_t largest = 0;
  for (const HtRankDispatch& rank : expected_ht_dispatch(exact).ranks) largest = std::max(largest, rank.num_total);
  EXPECT_EQ(exact.budget, largest);
  EXPECT_EQ(budget_of(Budget::kEager), 0);
  EXPECT_GT(budget_of(Budget::kGenerous), largest);
  EXPECT_LT(budget_of(Budget::kTight), largest);
}

TEST(MakeHtCase, TightBudgetsOverflow) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    EXPECT_TRUE(traps(make_ht_case(3, medium_shape(layout), Routing::kUniform, Fill::kFull, Budget::kTight)));
    EXPECT_FALSE(traps(make_ht_case(3, medium_shape(layout), Routing::kUniform, Fill::kFull, Budget::kExact)));
  }
}

TEST(MakeHtCase, NamesSomeExpertsThreeTimes) {
  const HtCase c = make_ht_case(1, medium_shape(HtLayout::kFlat), Routing::kDuplicates, Fill::kFull, Budget::kEager);
  int most = 0;
  for (const auto& entries : c.topk_idx) {
    for (size_t first = 0; first < entries.size(); first += c.topk) {
      for (int k = 0; k < c.topk; ++k) {
        const auto begin = entries.begin() + first;
        if (begin[k] >= 0) most = std::max(most, int(std::count(begin, begin + c.topk, begin[k])));
      }
    }
  }
  EXPECT_GE(most, 3);
}

TEST(FitToBudget, BlanksAsLittleAsNeeded) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    const HtCase c = make_ht_case(3, medium_shape(layout), Routing::kUniform, Fill::kFull, Budget::kTight);
    const HtCase fitting = fit_to_budget(c);
    EXPECT_FALSE(traps(fitting));
    EXPECT_TRUE(std::ranges::any_of(fitting.topk_idx[0], [](int64_t expert) { return expert >= 0; }));
    const HtCase roomy = make_ht_case(3, medium_shape(layout), Routing::kUniform, Fill::kFull, Budget::kExact);
    EXPECT_EQ(fit_to_budget(roomy).topk_idx, roomy.topk_idx);
  }
}

// NaN wherever nobody may look; so combined tokens and gradients are numbers.
TEST(MakeHtOutputs, SpoilsPaddingAndNothingElse) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    const HtCase c = make_ht_case(3, medium_shape(layout), Routing::kDuplicates, Fill::kPartial, Budget::kExact);
    const HtDispatch dispatch = expected_ht_dispatch(c);
    const HtExpertOutputs outputs = make_ht_outputs(4, c, dispatch);
    const HtCombine combined = expected_ht_combine(c, dispatch, outputs);
    int num_spoilt = 0;
    for (int rank = 0; rank < c.num_ranks; ++rank) {
      ASSERT_EQ(outputs.rows[rank].size(), dispatch.ranks[rank].rows.size() * c.combine_row_bytes());
      num_spoilt += static_cast<int>(
          std::ranges::count_if(outputs.weight_gradients[rank], [](float gradient) { return std::isnan(gradient); }));
      const auto is_number = [](float value) { return !std::isnan(value); };
      EXPECT_TRUE(std::ranges::all_of(decode_row(c.combine_dtype, combined.tokens[rank]), is_number));
      EXPECT_TRUE(std::ranges::all_of(combined.weight_gradients[rank], is_number));
    }
    EXPECT_GT(num_spoilt, 0);
  }
}

}  // namespace
}  // namespace switchyard::oracle
