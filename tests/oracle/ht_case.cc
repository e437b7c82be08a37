#include "oracle/ht_case.hpp"

#include <algorithm>

namespace switchyard::oracle {
namespace {

std::string ht_shape_fault(const HtShape& s) {
  if (s.dispatch_recipe == DispatchRecipe::kDsFp8) return "kDsFp8 is for low latency only";
  if (s.budget != 0 && s.budget < s.max_tokens) {
    return join("budget is ", s.budget, ", allowed 0 or at least max_tokens, ", s.max_tokens);
  }
  if (s.budget == 0 && s.overflow == Overflow::kDrop) return "kDrop needs a budget";
  if (s.alignment < 0 || (s.alignment & (s.alignment - 1)) != 0) {
    return join("alignment is ", s.alignment, ", allowed are powers of two");
  }
  if (s.node_of_rank.empty()) return "";
  if (s.node_of_rank.size() != static_cast<size_t>(s.num_ranks)) return "node_of_rank needs one entry a rank, or none";
  return std::ranges::is_sorted(s.node_of_rank) ? "" : "node_of_rank must ascend";
}

}  // namespace

int64_t HtShape::padded(int64_t num_rows) const {
  const int64_t unit = std::max(alignment, 1);
  return (num_rows + unit - 1) / unit * unit;
}

std::string describe_fault(const HtCase& c) {
  std::string fault = describe_shape_fault(c);
  if (fault.empty()) fault = ht_shape_fault(c);
  return fault.empty() ? describe_inputs_fault(c, c) : fault;
}

}  // namespace switchyard::oracle
