#include "oracle/case.hpp"

#include <algorithm>

#include "oracle/quantise.hpp"

namespace switchyard::oracle {
namespace {

std::string recipe_fault(const Shape& s) {
  if (s.dispatch_recipe == DispatchRecipe::kDsFp8 && s.dtype != DType::kBfloat16) return "kDsFp8 takes BF16 tokens";
  const int combine_hidden = s.combine_hidden != 0 ? s.combine_hidden : s.hidden;
  if (s.combine_recipe == CombineRecipe::kNvfp4 &&
      (s.combine_dtype != DType::kBfloat16 || combine_hidden % kNvfp4BlockElements != 0)) {
    return "kNvfp4 takes BF16 rows of whole blocks of 16 elements";
  }
  return "";
}

std::string mask_fault(const Masks& masks, int num_ranks) {
  const auto whole = [&](const auto& list) { return list.size() == static_cast<size_t>(num_ranks); };
  if (masks.empty() || (whole(masks) && std::all_of(masks.begin(), masks.end(), whole))) return "";
  return "a mask needs num_ranks rows of num_ranks entries, or none";
}

// Counted without the masks: what a mask keeps away now may arrive with the same routing later.
std::string capacity_fault(const Case& c) {
  if (c.layout != Layout::kExpertMajor) return "";
  std::vector<int64_t> num_rows(c.num_experts);
  for (const auto& entries : c.topk_idx) {
    for (int64_t expert : entries) {
      if (expert >= 0 && ++num_rows[expert] > c.rows_per_block()) {
        return join("expert ", expert, " gets more than the ", c.rows_per_block(), " rows its block has");
      }
    }
  }
  return "";
}

}  // namespace

int Shape::num_blocks(int rank) const { return layout == Layout::kExpertMajor ? num_local(rank) : num_ranks; }

int Shape::rows_per_block() const { return layout == Layout::kExpertMajor ? num_ranks * max_tokens : max_tokens; }

size_t Shape::output_token_bytes() const {
  return dispatch_recipe == DispatchRecipe::kDsFp8 ? static_cast<size_t>(hidden) : input_token_bytes();
}

size_t Shape::output_scale_bytes() const {
  if (dispatch_recipe != DispatchRecipe::kDsFp8) return input_scale_bytes();
  return (hidden + kFp8GroupElements - 1) / kFp8GroupElements * sizeof(float);
}

std::string describe_fault(const Case& c) {
  std::string fault = describe_shape_fault(c);
  if (fault.empty()) fault = recipe_fault(c);
  if (fault.empty()) fault = describe_inputs_fault(c, c);
  for (const Masks* masks : {&c.mask, &c.combine_mask}) {
    if (fault.empty()) fault = mask_fault(*masks, c.num_ranks);
  }
  return fault.empty() ? capacity_fault(c) : fault;
}

}  // namespace switchyard::oracle
