// Recipes of low-latency operations, for lists of cases: which types go together, and shapes that suit them.
#pragma once
#include "oracle/case.hpp"

namespace switchyard::oracle {

struct Recipe {
  DispatchRecipe dispatch = DispatchRecipe::kNone;
  DType dtype = DType::kBfloat16;
  DType scale_dtype = DType::kFloat32;
  bool round_scales = false;
  CombineRecipe combine = CombineRecipe::kNone;
  DType combine_dtype = DType::kBfloat16;
};

void set_recipe(Shape& shape, const Recipe& recipe);

// Widths that the shape's recipes allow, as near as possible to `units` of 16 bytes.
void set_widths(Shape& shape, int units);

// Halves the tokens until the dense tensors of all ranks, which are compared, take no more than this.
void fit_tokens(Shape& shape, size_t max_bytes);

}  // namespace switchyard::oracle
