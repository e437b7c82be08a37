#include "ep/ll_matrix.hpp"

#include <algorithm>

#include "ep/draw.hpp"

namespace switchyard::testing::ll_matrix {
namespace {

using oracle::CombineRecipe;
using oracle::DispatchRecipe;
using oracle::Layout;
using oracle::Shape;

constexpr int kNumDraws = 2;
// Bytes of the dense tensors of all ranks: tokens are left out until a case fits, so that the list stays quick.
constexpr size_t kMaxCaseBytes = 3u << 20;

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

Case make_case(uint64_t seed, int num_ranks, Layout layout, const Recipe& recipe, LlMode mode) {
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
