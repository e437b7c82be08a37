// Judging what the library wrote for one rank of a high-throughput case.
//
// THREADS    pure functions over the caller's buffers.
// OWNERSHIP  spans are borrowed for the call.
// ERRORS     what differs first, in words, or an empty string; a buffer that is too small is a difference.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "oracle/ht_oracle.hpp"

namespace switchyard::oracle {

// The counters of an update, widened; empty: not asked for. Entries past those that the model knows must hold
// `untouched`.
struct HtCountersView {
  std::span<const int64_t> expert_counters;
  std::span<const int64_t> expert_offsets;
  std::span<const int64_t> recv_total;
};
std::string check_ht_counters(const HtDispatch& expected, int rank, const HtCountersView& actual, int64_t untouched);

// What a dispatch wrote: buffers of any number of rows, filled with the byte `untouched` before. Rows hold what the
// model says, all others are still untouched.
struct HtDispatchView {
  std::span<const uint8_t> tokens;
  std::span<const uint8_t> scales;      // empty without a recipe
  std::span<const int64_t> topk_idx;    // flat, forward
  std::span<const float> topk_weights;  // forward
  bool is_backward = false;             // neither of the two was asked for
};
std::string check_ht_dispatch(const HtCase& c, const HtDispatch& expected, int rank, const HtDispatchView& actual,
                              uint8_t untouched);

// [token, topk], compared by their bits. Tokens: check_combine() of rows.hpp.
std::string check_ht_gradients(const HtCase& c, int rank, std::span<const float> expected,
                               std::span<const float> actual);

}  // namespace switchyard::oracle
