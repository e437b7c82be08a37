// Between the model's lists of live rows and the full-shape buffers of the API: judging what a dispatch or combine
// wrote, and laying out what a combine reads.
//
// THREADS    pure functions over the caller's buffers.
// OWNERSHIP  spans are borrowed for the call.
// ERRORS     check_*() return what differs first, in words, or an empty string; a buffer of a wrong size is a
//            difference. scatter/gather expect buffers of the full shape.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "oracle/oracle.hpp"
#include "oracle/rows.hpp"

namespace switchyard::oracle {

// What one rank got: [block, row, ...] buffers as passed to the library, filled with the byte `untouched` before.
struct DispatchView {
  std::span<const uint8_t> tokens;
  std::span<const uint8_t> scales;      // empty for recipes without
  std::span<const int32_t> counters;    // may be empty in rank-major, where they are optional
  std::span<const int32_t> topk_idx;    // rank-major
  std::span<const float> topk_weights;  // rank-major
};

// Live rows hold what the model says, everything else is still `untouched`.
std::string check_dispatch(const Case& c, const Dispatch& expected, int rank, const DispatchView& actual,
                           uint8_t untouched);

// Copies a rank's live rows to their slots of a combine input [block, row, combine_hidden], and their global scales,
// where there are any, to [block, row, 1]; the rest of both stays as it is.
void scatter_outputs(const Case& c, const ExpertOutputs& outputs, int rank, std::span<uint8_t> rows,
                     std::span<float> global_scales);

// The reverse, over all ranks; global_scales is empty or has one span a rank.
ExpertOutputs gather_outputs(const Case& c, const Dispatch& dispatch, const std::vector<std::span<const uint8_t>>& rows,
                             const std::vector<std::span<const float>>& global_scales);

}  // namespace switchyard::oracle
