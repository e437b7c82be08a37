// Hand-computed: two ranks, four experts (0 1 | 2 3), top-2. Every expected value below was worked out on paper.
#include "oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "oracle/float_formats.hpp"

namespace switchyard::oracle {
namespace {

using Refs = std::vector<TokenRef>;

constexpr int kHidden = 2;

std::vector<uint8_t> bf16(std::vector<float> values) { return encode_row(DType::kBfloat16, values); }

// Rank 0: token 0 -> experts 0, 2; token 1 -> expert 3 twice; token 2 -> expert 1. Rank 1: token 0 -> experts 2, 0;
// token 1 -> nothing. Element i of token t of rank r is 100 r + 10 t + i.
Case small_case(Layout layout) {
  Case c;
  c.num_ranks = 2;
  c.num_experts = 4;
  c.topk = 2;
  c.hidden = kHidden;
  c.max_tokens = 3;
  c.layout = layout;
  c.num_tokens = {3, 2};
  c.topk_idx = {{0, 2, 3, 3, -1, 1}, {2, 0, -1, -1}};
  c.topk_weights = {{0.5f, 0.25f, 2, 4, 8, 16}, {1, 3, 5, 7}};
  c.tokens = {bf16({0, 1, 10, 11, 20, 21}), bf16({100, 101, 110, 111})};
  return c;
}

TEST(ExpertMajorDispatch, DeliversOneRowPerEntryInSourceTokenOrder) {
  const Dispatch dispatch = expected_dispatch(small_case(Layout::kExpertMajor));
  EXPECT_EQ(dispatch.ranks[0].blocks, (std::vector<Refs>{{{0, 0}, {1, 0}}, {{0, 2}}}));
  EXPECT_EQ(dispatch.ranks[1].blocks, (std::vector<Refs>{{{0, 0}, {1, 0}}, {{0, 1}, {0, 1}}}));
  EXPECT_EQ(dispatch.ranks[0].counters(), (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(dispatch.ranks[1].counters(), (std::vector<int32_t>{2, 2}));
  EXPECT_TRUE(dispatch.ranks[0].topk_idx.empty());
}

TEST(ExpertMajorDispatch, RecordsTheSlotOfEveryEntry) {
  const Dispatch dispatch = expected_dispatch(small_case(Layout::kExpertMajor));
  EXPECT_EQ(dispatch.slots[0], (std::vector<Slot>{{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, Slot{}, {0, 1, 0}}));
  EXPECT_EQ(dispatch.slots[1], (std::vector<Slot>{{1, 0, 1}, {0, 0, 1}, Slot{}, Slot{}}));
}

TEST(RankMajorDispatch, DeliversEachTokenOncePerRank) {
  const Dispatch dispatch = expected_dispatch(small_case(Layout::kRankMajor));
  EXPECT_EQ(dispatch.ranks[0].blocks, (std::vector<Refs>{{{0, 0}, {0, 2}}, {{1, 0}}}));
  EXPECT_EQ(dispatch.ranks[1].blocks, (std::vector<Refs>{{{0, 0}, {0, 1}}, {{1, 0}}}));
  EXPECT_EQ(dispatch.ranks[0].counters(), (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(dispatch.slots[0], (std::vector<Slot>{{0, 0, 0}, {1, 0, 0}, {1, 0, 1}, {1, 0, 1}, Slot{}, {0, 0, 1}}));
}

TEST(RankMajorDispatch, CarriesPositionalLocalIdsAndAllWeights) {
  const Dispatch dispatch = expected_dispatch(small_case(Layout::kRankMajor));
  EXPECT_EQ(dispatch.ranks[0].topk_idx, (std::vector<int32_t>{0, -1, -1, 1, -1, -1, -1, 0, -1, -1, -1, -1}));
  EXPECT_EQ(dispatch.ranks[1].topk_idx, (std::vector<int32_t>{-1, 0, 1, 1, -1, -1, 0, -1, -1, -1, -1, -1}));
  EXPECT_EQ(dispatch.ranks[0].topk_weights, (std::vector<float>{0.5f, 0.25f, 8, 16, 0, 0, 1, 3, 0, 0, 0, 0}));
  EXPECT_EQ(dispatch.ranks[1].topk_weights, (std::vector<float>{0.5f, 0.25f, 2, 4, 0, 0, 1, 3, 0, 0, 0, 0}));
}

TEST(RankMajorDispatch, CarriesGlobalIdsWhenAsked) {
  Case c = small_case(Layout::kRankMajor);
  c.id_kind = IdKind::kGlobal;
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.ranks[1].topk_idx, (std::vector<int32_t>{-1, 2, 3, 3, -1, -1, 2, -1, -1, -1, -1, -1}));
}

TEST(Dispatch, FollowsAnUnevenPlacement) {
  Case c = small_case(Layout::kExpertMajor);
  c.num_experts = 5;  // 0 1 2 | 3 4
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.ranks[0].counters(), (std::vector<int32_t>{2, 1, 2}));
  EXPECT_EQ(dispatch.ranks[1].counters(), (std::vector<int32_t>{2, 0}));
}

TEST(Dispatch, MovesPlainTokensUnchanged) {
  const Case c = small_case(Layout::kExpertMajor);
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.tokens, c.tokens);
  EXPECT_TRUE(dispatch.scales[0].empty());
}

TEST(Dispatch, ForwardsQuantisedTokensAndScalesAsBytes) {
  Case c = small_case(Layout::kRankMajor);
  c.dispatch_recipe = DispatchRecipe::kForward;
  c.dtype = DType::kFloat8E4M3;
  c.scale_dtype = DType::kUint8;
  c.scale_width = 1;
  c.tokens = {{1, 2, 3, 4, 5, 6}, {7, 8, 0x7f, 0xff}};
  c.scales = {{11, 12, 13}, {14, 15}};
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.tokens, c.tokens);
  EXPECT_EQ(dispatch.scales, c.scales);
  EXPECT_EQ(dispatch.ranks[1].blocks[0], (Refs{{0, 0}, {0, 1}}));
}

TEST(Dispatch, QuantisesToFp8WithOneScalePerGroup) {
  Case c = small_case(Layout::kExpertMajor);
  c.dispatch_recipe = DispatchRecipe::kDsFp8;
  c.tokens = {bf16({448, -1, 0, 896, 2, 224}), bf16({448, 0, 448, 0})};
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.tokens[0], (std::vector<uint8_t>{0x7e, 0xb8, 0x00, 0x7e, 0x48, 0x7e}));
  EXPECT_EQ(dispatch.scales[0], encode_row(DType::kFloat32, std::vector<float>{1, 2, 0.5f}));
}

TEST(Dispatch, RoundsFp8ScalesWhenAsked) {
  Case c = small_case(Layout::kExpertMajor);
  c.dispatch_recipe = DispatchRecipe::kDsFp8;
  c.round_scales = true;
  c.tokens = {bf16({1, 0, 1, 0, 1, 0}), bf16({3, 0, 3, 0})};
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.tokens[0], (std::vector<uint8_t>{0x78, 0, 0x78, 0, 0x78, 0}));  // 1 * 256
  EXPECT_EQ(dispatch.scales[1], encode_row(DType::kFloat32, std::vector<float>{0x1p-7f, 0x1p-7f}));
}

TEST(Dispatch, IgnoresSourcesTheReceiverMasked) {
  Case c = small_case(Layout::kRankMajor);
  c.mask = {{1, 0}, {1, 1}};  // rank 0 has masked rank 1
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.ranks[0].counters(), (std::vector<int32_t>{2, 0}));
}

