// Every combination of layout, memory kind, staging and recipe on 1, 2, 3, 4 and 8 ranks, each with two draws of sizes,
// routing, fill and index form. The list is the same on every run; ctest runs it one rank count at a time.
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <set>

#include "ep/draw.hpp"
#include "ep/ll_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::CombineRecipe;
using oracle::DispatchRecipe;
using oracle::Fill;
using oracle::Layout;
using oracle::Routing;
using oracle::Shape;

constexpr int kRankCounts[] = {1, 2, 3, 4, 8};
constexpr size_t kMinNumCases = 1'500;
constexpr int kNumDraws = 2;
// Bytes of the dense tensors of all ranks: tokens are left out until a case fits, so that the list stays quick.
constexpr size_t kMaxCaseBytes = 3u << 20;

constexpr int kTopks[] = {1, 2, 5, 8, 9, 31, 33, 64};
constexpr int kNumTokens[] = {1, 2, 3, 7, 16, 33, 64, 127, 130};
// Row widths in units of 16 bytes: one vector, odd numbers, cache lines and beyond, a real model.
constexpr int kRowUnits[] = {1, 3, 7, 8, 33, 66, 128, 448};

struct Recipe {
  DispatchRecipe dispatch = DispatchRecipe::kNone;
  DType dtype = DType::kBfloat16;
  DType scale_dtype = DType::kFloat32;
  bool round_scales = false;
  CombineRecipe combine = CombineRecipe::kNone;
  DType combine_dtype = DType::kBfloat16;
};

std::vector<Recipe> all_recipes() {
  std::vector<Recipe> recipes;
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16, DType::kFloat32}) {
    recipes.push_back({.dtype = dtype, .combine_dtype = dtype});
  }
  for (const DType dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kFloat4x2, DType::kBfloat16}) {
    for (const DType scale_dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat8E4M3,
                                    DType::kFloat8E5M2, DType::kUint8}) {
      recipes.push_back({.dispatch = DispatchRecipe::kForward, .dtype = dtype, .scale_dtype = scale_dtype});
    }
  }
  for (const bool round_scales : {false, true}) {
    recipes.push_back({.dispatch = DispatchRecipe::kDsFp8, .round_scales = round_scales});
  }
  recipes.push_back({.combine = CombineRecipe::kNvfp4});
  recipes.push_back({.dispatch = DispatchRecipe::kDsFp8, .combine = CombineRecipe::kNvfp4});
  return recipes;
}

struct MatrixCase {
  Shape shape;
  Routing routing;
  Fill fill;
  LlMode mode;
  uint64_t seed;

  std::string name() const {
    return text(describe(shape, routing, fill), mode.windows ? ", windows" : "", mode.staged ? ", staged" : "",
                ", seed ", seed);
  }
};

// Widths that the recipe allows, as near as possible to `units` of 16 bytes.
void set_widths(Shape& shape, const Recipe& recipe, int units) {
  const int element_bytes = int(dtype_bytes(recipe.dtype));
  shape.hidden = units * 16 / element_bytes;
  if (recipe.dispatch == DispatchRecipe::kDsFp8) shape.hidden = (shape.hidden + 127) / 128 * 128;
  if (recipe.combine == CombineRecipe::kNvfp4) shape.hidden = (shape.hidden + 31) / 32 * 32;
  if (recipe.dispatch == DispatchRecipe::kForward) {
    const int scale_units = std::max(1, units / 8);
    shape.scale_width = scale_units * 16 / int(dtype_bytes(recipe.scale_dtype));
    // What was sent as FP8 or FP4 comes back in BF16, twice or four times as wide.
    if (recipe.dtype == DType::kFloat4x2) shape.combine_hidden = 2 * shape.hidden;
  }
}

// Of the dense tensors that the harness compares, on all ranks.
size_t dense_bytes(const Shape& shape) {
  size_t num_rows = 0;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    num_rows += size_t(shape.num_blocks(rank)) * size_t(shape.rows_per_block());
  }
  return num_rows * (shape.output_token_bytes() + shape.output_scale_bytes() + shape.combine_row_bytes());
}

