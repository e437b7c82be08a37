#include "oracle/generators.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "oracle/float_formats.hpp"

namespace switchyard::oracle {
namespace {

Shape medium_shape() {
  Shape shape;
  shape.num_ranks = 3;
  shape.num_experts = 10;
  shape.topk = 3;
  shape.hidden = 256;
  shape.max_tokens = 20;
  return shape;
}

int64_t num_valid(const Case& c) {
  int64_t count = 0;
  for (const auto& entries : c.topk_idx) count += std::ranges::count_if(entries, [](int64_t e) { return e >= 0; });
  return count;
}

bool names_an_expert_twice(const Case& c) {
  for (const auto& entries : c.topk_idx) {
    for (size_t first = 0; first < entries.size(); first += c.topk) {
      std::multiset<int64_t> experts(entries.begin() + first, entries.begin() + first + c.topk);
      for (int64_t expert : experts) {
        if (expert >= 0 && experts.count(expert) > 1) return true;
      }
    }
  }
  return false;
}

TEST(MakeCase, IsSoundForEveryPatternFillAndLayout) {
  for (Routing routing : kAllRoutings) {
    for (Fill fill : kAllFills) {
      for (Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
        Shape shape = medium_shape();
        shape.layout = layout;
        for (uint64_t seed = 0; seed < 5; ++seed) {
          const Case c = make_case(seed, shape, routing, fill);
          EXPECT_EQ(describe_fault(c), "") << routing_name(routing) << ", " << fill_name(fill);
        }
      }
    }
  }
}

TEST(MakeCase, IsSoundForShapesAtTheEdges) {
  for (Routing routing : kAllRoutings) {
    for (auto [num_ranks, num_experts, topk] : {std::tuple{1, 1, 1}, {4, 2, 5}, {5, 7, 7}, {2, 3, 1}}) {
      Shape shape = medium_shape();
      shape.num_ranks = num_ranks;
      shape.num_experts = num_experts;
      shape.topk = topk;
      shape.max_tokens = 2;
      EXPECT_EQ(describe_fault(make_case(3, shape, routing, Fill::kFull)), "") << routing_name(routing);
    }
  }
}

TEST(MakeCase, RepeatsItselfForOneSeedAndVariesWithIt) {
  const Case first = make_case(5, medium_shape(), Routing::kUniform, Fill::kPartial);
  const Case again = make_case(5, medium_shape(), Routing::kUniform, Fill::kPartial);
  const Case other = make_case(6, medium_shape(), Routing::kUniform, Fill::kPartial);
  EXPECT_EQ(first.topk_idx, again.topk_idx);
  EXPECT_EQ(first.tokens, again.tokens);
  EXPECT_EQ(first.topk_weights, again.topk_weights);
  EXPECT_NE(first.tokens, other.tokens);
}

// From a separate implementation of the generator: should these change, so does every test that names a seed.
TEST(MakeCase, DrawsTheSameNumbersOnEveryMachine) {
  const Case c = make_case(1, medium_shape(), Routing::kUniform, Fill::kFull);
  const std::vector<int64_t> first_tokens(c.topk_idx[0].begin(), c.topk_idx[0].begin() + 6);
  EXPECT_EQ(first_tokens, (std::vector<int64_t>{2, 1, 8, 4, 7, 6}));
}

TEST(MakeCase, PatternsDoWhatTheirNamesSay) {
  const Shape shape = medium_shape();
  const int64_t num_tokens = 3 * 20;
  const Case uniform = make_case(1, shape, Routing::kUniform, Fill::kFull);
  EXPECT_EQ(num_valid(uniform), 3 * num_tokens);
  EXPECT_FALSE(names_an_expert_twice(uniform));

  const Case one_expert = make_case(1, shape, Routing::kOneExpert, Fill::kFull);
  std::set<int64_t> experts;
  for (const auto& entries : one_expert.topk_idx) experts.insert(entries.begin(), entries.end());
  EXPECT_EQ(experts.size(), 2u);  // the expert and -1
  EXPECT_EQ(num_valid(one_expert), num_tokens);

  const Case one_rank = make_case(1, shape, Routing::kOneRank, Fill::kFull);
  std::set<int> owners;
  for (const auto& entries : one_rank.topk_idx) {
    for (int64_t expert : entries) owners.insert(expert < 0 ? -1 : shape.owner(expert));
  }
  owners.erase(-1);
  EXPECT_EQ(owners.size(), 1u);

  EXPECT_TRUE(names_an_expert_twice(make_case(1, shape, Routing::kDuplicates, Fill::kFull)));
  EXPECT_EQ(num_valid(make_case(1, shape, Routing::kAllDropped, Fill::kFull)), 0);
  const int64_t num_kept = num_valid(make_case(1, shape, Routing::kSomeDropped, Fill::kFull));
  EXPECT_GT(num_kept, num_tokens);
  EXPECT_LT(num_kept, 3 * num_tokens);
}

TEST(MakeCase, ZipfPrefersTheFirstExperts) {
  const Case c = make_case(1, medium_shape(), Routing::kZipf, Fill::kFull);
  int64_t num_first = 0, num_last = 0;
  for (const auto& entries : c.topk_idx) {
    num_first += std::ranges::count(entries, 0);
    num_last += std::ranges::count(entries, 9);
  }
  EXPECT_GT(num_first, 2 * num_last);
  EXPECT_FALSE(names_an_expert_twice(c));
}

TEST(MakeCase, FillsRanksAsAsked) {
  EXPECT_EQ(make_case(1, medium_shape(), Routing::kUniform, Fill::kFull).num_tokens, (std::vector<int>{20, 20, 20}));
  const Case some_empty = make_case(1, medium_shape(), Routing::kUniform, Fill::kSomeEmpty);
  EXPECT_EQ(some_empty.num_tokens[0], 0);
  EXPECT_GT(some_empty.num_tokens[1], 0);
  EXPECT_EQ(some_empty.num_tokens[2], 0);
}

TEST(MakeExpertOutputs, IsFiniteWithSpecialsAndCombinesWithoutNan) {
  for (DType dtype : {DType::kBfloat16, DType::kFloat16, DType::kFloat32}) {
    Shape shape = medium_shape();
    shape.combine_dtype = dtype;
    const Case c = make_case(1, shape, Routing::kUniform, Fill::kFull);
    const Dispatch dispatch = expected_dispatch(c);
    const ExpertOutputs outputs = make_expert_outputs(2, c, dispatch);
    int num_zeros = 0, num_denormals = 0, num_large = 0, num_ordinary = 0;
    const float smallest_normal = dtype == DType::kFloat16 ? 0x1p-14f : 0x1p-126f;
    for (const auto& blocks : outputs.rows) {
      for (const auto& rows : blocks) {
        for (float value : decode_row(dtype, rows)) {
          ASSERT_TRUE(std::isfinite(value));
          const float magnitude = std::fabs(value);
          num_zeros += magnitude == 0;
          num_denormals += magnitude > 0 && magnitude < smallest_normal;
          num_large += magnitude > 60000.0f;
          num_ordinary += magnitude > 0.003f && magnitude < 256.0f;
        }
      }
    }
    EXPECT_GT(num_zeros, 0);
    EXPECT_GT(num_denormals, 0);
    EXPECT_GT(num_large, 0);
    EXPECT_GT(num_ordinary, num_zeros + num_denormals);
    for (const auto& rows : expected_combine(c, dispatch, outputs)) {
      for (float value : decode_row(dtype, rows)) ASSERT_FALSE(std::isnan(value));
    }
  }
}

TEST(MakeExpertOutputs, GivesNvfp4RowsFiniteGlobalScalesAndCombinesNearTheExactSum) {
  Shape shape = medium_shape();
  shape.combine_recipe = CombineRecipe::kNvfp4;
  Case c = make_case(1, shape, Routing::kUniform, Fill::kFull);
  const Dispatch dispatch = expected_dispatch(c);
  const ExpertOutputs outputs = make_expert_outputs(2, c, dispatch);
  const auto quantised = expected_combine(c, dispatch, outputs);
  c.combine_recipe = CombineRecipe::kNone;
  const auto exact = expected_combine(c, dispatch, outputs);
  double error = 0, norm = 0;
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    const auto quantised_values = decode_row(DType::kBfloat16, quantised[rank]);
    const auto exact_values = decode_row(DType::kBfloat16, exact[rank]);
    for (size_t i = 0; i < exact_values.size(); ++i) {
      if (std::fabs(exact_values[i]) > 1e6f) continue;
      ASSERT_TRUE(std::isfinite(quantised_values[i]));
      error += std::fabs(static_cast<double>(quantised_values[i]) - static_cast<double>(exact_values[i]));
      norm += std::fabs(static_cast<double>(exact_values[i]));
    }
  }
  EXPECT_LT(error, 0.25 * norm);
}

// The largest decoding shape: the model has to stay usable at the sizes the library is made for.
TEST(Oracle, HandlesTheLargestDecodingShape) {
  Shape shape;
  shape.num_ranks = 8;
  shape.num_experts = 256;
  shape.topk = 8;
  shape.hidden = 7168;
  shape.max_tokens = 128;
  const Case c = make_case(1, shape, Routing::kUniform, Fill::kFull);
  const Dispatch dispatch = expected_dispatch(c);
  const auto combined = expected_combine(c, dispatch, make_expert_outputs(2, c, dispatch));
  EXPECT_EQ(combined[7].size(), 128u * 7168 * 2);
}

}  // namespace
}  // namespace switchyard::oracle
