// The judge is judged: a buffer as the model wants it passes, and every single thing wrong with it is found.
#include "oracle/ht_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "oracle/ht_small_case.hpp"

namespace switchyard::oracle {
namespace {

using ::testing::HasSubstr;

constexpr uint8_t kUntouched = 0xa5;
constexpr int64_t kUntouchedCounter = -77;

// Rank 0's outputs as they must look, with two rows to spare.
struct Outputs {
  explicit Outputs(const HtCase& sound_case) : c(sound_case), expected(expected_ht_dispatch(c)) {
    const HtRankDispatch& rank = expected.ranks[0];
    const size_t num_rows = rank.rows.size() + 2;
    tokens.assign(num_rows * c.input_token_bytes(), kUntouched);
    for (size_t row_idx = 0; row_idx < rank.rows.size(); ++row_idx) {
      const auto token = rank.rows[row_idx];
      for (size_t i = 0; i < c.input_token_bytes(); ++i) {
        tokens[row_idx * c.input_token_bytes() + i] =
            token ? c.tokens[token->rank][token->token_idx * c.input_token_bytes() + i] : 0;
      }
    }
    topk_idx = rank.topk_idx;
    topk_weights = rank.topk_weights;
  }

  std::string check(bool is_backward = false) const {
    const HtDispatchView view{tokens, {}, topk_idx, topk_weights, is_backward};
    return check_ht_dispatch(c, expected, 0, view, kUntouched);
  }

  HtCase c;
  HtDispatch expected;
  std::vector<uint8_t> tokens;
  std::vector<int64_t> topk_idx;
  std::vector<float> topk_weights;
};

HtCase aligned_case() {
  HtCase c = small_ht_case(HtLayout::kExpertMajor);
  c.alignment = 4;
  return c;
}

TEST(CheckHtDispatch, AcceptsWhatTheModelSays) {
  EXPECT_EQ(Outputs(small_ht_case(HtLayout::kFlat)).check(), "");
  EXPECT_EQ(Outputs(aligned_case()).check(), "");
  EXPECT_EQ(Outputs(aligned_case()).check(/*is_backward=*/true), "");
}

TEST(CheckHtDispatch, FindsAWrongByteOfAToken) {
  Outputs outputs(small_ht_case(HtLayout::kFlat));
  outputs.tokens[2 * 4 + 3] ^= 1;
  EXPECT_THAT(outputs.check(), HasSubstr("rank 0, tokens, row 2: byte 3 is"));
}

TEST(CheckHtDispatch, FindsAWriteToARowToSpare) {
  Outputs outputs(small_ht_case(HtLayout::kFlat));
  outputs.tokens[4 * 4] = 0;
  EXPECT_THAT(outputs.check(), HasSubstr("row 4 (dead, must stay untouched)"));
}

TEST(CheckHtDispatch, FindsPaddingThatIsNotZero) {
  Outputs outputs(aligned_case());
  outputs.tokens[3 * 4 + 1] = kUntouched;
  EXPECT_THAT(outputs.check(), HasSubstr("tokens, row 3: byte 1 is 165, expected 0"));
  outputs = Outputs(aligned_case());
  outputs.topk_weights[3] = 1;
  EXPECT_THAT(outputs.check(), HasSubstr("topk_weights, row 3"));
}

TEST(CheckHtDispatch, FindsWrongEntries) {
  Outputs outputs(small_ht_case(HtLayout::kFlat));
  outputs.topk_idx[1] = 0;
  EXPECT_THAT(outputs.check(), HasSubstr("topk_idx, row 0: byte 8"));
  EXPECT_EQ(outputs.check(/*is_backward=*/true), "");
  outputs = Outputs(small_ht_case(HtLayout::kFlat));
  outputs.topk_weights[3] = 4;  // the first weight of a duplicate
  EXPECT_THAT(outputs.check(), HasSubstr("topk_weights, row 1"));
}

TEST(CheckHtDispatch, FindsTooFewRows) {
  Outputs outputs(small_ht_case(HtLayout::kFlat));
  outputs.tokens.resize(3 * 4);
  EXPECT_THAT(outputs.check(), HasSubstr("3 rows, expected at least 4"));
}

TEST(CheckHtDispatch, ComparesForwardedScales) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.dispatch_recipe = DispatchRecipe::kForward;
  c.scale_dtype = DType::kUint8;
  c.scale_width = 1;
  c.scales = {{11, 12, 13}, {14, 15}};
  const Outputs outputs(c);
  std::vector<uint8_t> scales{11, 12, 14, 15, kUntouched};
  HtDispatchView view{outputs.tokens, scales, outputs.topk_idx, outputs.topk_weights};
  EXPECT_EQ(check_ht_dispatch(c, outputs.expected, 0, view, kUntouched), "");
  scales[2] = 13;
  EXPECT_THAT(check_ht_dispatch(c, outputs.expected, 0, view, kUntouched), HasSubstr("scales, row 2"));
}

TEST(CheckHtCounters, ComparesWhatWasAskedFor) {
  const HtDispatch expected = expected_ht_dispatch(aligned_case());
  const auto check = [&](std::vector<int64_t> counters, std::vector<int64_t> offsets, std::vector<int64_t> total) {
    return check_ht_counters(expected, 0, {counters, offsets, total}, kUntouchedCounter);
  };
  EXPECT_EQ(check({}, {}, {}), "");
  EXPECT_EQ(check({4, 4, kUntouchedCounter}, {0, 4}, {8, kUntouchedCounter}), "");
  EXPECT_THAT(check({4, 3}, {0, 4}, {8}), HasSubstr("expert_counters[1] is 3, expected 4"));
  EXPECT_THAT(check({4, 4, 0}, {0, 4}, {8}), HasSubstr("expert_counters[2] is 0, expected -77"));
  EXPECT_THAT(check({4}, {0, 4}, {8}), HasSubstr("too few"));
  EXPECT_THAT(check({}, {0, 3}, {8}), HasSubstr("expert_offsets[1]"));
  EXPECT_THAT(check({}, {}, {7}), HasSubstr("recv_total_counter[0] is 7, expected 8"));
}

TEST(CheckHtGradients, ComparesBits) {
  const HtCase c = small_ht_case(HtLayout::kFlat);
  std::vector<float> wanted(9, 0.0f);
  std::vector<float> actual = wanted;
  EXPECT_EQ(check_ht_gradients(c, 0, wanted, actual), "");
  actual[4] = -0.0f;
  EXPECT_THAT(check_ht_gradients(c, 0, wanted, actual), HasSubstr("weight gradients, row 1: byte 7"));
  actual.pop_back();
  EXPECT_THAT(check_ht_gradients(c, 0, wanted, actual), HasSubstr("the buffer has 32 bytes"));
}

}  // namespace
}  // namespace switchyard::oracle