TEST(Dispatch, SendsNothingToRanksTheSourceMasked) {
  Case c = small_case(Layout::kExpertMajor);
  c.mask = {{1, 0}, {1, 1}};
  const Dispatch dispatch = expected_dispatch(c);
  EXPECT_EQ(dispatch.ranks[1].blocks, (std::vector<Refs>{{{1, 0}}, {}}));
  EXPECT_EQ(dispatch.slots[0][1], Slot{});
  EXPECT_EQ(dispatch.slots[1][0], (Slot{1, 0, 0}));
}

TEST(Dispatch, RefusesAnInconsistentCase) {
  Case c = small_case(Layout::kExpertMajor);
  c.topk_idx[0][0] = 4;
  EXPECT_THROW(expected_dispatch(c), std::invalid_argument);
}

// Live rows of the expert-major case: rank 0: expert 0 (token 0.0, token 1.0), expert 1 (token 0.2); rank 1: expert 2
// (token 0.0, token 1.0), expert 3 (token 0.1 twice).
ExpertOutputs expert_major_outputs() {
  ExpertOutputs outputs;
  outputs.rows = {{bf16({1, 2, 3, 4}), bf16({5, 6})}, {bf16({8, 16, 32, 64}), bf16({10, 20, 30, 40})}};
  return outputs;
}

TEST(ExpertMajorCombine, SumsWeightedRowsOfValidEntries) {
  const Case c = small_case(Layout::kExpertMajor);
  const auto combined = expected_combine(c, expected_dispatch(c), expert_major_outputs());
  EXPECT_EQ(combined[0], bf16({0.5f * 1 + 0.25f * 8, 0.5f * 2 + 0.25f * 16,  // token 0
                               2 * 10 + 4 * 30, 2 * 20 + 4 * 40,             // token 1: the duplicate counts twice
                               16 * 5, 16 * 6}));                            // token 2
  EXPECT_EQ(combined[1], bf16({32 + 3 * 3, 64 + 3 * 4, 0, 0}));              // token 1 has no expert: zeros
}

// The rank-major rows: rank 0: from rank 0 tokens 0 and 2, from rank 1 token 0; rank 1: from rank 0 tokens 0 and 1,
// from rank 1 token 0.
ExpertOutputs rank_major_outputs() {
  ExpertOutputs outputs;
  outputs.rows = {{bf16({1, 2, 3, 4}), bf16({5, 6})}, {bf16({8, 16, 32, 64}), bf16({10, 20})}};
  return outputs;
}

