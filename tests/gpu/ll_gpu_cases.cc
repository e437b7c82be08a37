#include "gpu/ll_gpu_cases.hpp"

#include <algorithm>

#include "oracle/recipe.hpp"

namespace switchyard::testing {
namespace {

using oracle::CombineRecipe;
using oracle::DispatchRecipe;
using oracle::Layout;
using oracle::Recipe;
using oracle::Shape;

constexpr Recipe kRecipes[] = {
    {},
    {.dtype = DType::kFloat16, .combine_dtype = DType::kFloat16},
    {.dtype = DType::kFloat32, .combine_dtype = DType::kFloat32},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat8E4M3},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat8E5M2, .scale_dtype = DType::kBfloat16},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat4x2, .scale_dtype = DType::kFloat8E4M3},
    {.dispatch = DispatchRecipe::kDsFp8},
    {.dispatch = DispatchRecipe::kDsFp8, .round_scales = true},
    {.combine = CombineRecipe::kNvfp4},
};

// Row widths in units of 16 bytes: less than a warp moves at once, odd, a whole round of loads, more than one.
constexpr int kRowUnits[] = {1, 3, 33, 256, 300, 896};
constexpr int kTopks[] = {1, 2, 5, 8, 33, 64};
constexpr int kTokens[] = {1, 7, 33, 130};
constexpr size_t kMaxBytes = size_t{16} << 20;  // of a case's outputs and expert results on all ranks

// `turn` chooses what is not nested; the lists' lengths and the recipes' differ, so that combinations change.
Shape make_shape(int num_ranks, Layout layout, const Recipe& recipe, size_t turn) {
  Shape shape;
  shape.num_ranks = num_ranks;
  shape.layout = layout;
  set_recipe(shape, recipe);
  shape.topk = kTopks[turn % std::size(kTopks)];
  // Experts that divide by the ranks, that don't, and as few as possible.
  const int whole = (std::max(shape.topk, 2 * num_ranks) + num_ranks - 1) / num_ranks * num_ranks;
  shape.num_experts = turn % 3 == 0 ? whole : turn % 3 == 1 ? whole + 1 : shape.topk;
  shape.id_kind = turn % 2 ? oracle::IdKind::kGlobal : oracle::IdKind::kLocal;
  shape.int32_indices = turn / 2 % 2 != 0;
  set_widths(shape, kRowUnits[turn / 5 % std::size(kRowUnits)]);
  shape.max_tokens = kTokens[turn / 3 % std::size(kTokens)];
  fit_tokens(shape, kMaxBytes);
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
