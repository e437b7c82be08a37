// The case that the hand-worked tests of the high-throughput model share: two ranks, four experts (0 1 | 2 3), top-3.
//
//   rank 0: token 0 -> 2 0 3   token 1 -> 1 1 -   token 2 -> nothing
//   rank 1: token 0 -> 0 1 2   token 1 -> 3 0 3
//
// Weights count up from 1. Element i of token t of rank r is 100 r + 10 t + i.
#pragma once
#include <vector>

#include "oracle/float_formats.hpp"
#include "oracle/ht_oracle.hpp"

namespace switchyard::oracle {

inline std::vector<uint8_t> bf16(const std::vector<float>& values) { return encode_row(DType::kBfloat16, values); }

inline HtCase small_ht_case(HtLayout layout) {
  HtCase c;
  c.num_ranks = 2;
  c.num_experts = 4;
  c.topk = 3;
  c.hidden = 2;
  c.max_tokens = 3;
  c.layout = layout;
  c.num_tokens = {3, 2};
  c.topk_idx = {{2, 0, 3, 1, 1, -1, -1, -1, -1}, {0, 1, 2, 3, 0, 3}};
  c.topk_weights = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {10, 11, 12, 13, 14, 15}};
  c.tokens = {bf16({0, 1, 10, 11, 20, 21}), bf16({100, 101, 110, 111})};
  return c;
}

inline HtCase small_drop_case(HtLayout layout, int budget) {
  HtCase c = small_ht_case(layout);
  c.budget = budget;
  c.overflow = Overflow::kDrop;
  return c;
}

}  // namespace switchyard::oracle
