#include "oracle/exchange.hpp"

namespace switchyard::oracle {
namespace {

bool is_accumulated(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

std::string rank_fault(const ExchangeShape& s, const ExchangeInputs& inputs, int rank) {
  if (inputs.num_tokens[rank] < 0 || inputs.num_tokens[rank] > s.max_tokens) {
    return join("rank ", rank, " has ", inputs.num_tokens[rank], " tokens, allowed 0..", s.max_tokens);
  }
  const auto num_tokens = static_cast<size_t>(inputs.num_tokens[rank]);
  const size_t num_entries = num_tokens * s.topk;
  if (inputs.topk_idx[rank].size() != num_entries || inputs.topk_weights[rank].size() != num_entries ||
      inputs.tokens[rank].size() != num_tokens * s.input_token_bytes()) {
    return join("rank ", rank, ": topk_idx, topk_weights or tokens do not fit ", num_tokens, " tokens");
  }
  if (s.input_scale_bytes() != 0 && inputs.scales[rank].size() != num_tokens * s.input_scale_bytes()) {
    return join("rank ", rank, ": scales do not fit ", num_tokens, " tokens");
  }
  for (int64_t expert : inputs.topk_idx[rank]) {
    if (expert < -1 || expert >= s.num_experts) {
      return join("rank ", rank, " names expert ", expert, ", allowed -1..", s.num_experts - 1);
    }
  }
  return "";
}

}  // namespace

int ExchangeShape::num_local(int rank) const {
  return num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
}

int ExchangeShape::expert_first(int rank) const {
  int first = 0;
  for (int before = 0; before < rank; ++before) first += num_local(before);
  return first;
}

int ExchangeShape::owner(int64_t expert) const {
  int rank = 0;
  for (int64_t end = num_local(0); expert >= end; end += num_local(rank)) ++rank;
  return rank;
}

int ExchangeShape::local_id(int64_t expert) const { return static_cast<int>(expert) - expert_first(owner(expert)); }

size_t ExchangeShape::input_token_bytes() const { return hidden * dtype_bytes(dtype); }

size_t ExchangeShape::input_scale_bytes() const {
  return dispatch_recipe == DispatchRecipe::kForward ? scale_width * dtype_bytes(scale_dtype) : 0;
}

size_t ExchangeShape::combine_row_bytes() const {
  return (combine_hidden != 0 ? combine_hidden : hidden) * dtype_bytes(combine_dtype);
}

std::string describe_shape_fault(const ExchangeShape& s) {
  if (s.num_ranks < 1 || s.num_experts < 1 || s.topk < 1 || s.hidden < 1 || s.max_tokens < 1) {
    return "num_ranks, num_experts, topk, hidden and max_tokens must be positive";
  }
  if (s.dispatch_recipe == DispatchRecipe::kForward && s.scale_width < 1) return "kForward needs scale_width";
  if (!is_accumulated(s.combine_dtype)) return join("combine_dtype is ", dtype_name(s.combine_dtype));
  return "";
}

std::string describe_inputs_fault(const ExchangeShape& s, const ExchangeInputs& inputs) {
  const auto num_ranks = static_cast<size_t>(s.num_ranks);
  if (inputs.num_tokens.size() != num_ranks || inputs.topk_idx.size() != num_ranks ||
      inputs.topk_weights.size() != num_ranks || inputs.tokens.size() != num_ranks ||
      (s.input_scale_bytes() != 0 && inputs.scales.size() != num_ranks)) {
    return join("every input needs one entry for each of the ", num_ranks, " ranks");
  }
  for (int rank = 0; rank < s.num_ranks; ++rank) {
    if (std::string fault = rank_fault(s, inputs, rank); !fault.empty()) return fault;
  }
  return "";
}

}  // namespace switchyard::oracle
