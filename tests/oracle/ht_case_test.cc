#include "oracle/ht_case.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "oracle/ht_small_case.hpp"

namespace switchyard::oracle {
namespace {

using ::testing::HasSubstr;

TEST(HtShape, PadsUsedZonesOnly) {
  HtShape shape;
  shape.alignment = 16;
  EXPECT_EQ(shape.padded(0), 0);
  EXPECT_EQ(shape.padded(1), 16);
  EXPECT_EQ(shape.padded(16), 16);
  EXPECT_EQ(shape.padded(17), 32);
  for (const int none : {0, 1}) {
    shape.alignment = none;
    EXPECT_EQ(shape.padded(5), 5);
  }
}

TEST(HtDescribeFault, FindsNothingWrongWithASoundCase) {
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    EXPECT_EQ(describe_fault(small_ht_case(layout)), "");
    EXPECT_EQ(describe_fault(small_drop_case(layout, 3)), "");
  }
}

TEST(HtDescribeFault, NamesABudgetBelowTheTokensOfOneRank) {
  EXPECT_THAT(describe_fault(small_drop_case(HtLayout::kFlat, 2)), HasSubstr("budget is 2"));
}

TEST(HtDescribeFault, RefusesToDropWithoutABudget) {
  EXPECT_THAT(describe_fault(small_drop_case(HtLayout::kFlat, 0)), HasSubstr("kDrop"));
}

TEST(HtDescribeFault, NamesAnAlignmentThatIsNoPowerOfTwo) {
  HtCase c = small_ht_case(HtLayout::kExpertMajor);
  c.alignment = 12;
  EXPECT_THAT(describe_fault(c), HasSubstr("alignment is 12"));
}

TEST(HtDescribeFault, WantsAnAscendingNodeForEveryRank) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.node_of_rank = {0};
  EXPECT_THAT(describe_fault(c), HasSubstr("one entry a rank"));
  c.node_of_rank = {1, 0};
  EXPECT_THAT(describe_fault(c), HasSubstr("ascend"));
}

TEST(HtDescribeFault, RefusesFusedQuantisation) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.dispatch_recipe = DispatchRecipe::kDsFp8;
  EXPECT_THAT(describe_fault(c), HasSubstr("kDsFp8"));
}

TEST(HtDescribeFault, LooksAtTheInputs) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.topk_idx[1][0] = 4;
  EXPECT_THAT(describe_fault(c), HasSubstr("names expert 4"));
}

}  // namespace
}  // namespace switchyard::oracle
