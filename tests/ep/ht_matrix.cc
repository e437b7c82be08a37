#include "ep/ht_matrix.hpp"

#include <algorithm>

#include "ep/draw.hpp"

namespace switchyard::testing::ht_matrix {
namespace {

using oracle::Budget;
using oracle::DispatchRecipe;
using oracle::HtLayout;
using oracle::HtShape;
using oracle::Overflow;

// Bytes of the dense tensors of all ranks, if every token went everywhere: tokens are left out until a case fits.
constexpr size_t kMaxCaseBytes = 1u << 20;

struct Limit {
  Budget budget;
  Overflow overflow;
};
constexpr Limit kLimits[] = {{Budget::kEager, Overflow::kTrap},    {Budget::kExact, Overflow::kTrap},
                             {Budget::kGenerous, Overflow::kTrap}, {Budget::kTight, Overflow::kTrap},
                             {Budget::kExact, Overflow::kDrop},    {Budget::kGenerous, Overflow::kDrop},
                             {Budget::kTight, Overflow::kDrop}};

struct Recipe {
  DispatchRecipe dispatch = DispatchRecipe::kNone;
  DType dtype = DType::kBfloat16;
  DType combine_dtype = DType::kBfloat16;
};
constexpr Recipe kRecipes[] = {
    {.dtype = DType::kBfloat16, .combine_dtype = DType::kBfloat16},
    {.dtype = DType::kFloat16, .combine_dtype = DType::kFloat16},
    {.dtype = DType::kFloat32, .combine_dtype = DType::kFloat32},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat8E4M3},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat8E5M2},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat4x2},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kBfloat16},
};

void set_widths(Draw& draw, HtShape& shape, const Recipe& recipe) {
  const int units = draw.one_of(kRowUnits);
  shape.hidden = units * 16 / int(dtype_bytes(recipe.dtype));
  if (recipe.dispatch != DispatchRecipe::kForward) return;
  shape.scale_dtype = draw.one_of(kScaleTypes);
  shape.scale_width = std::max(1, units / 8) * 16 / int(dtype_bytes(shape.scale_dtype));
  // What was sent as FP4 comes back in BF16, four times as wide.
  if (recipe.dtype == DType::kFloat4x2) shape.combine_hidden = 2 * shape.hidden;
}

size_t most_bytes(const HtShape& shape) {
  const int rows_per_token = shape.layout == HtLayout::kFlat ? shape.num_ranks : shape.topk;
  const size_t row_bytes = shape.input_token_bytes() + shape.input_scale_bytes() + shape.combine_row_bytes();
  return size_t(shape.num_ranks) * size_t(shape.max_tokens) * size_t(rows_per_token) * row_bytes;
}

Case make_case(uint64_t seed, int num_ranks, HtLayout layout, const Limit& limit, const Recipe& recipe, bool windows) {
  Draw draw(seed);
  HtShape shape;
  shape.num_ranks = num_ranks;
  shape.layout = layout;
  shape.overflow = limit.overflow;
  shape.topk = draw.one_of(kTopks);
  shape.num_experts = draw_num_experts(draw, num_ranks, shape.topk);
  shape.dispatch_recipe = recipe.dispatch;
  shape.dtype = recipe.dtype;
  shape.combine_dtype = recipe.combine_dtype;
  shape.id_kind = draw.flip() ? oracle::IdKind::kGlobal : oracle::IdKind::kLocal;
  shape.int32_indices = draw.flip();
  if (layout == HtLayout::kExpertMajor) shape.alignment = draw.one_of(kAlignments);
  set_widths(draw, shape, recipe);
  shape.max_tokens = draw.one_of(kNumTokens);
  while (shape.max_tokens > 1 && most_bytes(shape) > kMaxCaseBytes) shape.max_tokens /= 2;
  HtMode mode;
  mode.windows = windows;
  mode.pipelined = draw.flip();
  mode.num_rounds = draw.between(1, 2);
  mode.updates_once = draw.flip();
  mode.num_spare_rows = draw.between(0, 2);
  mode.int64_counters = draw.flip();
  return {shape, draw.one_of(oracle::kAllRoutings), draw.one_of(oracle::kAllFills), limit.budget, mode, seed};
}

}  // namespace

std::vector<Case> cases_for(int num_ranks, const std::vector<int>& node_of_rank) {
  std::vector<Case> cases;
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const Limit& limit : kLimits) {
      for (const bool windows : {false, true}) {
        for (const Recipe& recipe : kRecipes) {
          const uint64_t seed = uint64_t(num_ranks) * 100'000 + cases.size();
          cases.push_back(make_case(seed, num_ranks, layout, limit, recipe, windows));
          cases.back().shape.node_of_rank = node_of_rank;
        }
      }
    }
  }
  return cases;
}

}  // namespace switchyard::testing::ht_matrix
