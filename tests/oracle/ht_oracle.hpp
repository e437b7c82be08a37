// The model of high-throughput update, dispatch and combine, forward and backward: what every rank must end up with,
// worked out over all ranks at once by plain loops. Tests run the library and compare byte for byte (ht_check.hpp).
//
// A token names an expert once, however often its entries do; the last of their weights counts. Rows are ordered by
// (source rank, token), in the whole output or inside an expert's zone.
//
// THREADS    pure functions over values.
// OWNERSHIP  everything is a value.
// ERRORS     an inconsistent case throws std::invalid_argument with describe_fault()'s text, which fails the test; so
//            does asking for the results of a case that overflows and traps, which has none.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "oracle/ht_case.hpp"

namespace switchyard::oracle {

struct HtRankDispatch {
  int64_t num_total = 0;                 // recv_total_counter: rows before any were dropped
  std::vector<int64_t> expert_counters;  // by local expert: rows that hit it, or those of its zone
  std::vector<int64_t> expert_offsets;   // by local expert: where its zone starts; expert-major only
  // By slot: whose token it is; nothing: padding, which is zero. Rows past the end are left untouched.
  std::vector<std::optional<TokenRef>> rows;
  // Flat only, [row, topk]: the experts of this rank that the row's token names, ascending, then -1.
  std::vector<int64_t> topk_idx;
  // Flat: [row, topk], of the experts in topk_idx, then 0. Expert-major: one a row, padding 0.
  std::vector<float> topk_weights;
};

struct HtOverflowing {
  int rank = 0;
  int64_t num_total = 0;
  bool operator==(const HtOverflowing&) const = default;
};

struct HtDispatch {
  std::vector<HtRankDispatch> ranks;
  // [source rank][token * topk + k]: the row at the rank of that entry's expert; -1: none, or dropped.
  std::vector<std::vector<int64_t>> slots;
};

// Ranks whose rows exceed the budget. With kTrap any such rank makes the update fail everywhere.
std::vector<HtOverflowing> find_overflowing(const HtCase& c);
inline bool traps(const HtCase& c) { return c.overflow == Overflow::kTrap && !find_overflowing(c).empty(); }

// The backward dispatch brings the same rows, without topk_idx and topk_weights.
HtDispatch expected_ht_dispatch(const HtCase& c);

// What experts return: by rank, one for every row, padding included.
struct HtExpertOutputs {
  std::vector<std::vector<uint8_t>> rows;            // [rank] rows of combine_row_bytes()
  std::vector<std::vector<float>> weight_gradients;  // [rank][row * weights_per_row() + i], beside topk_weights
};

struct HtCombine {
  // [rank] rows of combine_row_bytes(), num_tokens[rank] of them. Per element FP32, starting from 0: one pass over the
  // token's entries that have a row. A row of the own node is added where it is met first; where one of another node is
  // met first, the sum of all rows there, worked out in the same way and rounded to the combine's type, is added. One
  // rounding at the end.
  std::vector<std::vector<uint8_t>> tokens;
  // [rank][token * topk + k], backward only: the gradient that the expert of the entry gave; 0 without one.
  std::vector<std::vector<float>> weight_gradients;
};
HtCombine expected_ht_combine(const HtCase& c, const HtDispatch& dispatch, const HtExpertOutputs& outputs);

}  // namespace switchyard::oracle
