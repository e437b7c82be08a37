#include "oracle/recipe.hpp"

#include <algorithm>

namespace switchyard::oracle {
namespace {

size_t dense_bytes(const Shape& shape) {
  size_t num_rows = 0;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    num_rows += size_t(shape.num_blocks(rank)) * size_t(shape.rows_per_block());
  }
  return num_rows * (shape.output_token_bytes() + shape.output_scale_bytes() + shape.combine_row_bytes());
}

}  // namespace

void set_recipe(Shape& shape, const Recipe& recipe) {
  shape.dispatch_recipe = recipe.dispatch;
  shape.dtype = recipe.dtype;
  shape.scale_dtype = recipe.scale_dtype;
  shape.round_scales = recipe.round_scales;
  shape.combine_recipe = recipe.combine;
  shape.combine_dtype = recipe.combine_dtype;
}

void set_widths(Shape& shape, int units) {
  shape.hidden = units * 16 / int(dtype_bytes(shape.dtype));
  if (shape.dispatch_recipe == DispatchRecipe::kDsFp8) shape.hidden = (shape.hidden + 127) / 128 * 128;
  if (shape.combine_recipe == CombineRecipe::kNvfp4) shape.hidden = (shape.hidden + 31) / 32 * 32;
  if (shape.dispatch_recipe == DispatchRecipe::kForward) {
    shape.scale_width = std::max(1, units / 8) * 16 / int(dtype_bytes(shape.scale_dtype));
    // What was sent as FP4, two to a byte, comes back in BF16, twice as many.
    if (shape.dtype == DType::kFloat4x2) shape.combine_hidden = 2 * shape.hidden;
  }
}

void fit_tokens(Shape& shape, size_t max_bytes) {
  while (shape.max_tokens > 1 && dense_bytes(shape) > max_bytes) shape.max_tokens /= 2;
}

}  // namespace switchyard::oracle
