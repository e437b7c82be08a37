#include "oracle/ht_generators.hpp"

#include <algorithm>
#include <limits>

namespace switchyard::oracle {
namespace {

int64_t largest_total(HtCase c) {
  c.budget = 0;
  c.overflow = Overflow::kTrap;
  int64_t largest = 0;
  for (const HtRankDispatch& rank : expected_ht_dispatch(c).ranks) largest = std::max(largest, rank.num_total);
  return largest;
}

int64_t budget_for(Random& random, Budget budget, int64_t num_needed) {
  switch (budget) {
    case Budget::kEager: return 0;
    case Budget::kExact: return num_needed;
    case Budget::kGenerous: return num_needed + 1 + random.below(9);
    case Budget::kTight: return num_needed / 2 + random.below(3);
  }
  return 0;
}

}  // namespace

const char* budget_name(Budget budget) {
  switch (budget) {
    case Budget::kEager: return "eager";
    case Budget::kExact: return "exact";
    case Budget::kGenerous: return "generous";
    case Budget::kTight: return "tight";
  }
  return "unknown";
}

HtCase make_ht_case(uint64_t seed, const HtShape& shape, Routing routing, Fill fill, Budget budget) {
  Random random(seed);
  HtCase c{shape, make_inputs(random, shape, routing, fill)};
  if (routing == Routing::kDuplicates) {
    // Twice, so that some tokens name an expert three times.
    for (int pass = 0; pass < 2; ++pass) duplicate_some(random, shape, std::numeric_limits<int64_t>::max(), c);
  }
  if (budget == Budget::kEager) {
    c.budget = 0;
    c.overflow = Overflow::kTrap;
  } else {
    c.budget = static_cast<int>(std::max<int64_t>(budget_for(random, budget, largest_total(c)), c.max_tokens));
  }
  return c;
}

HtCase fit_to_budget(HtCase c) {
  for (int rank = c.num_ranks - 1; rank >= 0; --rank) {
    for (int token_idx = c.num_tokens[rank] - 1; token_idx >= 0 && !find_overflowing(c).empty(); --token_idx) {
      std::fill_n(c.topk_idx[rank].begin() + static_cast<ptrdiff_t>(token_idx) * c.topk, c.topk, -1);
    }
  }
  return c;
}

HtExpertOutputs make_ht_outputs(uint64_t seed, const HtCase& c, const HtDispatch& dispatch) {
  Random random(seed);
  HtExpertOutputs outputs;
  const size_t num_elements = c.combine_row_bytes() / dtype_bytes(c.combine_dtype);
  for (const HtRankDispatch& rank : dispatch.ranks) {
    std::vector<uint8_t>& rows = outputs.rows.emplace_back();
    std::vector<float>& gradients = outputs.weight_gradients.emplace_back();
    for (size_t row_idx = 0; row_idx < rank.rows.size(); ++row_idx) {
      const bool is_padding = !rank.rows[row_idx].has_value();
      const std::vector<uint8_t> row = is_padding ? std::vector<uint8_t>(c.combine_row_bytes(), 0xff)
                                                  : random_row(random, c.combine_dtype, num_elements);
      rows.insert(rows.end(), row.begin(), row.end());
      for (int i = 0; i < c.weights_per_row(); ++i) {
        const bool is_owned = c.layout == HtLayout::kFlat ? rank.topk_idx[row_idx * c.topk + i] >= 0 : !is_padding;
        gradients.push_back(is_owned ? random_weight(random) : std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  return outputs;
}

}  // namespace switchyard::oracle