TEST(RankMajorCombine, SumsOneUnweightedRowPerRank) {
  const Case c = small_case(Layout::kRankMajor);
  const auto combined = expected_combine(c, expected_dispatch(c), rank_major_outputs());
  EXPECT_EQ(combined[0], bf16({1 + 8, 2 + 16, 32, 64, 3, 4}));  // token 1 names one rank twice: counted once
  EXPECT_EQ(combined[1], bf16({10 + 5, 20 + 6, 0, 0}));
}

TEST(Combine, SkipsRanksMaskedSinceTheDispatch) {
  Case c = small_case(Layout::kExpertMajor);
  const Dispatch dispatch = expected_dispatch(c);
  c.combine_mask = {{1, 0}, {1, 1}};
  const auto combined = expected_combine(c, dispatch, expert_major_outputs());
  EXPECT_EQ(combined[0], bf16({0.5f, 1, 0, 0, 80, 96}));
  EXPECT_EQ(combined[1], bf16({32, 64, 0, 0}));  // rank 0 does not send to the rank it masked
}

TEST(Combine, SkipsRanksMaskedAtTheDispatch) {
  Case c = small_case(Layout::kRankMajor);
  c.mask = {{1, 1}, {0, 1}};
  ExpertOutputs outputs;
  outputs.rows = {{bf16({1, 2, 3, 4}), {}}, {{}, bf16({10, 20})}};
  const auto combined = expected_combine(c, expected_dispatch(c), outputs);
  EXPECT_EQ(combined[0], bf16({1, 2, 0, 0, 3, 4}));
  EXPECT_EQ(combined[1], bf16({10, 20, 0, 0}));
}

// One rank, one token, one element a row: for arithmetic alone.
Case one_element_case(DType dtype, int topk) {
  Case c;
  c.num_experts = topk;
  c.topk = topk;
  c.hidden = 1;
  c.combine_dtype = dtype;
  c.num_tokens = {1};
  c.tokens = {{0, 0}};
  c.topk_idx.resize(1);
  for (int k = 0; k < topk; ++k) c.topk_idx[0].push_back(k);
  c.topk_weights = {std::vector<float>(topk, 1.0f)};
  return c;
}

std::vector<uint8_t> combine_one(const Case& c, const std::vector<float>& values) {
  ExpertOutputs outputs;
  outputs.rows.resize(1);
  for (float value : values) outputs.rows[0].push_back(encode_row(c.combine_dtype, std::vector<float>{value}));
  return expected_combine(c, expected_dispatch(c), outputs)[0];
}

TEST(Combine, RoundsOnceAtTheEnd) {
  // 256 + 1 + 1: rounding to BF16 after each step would lose both ones.
  EXPECT_EQ(combine_one(one_element_case(DType::kBfloat16, 3), {256, 1, 1}), bf16({258}));
}

TEST(Combine, AccumulatesInTopkOrder) {
  const Case c = one_element_case(DType::kFloat32, 3);
  const auto f32 = [](float value) { return encode_row(DType::kFloat32, std::vector<float>{value}); };
  EXPECT_EQ(combine_one(c, {1, 0x1p30f, -0x1p30f}), f32(0));  // the one is lost first
  EXPECT_EQ(combine_one(c, {0x1p30f, -0x1p30f, 1}), f32(1));
}

TEST(Combine, FusesMultiplicationAndAddition) {
  Case c = one_element_case(DType::kFloat32, 2);
  const float value = 1.0f + 0x1p-23f;
  c.topk_weights = {{-1.0f, value}};
  // value^2 = 1 + 2^-22 + 2^-46; the rounded product is 1 + 2^-22.
  const auto combined = combine_one(c, {1.0f + 0x1p-22f, value});
  EXPECT_EQ(combined, encode_row(DType::kFloat32, std::vector<float>{0x1p-46f}));
}

TEST(Combine, OverflowsFloat16ToInfinity) {
  EXPECT_EQ(combine_one(one_element_case(DType::kFloat16, 2), {65504, 65504}), (std::vector<uint8_t>{0x00, 0x7c}));
}

TEST(Combine, QuantisesNvfp4RowsOnTheWay) {
  Case c = one_element_case(DType::kBfloat16, 1);
  c.combine_hidden = 16;
  c.combine_recipe = CombineRecipe::kNvfp4;
  c.topk_weights = {{2.0f}};
  std::vector<float> values(16, 0.0f);
  values[0] = 6.0f;
  values[1] = 2.4f;   // nearest FP4 value: 2
  values[2] = -5.5f;  // nearest: -6
  ExpertOutputs outputs;
  outputs.rows = {{bf16(values)}};
  outputs.global_scales = {{{448.0f}}};
  const auto combined = expected_combine(c, expected_dispatch(c), outputs);
  values[0] = 12.0f;
  values[1] = 4.0f;
  values[2] = -12.0f;
  EXPECT_EQ(combined[0], bf16(values));
}

}  // namespace
}  // namespace switchyard::oracle
