// The model of low-latency dispatch and combine: what every rank must end up with, worked out over all ranks at once
// by plain loops, with arithmetic of its own. Tests run the library and compare byte for byte (dense.hpp).
//
// Order of output rows: inside an expert by (source rank, token, k), inside a source's block by token.
//
// THREADS    pure functions over values.
// OWNERSHIP  everything is a value. Outputs are kept as lists of live rows, never in their full shape: an expert-major
//            output of 256 experts and 8 ranks is gigabytes of which nearly all is dead.
// ERRORS     an inconsistent Case throws std::invalid_argument with describe_fault()'s text, which fails the test.
#pragma once
#include <cstdint>
#include <vector>

#include "oracle/case.hpp"

namespace switchyard::oracle {

struct RankDispatch {
  // [block][row]: the tokens that arrive, in order. Rows past the end of a block are left untouched.
  std::vector<std::vector<TokenRef>> blocks;
  // Rank-major only, in the full shape [num_ranks, max_tokens, topk]. Dead rows of topk_idx read -1; dead rows of
  // topk_weights are left untouched (0 here).
  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;

  // expert_counters (expert-major) or src_rank_counters (rank-major).
  std::vector<int32_t> counters() const;
};

// Where the row of one (token, k) lies in its owner's output.
struct Slot {
  int rank = -1;  // -1: nowhere; the entry is -1 or a mask stands between the ranks
  int block_idx = 0;
  int row_idx = 0;
  bool operator==(const Slot&) const = default;
};

struct Dispatch {
  std::vector<RankDispatch> ranks;
  std::vector<std::vector<Slot>> slots;  // [source rank][token * topk + k]
  // What every copy of a token holds when it arrives: [source rank], rows of output_token_bytes() and
  // output_scale_bytes().
  std::vector<std::vector<uint8_t>> tokens;
  std::vector<std::vector<uint8_t>> scales;
};

// A row travels when neither of the two ranks has masked the other.
Dispatch expected_dispatch(const Case& c);

// Combine inputs: the live rows of every block, one after another. global_scales: kNvfp4 only, one a row.
struct ExpertOutputs {
  std::vector<std::vector<std::vector<uint8_t>>> rows;         // [rank][block]
  std::vector<std::vector<std::vector<float>>> global_scales;  // [rank][block]
};

// [rank] rows of combine_row_bytes(), num_tokens[rank] of them. Per element: FP32, one fma a contribution in k order
// starting from 0, one rounding at the end. Expert-major contributions carry their routing weight; rank-major ones
// count once per rank with weight 1. Slots whose rank is masked at the combine, by either side, contribute nothing.
std::vector<std::vector<uint8_t>> expected_combine(const Case& c, const Dispatch& dispatch,
                                                   const ExpertOutputs& outputs);

}  // namespace switchyard::oracle
