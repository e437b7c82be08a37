#include "ep/ll_matrix.hpp"

#include <algorithm>

#include "ep/draw.hpp"
#include "oracle/recipe.hpp"

namespace switchyard::testing::ll_matrix {
namespace {

using oracle::CombineRecipe;
using oracle::DispatchRecipe;
using oracle::Layout;
using oracle::Recipe;
using oracle::Shape;

constexpr int kNumDraws = 2;
// Bytes of the dense tensors of all ranks: tokens are left out until a case fits, so that the list stays quick.
constexpr size_t kMaxCaseBytes = 3u << 20;

std::vector<Recipe> all_recipes() {
  std::vector<Recipe> recipes;
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16, DType::kFloat32}) {
    recipes.push_back({.dtype = dtype, .combine_dtype = dtype});
  }
  for (const DType dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kFloat4x2, DType::kBfloat16}) {
    for (const DType scale_dtype :
         {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kUint8}) {
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

Case make_case(uint64_t seed, int num_ranks, Layout layout, const Recipe& recipe, LlMode mode) {
  Draw draw(seed);
  Shape shape;
  shape.num_ranks = num_ranks;
  shape.layout = layout;
  shape.topk = draw.one_of(kTopks);
  shape.num_experts = draw_num_experts(draw, num_ranks, shape.topk);
  set_recipe(shape, recipe);
  shape.id_kind = draw.flip() ? oracle::IdKind::kGlobal : oracle::IdKind::kLocal;
  shape.int32_indices = draw.flip();
  set_widths(shape, draw.one_of(kRowUnits));
  shape.max_tokens = draw.one_of(kNumTokens);
  fit_tokens(shape, kMaxCaseBytes);
  mode.num_rounds = draw.between(1, 3);
  return {shape, draw.one_of(oracle::kAllRoutings), draw.one_of(oracle::kAllFills), mode, seed};
}

}  // namespace

std::string Case::name() const {
  return text(describe(shape, routing, fill), mode.windows ? ", windows" : "", mode.staged ? ", staged" : "", ", seed ",
              seed);
}

std::vector<Case> cases_for(int num_ranks) {
  std::vector<Case> cases;
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    for (const bool windows : {false, true}) {
      for (const bool staged : {false, true}) {
        for (const Recipe& recipe : all_recipes()) {
          for (int draw = 0; draw < kNumDraws; ++draw) {
            const uint64_t seed = uint64_t(num_ranks) * 100'000 + cases.size();
            cases.push_back(make_case(seed, num_ranks, layout, recipe, {.windows = windows, .staged = staged}));
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace switchyard::testing::ll_matrix
