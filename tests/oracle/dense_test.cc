#include "oracle/dense.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "oracle/generators.hpp"

namespace switchyard::oracle {
namespace {

using ::testing::HasSubstr;

constexpr uint8_t kUntouched = 0xa5;

// A second, dense way to write what the model says: the buffers a correct library would leave.
struct Buffers {
  std::vector<uint8_t> tokens;
  std::vector<uint8_t> scales;
  std::vector<int32_t> counters;
  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;

  Buffers(const Case& c, const Dispatch& dispatch, int rank) {
    const RankDispatch& output = dispatch.ranks[rank];
    const size_t num_rows = static_cast<size_t>(c.num_blocks(rank)) * c.rows_per_block();
    tokens.assign(num_rows * c.output_token_bytes(), kUntouched);
    scales.assign(num_rows * c.output_scale_bytes(), kUntouched);
    counters = output.counters();
    topk_idx = output.topk_idx;
    topk_weights.assign(topk_idx.size(), std::bit_cast<float>(0xa5a5a5a5u));
    for (size_t block_idx = 0; block_idx < output.blocks.size(); ++block_idx) {
      for (size_t i = 0; i < output.blocks[block_idx].size(); ++i) {
        const TokenRef token = output.blocks[block_idx][i];
        const size_t row_idx = block_idx * c.rows_per_block() + i;
        copy_row(dispatch.tokens[token.rank], token.token_idx, tokens, row_idx, c.output_token_bytes());
        copy_row(dispatch.scales[token.rank], token.token_idx, scales, row_idx, c.output_scale_bytes());
        if (!topk_weights.empty()) copy_row(output.topk_weights, row_idx, topk_weights, row_idx, c.topk);
      }
    }
  }

  template <class T>
  static void copy_row(const std::vector<T>& from, size_t from_idx, std::vector<T>& to, size_t to_idx, size_t size) {
    std::copy_n(from.begin() + from_idx * size, size, to.begin() + to_idx * size);
  }

  DispatchView view() const { return {tokens, scales, counters, topk_idx, topk_weights}; }
};

class CheckDispatch : public ::testing::Test {
 protected:
  void use(Layout layout) {
    Shape shape;
    shape.num_ranks = 2;
    shape.num_experts = 4;
    shape.topk = 2;
    shape.hidden = 16;
    shape.max_tokens = 5;
    shape.layout = layout;
    shape.dtype = DType::kFloat8E4M3;
    shape.dispatch_recipe = DispatchRecipe::kForward;
    shape.scale_width = 4;
    case_ = make_case(7, shape, Routing::kSomeDropped, Fill::kFull);
    dispatch_ = expected_dispatch(case_);
  }

  std::string verdict(const Buffers& buffers) {
    return check_dispatch(case_, dispatch_, 1, buffers.view(), kUntouched);
  }

  Case case_;
  Dispatch dispatch_;
};

TEST_F(CheckDispatch, AcceptsWhatTheModelSays) {
  for (Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    use(layout);
    EXPECT_EQ(verdict(Buffers(case_, dispatch_, 1)), "");
  }
}

TEST_F(CheckDispatch, NamesAWrongByteOfALiveRow) {
  use(Layout::kExpertMajor);
  ASSERT_FALSE(dispatch_.ranks[1].blocks[1].empty());
  Buffers buffers(case_, dispatch_, 1);
  buffers.tokens[case_.rows_per_block() * 16 + 3] ^= 1;
  EXPECT_THAT(verdict(buffers), HasSubstr("rank 1, tokens, local expert 1, row 0: byte 3 is"));
}

TEST_F(CheckDispatch, NamesAWriteToADeadRow) {
  use(Layout::kRankMajor);
  ASSERT_LT(dispatch_.ranks[1].blocks[1].size(), 5u);
  Buffers buffers(case_, dispatch_, 1);
  buffers.scales.back() = 0;
  EXPECT_THAT(verdict(buffers), HasSubstr("rank 1, scales, source rank 1, row 4 (dead, must stay untouched)"));
}

TEST_F(CheckDispatch, WantsDeadIndicesResetAndDeadWeightsUntouched) {
  use(Layout::kRankMajor);
  Buffers indices(case_, dispatch_, 1);
  indices.topk_idx.back() = std::bit_cast<int32_t>(0xa5a5a5a5u);
  EXPECT_THAT(verdict(indices), HasSubstr("topk_idx, source rank 1, row 4"));
  Buffers weights(case_, dispatch_, 1);
  weights.topk_weights.back() = 0;
  EXPECT_THAT(verdict(weights), HasSubstr("topk_weights, source rank 1, row 4 (dead"));
}

TEST_F(CheckDispatch, NamesWrongCountersAndWrongSizes) {
  use(Layout::kExpertMajor);
  Buffers counters(case_, dispatch_, 1);
  ++counters.counters[0];
  EXPECT_THAT(verdict(counters), HasSubstr("rank 1, counters:"));
  Buffers sizes(case_, dispatch_, 1);
  sizes.tokens.pop_back();
  EXPECT_THAT(verdict(sizes), HasSubstr("the buffer has"));
}

TEST_F(CheckDispatch, TakesRankMajorCountersAsOptional) {
  use(Layout::kRankMajor);
  Buffers buffers(case_, dispatch_, 1);
  buffers.counters.clear();
  EXPECT_EQ(verdict(buffers), "");
  use(Layout::kExpertMajor);
  Buffers expert_major(case_, dispatch_, 1);
  expert_major.counters.clear();
  EXPECT_NE(verdict(expert_major), "");
}

TEST(CheckCombine, NamesTheElementThatDiffers) {
  Case c;
  c.hidden = 2;
  const std::vector<uint8_t> expected = {0, 0, 0, 0, 0, 0, 0x80, 0x3f};
  std::vector<uint8_t> actual = expected;
  EXPECT_EQ(check_combine(c, 0, expected, actual), "");
  actual[7] = 0x40;
  EXPECT_THAT(check_combine(c, 0, expected, actual), HasSubstr("token 1, element 1 is 0x4080, expected 0x3f80"));
  actual.pop_back();
  EXPECT_THAT(check_combine(c, 0, expected, actual), HasSubstr("7 bytes, expected 8"));
}

TEST(Outputs, ScatterAndGatherAreInverse) {
  Shape shape;
  shape.num_ranks = 3;
  shape.num_experts = 5;
  shape.topk = 2;
  shape.hidden = 16;
  shape.max_tokens = 4;
  shape.combine_recipe = CombineRecipe::kNvfp4;
  for (Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    shape.layout = layout;
    const Case c = make_case(11, shape, Routing::kZipf, Fill::kPartial);
    const Dispatch dispatch = expected_dispatch(c);
    const ExpertOutputs outputs = make_expert_outputs(12, c, dispatch);
    std::vector<std::vector<uint8_t>> rows(3);
    std::vector<std::vector<float>> scales(3);
    for (int rank = 0; rank < 3; ++rank) {
      const size_t num_rows = static_cast<size_t>(c.num_blocks(rank)) * c.rows_per_block();
      rows[rank].assign(num_rows * c.combine_row_bytes(), kUntouched);
      scales[rank].assign(num_rows, -1.0f);
      scatter_outputs(c, outputs, rank, rows[rank], scales[rank]);
    }
    const ExpertOutputs again =
        gather_outputs(c, dispatch, {rows[0], rows[1], rows[2]}, {scales[0], scales[1], scales[2]});
    EXPECT_EQ(again.rows, outputs.rows);
    EXPECT_EQ(again.global_scales, outputs.global_scales);
  }
}

}  // namespace
}  // namespace switchyard::oracle
