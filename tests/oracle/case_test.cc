#include "oracle/case.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace switchyard::oracle {
namespace {

using ::testing::HasSubstr;

TEST(Placement, GivesTheFirstRanksOneExpertMoreWhenTheyDoNotDivide) {
  Shape shape;
  shape.num_ranks = 3;
  shape.num_experts = 5;  // 0 1 | 2 3 | 4
  const int owners[] = {0, 0, 1, 1, 2};
  const int local_ids[] = {0, 1, 0, 1, 0};
  for (int expert = 0; expert < 5; ++expert) {
    EXPECT_EQ(shape.owner(expert), owners[expert]) << expert;
    EXPECT_EQ(shape.local_id(expert), local_ids[expert]) << expert;
  }
  EXPECT_EQ(shape.expert_first(1), 2);
  EXPECT_EQ(shape.expert_first(2), 4);
  EXPECT_EQ(shape.num_local(1), 2);
  EXPECT_EQ(shape.num_local(2), 1);
}

TEST(Placement, LeavesRanksWithoutExpertsWhenThereAreMoreRanks) {
  Shape shape;
  shape.num_ranks = 3;
  shape.num_experts = 2;
  EXPECT_EQ(shape.owner(1), 1);
  EXPECT_EQ(shape.num_local(2), 0);
  EXPECT_EQ(shape.num_blocks(2), 0);
}

TEST(Shape, KnowsTheRowSizesOfEveryRecipe) {
  Shape shape;
  shape.hidden = 512;
  EXPECT_EQ(shape.output_token_bytes(), 1024u);
  EXPECT_EQ(shape.output_scale_bytes(), 0u);
  shape.dispatch_recipe = DispatchRecipe::kDsFp8;
  EXPECT_EQ(shape.input_token_bytes(), 1024u);
  EXPECT_EQ(shape.output_token_bytes(), 512u);
  EXPECT_EQ(shape.output_scale_bytes(), 16u);
  EXPECT_EQ(shape.combine_row_bytes(), 1024u);
  shape.dispatch_recipe = DispatchRecipe::kForward;
  shape.dtype = DType::kFloat4x2;
  shape.scale_dtype = DType::kFloat8E4M3;
  shape.scale_width = 64;
  shape.combine_hidden = 1024;
  EXPECT_EQ(shape.output_token_bytes(), 512u);
  EXPECT_EQ(shape.output_scale_bytes(), 64u);
  EXPECT_EQ(shape.combine_row_bytes(), 2048u);
}

Case one_token_case() {
  Case c;
  c.num_ranks = 1;
  c.num_experts = 2;
  c.topk = 2;
  c.hidden = 1;
  c.max_tokens = 1;
  c.num_tokens = {1};
  c.topk_idx = {{0, 1}};
  c.topk_weights = {{1, 1}};
  c.tokens = {{0, 0}};
  return c;
}

TEST(DescribeFault, FindsNothingWrongWithASoundCase) { EXPECT_EQ(describe_fault(one_token_case()), ""); }

TEST(DescribeFault, NamesAnExpertThatDoesNotExist) {
  Case c = one_token_case();
  c.topk_idx[0][1] = 2;
  EXPECT_THAT(describe_fault(c), HasSubstr("names expert 2, allowed -1..1"));
  c.topk_idx[0][1] = -2;
  EXPECT_THAT(describe_fault(c), HasSubstr("names expert -2"));
}

TEST(DescribeFault, NamesAnExpertWhoseBlockOverflows) {
  Case c = one_token_case();
  c.topk_idx = {{1, 1}};
  EXPECT_THAT(describe_fault(c), HasSubstr("expert 1 gets more than the 1 rows"));
  c.layout = Layout::kRankMajor;
  EXPECT_EQ(describe_fault(c), "");
}

TEST(DescribeFault, NamesARankWithTooManyTokensOrTooFewBytes) {
  Case c = one_token_case();
  c.tokens[0].pop_back();
  EXPECT_THAT(describe_fault(c), HasSubstr("do not fit 1 tokens"));
  c.num_tokens = {2};
  EXPECT_THAT(describe_fault(c), HasSubstr("rank 0 has 2 tokens, allowed 0..1"));
}

TEST(DescribeFault, WantsScalesOnlyWhereTheyTravel) {
  Case c = one_token_case();
  c.dispatch_recipe = DispatchRecipe::kForward;
  c.scale_width = 4;
  EXPECT_THAT(describe_fault(c), HasSubstr("one entry for each of the 1 ranks"));
  c.scales = {std::vector<uint8_t>(15)};
  EXPECT_THAT(describe_fault(c), HasSubstr("scales do not fit"));
  c.scales = {std::vector<uint8_t>(16)};
  EXPECT_EQ(describe_fault(c), "");
}

TEST(DescribeFault, WantsSquareMasks) {
  Case c = one_token_case();
  c.combine_mask = {{1, 1}};
  EXPECT_THAT(describe_fault(c), HasSubstr("a mask needs"));
}

}  // namespace
}  // namespace switchyard::oracle
