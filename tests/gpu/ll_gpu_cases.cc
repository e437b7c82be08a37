#include "gpu/ll_gpu_cases.hpp"

#include <algorithm>

namespace switchyard::testing {
namespace {

using oracle::CombineRecipe;
using oracle::DispatchRecipe;
using oracle::Layout;
using oracle::Shape;

struct Recipe {
  DType dtype = DType::kBfloat16;
  DispatchRecipe dispatch = DispatchRecipe::kNone;
  DType scale_dtype = DType::kFloat32;
  bool round_scales = false;
  CombineRecipe combine = CombineRecipe::kNone;
  DType combine_dtype = DType::kBfloat16;
};

constexpr Recipe kRecipes[] = {
    {},
    {.dtype = DType::kFloat16, .combine_dtype = DType::kFloat16},
    {.dtype = DType::kFloat32, .combine_dtype = DType::kFloat32},
    {.dtype = DType::kFloat8E4M3, .dispatch = DispatchRecipe::kForward},
    {.dtype = DType::kFloat8E5M2, .dispatch = DispatchRecipe::kForward, .scale_dtype = DType::kBfloat16},
    {.dtype = DType::kFloat4x2, .dispatch = DispatchRecipe::kForward, .scale_dtype = DType::kFloat8E4M3},
    {.dispatch = DispatchRecipe::kDsFp8},
    {.dispatch = DispatchRecipe::kDsFp8, .round_scales = true},
    {.combine = CombineRecipe::kNvfp4},
};

// Row widths in units of 16 bytes: less than a warp moves at once, odd, a whole round of loads, more than one.
constexpr int kRowUnits[] = {1, 3, 33, 256, 300, 896};
constexpr int kTopks[] = {1, 2, 5, 8, 33, 64};
constexpr int kTokens[] = {1, 7, 33, 130};
constexpr size_t kMaxBytes = size_t{16} << 20;  // of a case's outputs and expert results on all ranks

size_t dense_bytes(const Shape& shape) {
  size_t num_rows = 0;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    num_rows += size_t(shape.num_blocks(rank)) * size_t(shape.rows_per_block());
  }
  return num_rows * (shape.output_token_bytes() + shape.output_scale_bytes() + shape.combine_row_bytes());
}

void set_widths(Shape& shape, int units) {
  shape.hidden = units * 16 / int(dtype_bytes(shape.dtype));
  if (shape.dispatch_recipe == DispatchRecipe::kDsFp8) shape.hidden = (shape.hidden + 127) / 128 * 128;
  if (shape.combine_recipe == CombineRecipe::kNvfp4) shape.hidden = (shape.hidden + 31) / 32 * 32;
  if (shape.dtype == DType::kFloat4x2) shape.combine_hidden = 2 * shape.hidden;
  if (shape.dispatch_recipe == DispatchRecipe::kForward) {
    shape.scale_width = std::max(1, units / 8) * 16 / int(dtype_bytes(shape.scale_dtype));
  }
}

// `turn` chooses what is not nested; the lists' lengths and the recipes' differ, so that combinations change.
Shape make_shape(int num_ranks, Layout layout, const Recipe& recipe, size_t turn) {
  Shape shape;
  shape.num_ranks = num_ranks;
  shape.layout = layout;
  shape.dtype = recipe.dtype;
  shape.dispatch_recipe = recipe.dispatch;
  shape.scale_dtype = recipe.scale_dtype;
  shape.round_scales = recipe.round_scales;
  shape.combine_recipe = recipe.combine;
  shape.combine_dtype = recipe.combine_dtype;
  shape.topk = kTopks[turn % std::size(kTopks)];
  // Experts that divide by the ranks, that don't, and as few as possible.
  const int whole = (std::max(shape.topk, 2 * num_ranks) + num_ranks - 1) / num_ranks * num_ranks;
  shape.num_experts = turn % 3 == 0 ? whole : turn % 3 == 1 ? whole + 1 : shape.topk;
  shape.id_kind = turn % 2 ? oracle::IdKind::kGlobal : oracle::IdKind::kLocal;
  shape.int32_indices = turn / 2 % 2 != 0;
  set_widths(shape, kRowUnits[turn / 5 % std::size(kRowUnits)]);
  shape.max_tokens = kTokens[turn / 3 % std::size(kTokens)];
  while (shape.max_tokens > 1 && dense_bytes(shape) > kMaxBytes) shape.max_tokens /= 2;
  return shape;
}

}  // namespace

std::string GpuCase::name() const {
  return text(describe(shape, routing, fill), mode.windows ? ", windows" : ", plain", mode.staged ? ", staged" : "");
}

std::vector<GpuCase> gpu_cases(int num_ranks) {
  std::vector<GpuCase> cases;
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    for (const bool windows : {false, true}) {
      for (const bool staged : {false, true}) {
        for (const Recipe& recipe : kRecipes) {
          for (const oracle::Routing routing : oracle::kAllRoutings) {
            const size_t turn = cases.size();
            cases.push_back({.seed = uint64_t(num_ranks) * 10'000 + turn,
                             .shape = make_shape(num_ranks, layout, recipe, turn),
                             .routing = routing,
                             .fill = oracle::kAllFills[turn % std::size(oracle::kAllFills)],
                             .mode = {windows, staged, /*num_rounds=*/3, /*timeout_ns=*/20 * kSecond}});
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace switchyard::testing
