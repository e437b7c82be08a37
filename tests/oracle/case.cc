#include "oracle/case.hpp"

#include <algorithm>
#include <sstream>

#include "oracle/quantise.hpp"

namespace switchyard::oracle {
namespace {

template <class... Parts>
std::string join(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

bool is_accumulated(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

std::string shape_fault(const Shape& s) {
  if (s.num_ranks < 1 || s.num_experts < 1 || s.topk < 1 || s.hidden < 1 || s.max_tokens < 1) {
    return "num_ranks, num_experts, topk, hidden and max_tokens must be positive";
  }
  if (s.dispatch_recipe == DispatchRecipe::kDsFp8 && s.dtype != DType::kBfloat16) return "kDsFp8 takes BF16 tokens";
  if (s.dispatch_recipe == DispatchRecipe::kForward && s.scale_width < 1) return "kForward needs scale_width";
  if (!is_accumulated(s.combine_dtype)) return join("combine_dtype is ", dtype_name(s.combine_dtype));
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

std::string rank_fault(const Case& c, int rank) {
  if (c.num_tokens[rank] < 0 || c.num_tokens[rank] > c.max_tokens) {
    return join("rank ", rank, " has ", c.num_tokens[rank], " tokens, allowed 0..", c.max_tokens);
  }
  const auto num_tokens = static_cast<size_t>(c.num_tokens[rank]);
  const size_t num_entries = num_tokens * c.topk;
  if (c.topk_idx[rank].size() != num_entries || c.topk_weights[rank].size() != num_entries ||
      c.tokens[rank].size() != num_tokens * c.input_token_bytes()) {
    return join("rank ", rank, ": topk_idx, topk_weights or tokens do not fit ", num_tokens, " tokens");
  }
  if (c.input_scale_bytes() != 0 && c.scales[rank].size() != num_tokens * c.input_scale_bytes()) {
    return join("rank ", rank, ": scales do not fit ", num_tokens, " tokens");
  }
  for (int64_t expert : c.topk_idx[rank]) {
    if (expert < -1 || expert >= c.num_experts) {
      return join("rank ", rank, " names expert ", expert, ", allowed -1..", c.num_experts - 1);
    }
  }
  return "";
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

int Shape::num_local(int rank) const { return num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0); }

int Shape::expert_first(int rank) const {
  int first = 0;
  for (int before = 0; before < rank; ++before) first += num_local(before);
  return first;
}

int Shape::owner(int64_t expert) const {
  int rank = 0;
  for (int64_t end = num_local(0); expert >= end; end += num_local(rank)) ++rank;
  return rank;
}

int Shape::local_id(int64_t expert) const { return static_cast<int>(expert) - expert_first(owner(expert)); }

int Shape::num_blocks(int rank) const { return layout == Layout::kExpertMajor ? num_local(rank) : num_ranks; }

int Shape::rows_per_block() const { return layout == Layout::kExpertMajor ? num_ranks * max_tokens : max_tokens; }

size_t Shape::input_token_bytes() const { return hidden * dtype_bytes(dtype); }

size_t Shape::input_scale_bytes() const {
  return dispatch_recipe == DispatchRecipe::kForward ? scale_width * dtype_bytes(scale_dtype) : 0;
}

size_t Shape::output_token_bytes() const {
  return dispatch_recipe == DispatchRecipe::kDsFp8 ? static_cast<size_t>(hidden) : input_token_bytes();
}

size_t Shape::output_scale_bytes() const {
  if (dispatch_recipe != DispatchRecipe::kDsFp8) return input_scale_bytes();
  return (hidden + kFp8GroupElements - 1) / kFp8GroupElements * sizeof(float);
}

size_t Shape::combine_row_bytes() const {
  return (combine_hidden != 0 ? combine_hidden : hidden) * dtype_bytes(combine_dtype);
}

std::string describe_fault(const Case& c) {
  if (std::string fault = shape_fault(c); !fault.empty()) return fault;
  const auto num_ranks = static_cast<size_t>(c.num_ranks);
  if (c.num_tokens.size() != num_ranks || c.topk_idx.size() != num_ranks || c.topk_weights.size() != num_ranks ||
      c.tokens.size() != num_ranks || (c.input_scale_bytes() != 0 && c.scales.size() != num_ranks)) {
    return join("every input needs one entry for each of the ", num_ranks, " ranks");
  }
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    if (std::string fault = rank_fault(c, rank); !fault.empty()) return fault;
  }
  for (const Masks* masks : {&c.mask, &c.combine_mask}) {
    if (std::string fault = mask_fault(*masks, c.num_ranks); !fault.empty()) return fault;
  }
  return capacity_fault(c);
}

}  // namespace switchyard::oracle