MatrixCase make_matrix_case(uint64_t seed, int num_ranks, Layout layout, const Recipe& recipe, LlMode mode) {
  Draw draw(seed);
  Shape shape;
  shape.num_ranks = num_ranks;
  shape.layout = layout;
  shape.topk = draw.one_of(kTopks);
  shape.num_experts = draw_num_experts(draw, num_ranks, shape.topk);
  shape.dispatch_recipe = recipe.dispatch;
  shape.dtype = recipe.dtype;
  shape.scale_dtype = recipe.scale_dtype;
  shape.round_scales = recipe.round_scales;
  shape.combine_recipe = recipe.combine;
  shape.combine_dtype = recipe.combine_dtype;
  shape.id_kind = draw.flip() ? oracle::IdKind::kGlobal : oracle::IdKind::kLocal;
  shape.int32_indices = draw.flip();
  set_widths(shape, recipe, draw.one_of(kRowUnits));
  shape.max_tokens = draw.one_of(kNumTokens);
  while (shape.max_tokens > 1 && dense_bytes(shape) > kMaxCaseBytes) shape.max_tokens /= 2;
  mode.num_rounds = draw.between(1, 3);
  return {shape, draw.one_of(oracle::kAllRoutings), draw.one_of(oracle::kAllFills), mode, seed};
}

std::vector<MatrixCase> cases_for(int num_ranks) {
  std::vector<MatrixCase> cases;
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    for (const bool windows : {false, true}) {
      for (const bool staged : {false, true}) {
        for (const Recipe& recipe : all_recipes()) {
          for (int draw = 0; draw < kNumDraws; ++draw) {
            const uint64_t seed = uint64_t(num_ranks) * 100'000 + cases.size();
            cases.push_back(make_matrix_case(seed, num_ranks, layout, recipe, {.windows = windows, .staged = staged}));
          }
        }
      }
    }
  }
  return cases;
}

class LowLatencyMatrix : public ::testing::TestWithParam<int> {};

TEST_P(LowLatencyMatrix, EveryCaseMatchesTheOracle) {
  ThreadRanks ranks(GetParam());
  size_t num_passed = 0;
  for (const MatrixCase& matrix_case : cases_for(ranks.size())) {
    const LlScenario scenario =
        make_scenario(matrix_case.seed, matrix_case.shape, matrix_case.routing, matrix_case.fill);
    ranks.on_all([&](int rank) {
      EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, matrix_case.mode), "");
    });
    // A failure ends the communicator.
    if (HasFailure()) FAIL() << "after " << num_passed << " cases: " << matrix_case.name();
    ++num_passed;
  }
  std::cout << num_passed << " cases on " << ranks.size() << " ranks\n";
}

INSTANTIATE_TEST_SUITE_P(Ranks, LowLatencyMatrix, ::testing::ValuesIn(kRankCounts),
                         ::testing::PrintToStringParamName());

TEST(LowLatencyMatrixList, IsLongEnough) {
  size_t num_cases = 0;
  for (const int num_ranks : kRankCounts) num_cases += cases_for(num_ranks).size();
  std::cout << num_cases << " cases in all\n";
  EXPECT_GE(num_cases, kMinNumCases);
}

// For each layout and memory kind, on each number of ranks: no value of any list is left out.
TEST(LowLatencyMatrixList, HasEveryValueInEveryPath) {
  for (const int num_ranks : kRankCounts) {
    std::set<std::tuple<Layout, bool, std::string>> seen;
    for (const MatrixCase& m : cases_for(num_ranks)) {
      const auto note = [&](const std::string& value) { seen.insert({m.shape.layout, m.mode.windows, value}); };
      note(text("top-k ", m.shape.topk));
      note(oracle::routing_name(m.routing));
      note(oracle::fill_name(m.fill));
      note(text("int32 ", m.shape.int32_indices));
      note(text("global ", m.shape.id_kind == oracle::IdKind::kGlobal));
      note(text("row bytes ", m.shape.input_token_bytes()));
      note(text("tokens ", m.shape.max_tokens));
      note(m.shape.num_experts % num_ranks != 0 ? "uneven experts" : "even experts");
      if (m.shape.num_experts < num_ranks) note("fewer experts than ranks");
    }
    for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
      for (const bool windows : {false, true}) {
        const auto expect = [&](const std::string& value) {
          EXPECT_TRUE(seen.contains({layout, windows, value})) << num_ranks << " ranks, " << windows << ": " << value;
        };
        for (const int topk : kTopks) expect(text("top-k ", topk));
        for (const Routing routing : oracle::kAllRoutings) expect(oracle::routing_name(routing));
        for (const Fill fill : oracle::kAllFills) expect(oracle::fill_name(fill));
        for (const int units : kRowUnits) expect(text("row bytes ", units * 16));
        for (const int num_tokens : kNumTokens) expect(text("tokens ", num_tokens));
        for (const char* flag : {"int32 0", "int32 1", "global 0", "global 1", "even experts"}) expect(flag);
        if (num_ranks > 1) expect("uneven experts");
        if (num_ranks > 2) expect("fewer experts than ranks");
      }
    }
  }
}

}  // namespace
}  // namespace switchyard::testing
