#include "oracle/ht_check.hpp"

#include <algorithm>
#include <vector>

#include "oracle/rows.hpp"

namespace switchyard::oracle {
namespace {

std::string counters_fault(int rank, const char* name, const std::vector<int64_t>& wanted,
                           std::span<const int64_t> actual, int64_t untouched) {
  if (actual.empty()) return "";
  for (size_t i = 0; i < std::max(actual.size(), wanted.size()); ++i) {
    if (i >= actual.size()) return join("rank ", rank, ", ", name, ": ", actual.size(), " entries are too few");
    const int64_t value = i < wanted.size() ? wanted[i] : untouched;
    if (actual[i] == value) continue;
    return join("rank ", rank, ", ", name, "[", i, "] is ", actual[i], ", expected ", value);
  }
  return "";
}

// expected_row(row_idx) points to the bytes of a row that the model knows.
template <class ExpectedRow>
std::string rows_fault(int rank, const Rows& rows, size_t num_expected, uint8_t untouched, ExpectedRow expected_row) {
  if (rows.row_bytes == 0) return "";
  const size_t num_rows = rows.num_bytes / rows.row_bytes;
  if (num_rows < num_expected) {
    return join("rank ", rank, ", ", rows.name, ": ", num_rows, " rows, expected at least ", num_expected);
  }
  for (size_t row_idx = 0; row_idx < num_rows; ++row_idx) {
    const uint8_t* wanted = row_idx < num_expected ? expected_row(row_idx) : nullptr;
    if (std::string fault = row_fault(rows, row_idx, wanted, untouched); !fault.empty()) {
      return join("rank ", rank, ", ", rows.name, ", row ", row_idx, fault);
    }
  }
  return "";
}

// Rows of the sources' tensors, or zeros.
std::string payload_fault(const HtRankDispatch& expected, int rank, const Rows& rows, uint8_t untouched,
                          const std::vector<std::vector<uint8_t>>& sources) {
  const std::vector<uint8_t> padding(rows.row_bytes, 0);
  return rows_fault(rank, rows, expected.rows.size(), untouched, [&](size_t row_idx) {
    const auto& token = expected.rows[row_idx];
    return token ? sources[token->rank].data() + token->token_idx * rows.row_bytes : padding.data();
  });
}

template <class T>
std::string beside_fault(const HtRankDispatch& expected, int rank, const char* name, size_t row_width,
                         const std::vector<T>& wanted, std::span<const T> actual, uint8_t untouched) {
  const size_t row_bytes = row_width * sizeof(T);
  const Rows wanted_rows = rows_of(name, std::span<const T>(wanted), row_bytes);
  return rows_fault(rank, rows_of(name, actual, row_bytes), expected.rows.size(), untouched,
                    [&](size_t row_idx) { return wanted_rows.row(row_idx); });
}

}  // namespace

std::string check_ht_counters(const HtDispatch& expected, int rank, const HtCountersView& actual, int64_t untouched) {
  const HtRankDispatch& wanted = expected.ranks[rank];
  std::string fault = counters_fault(rank, "recv_total_counter", {wanted.num_total}, actual.recv_total, untouched);
  if (!fault.empty()) return fault;
  fault = counters_fault(rank, "expert_counters", wanted.expert_counters, actual.expert_counters, untouched);
  if (!fault.empty()) return fault;
  return counters_fault(rank, "expert_offsets", wanted.expert_offsets, actual.expert_offsets, untouched);
}

std::string check_ht_dispatch(const HtCase& c, const HtDispatch& expected, int rank, const HtDispatchView& actual,
                              uint8_t untouched) {
  const HtRankDispatch& wanted = expected.ranks[rank];
  const Rows tokens = rows_of("tokens", actual.tokens, c.input_token_bytes());
  std::string fault = payload_fault(wanted, rank, tokens, untouched, c.tokens);
  if (!fault.empty()) return fault;
  fault = payload_fault(wanted, rank, rows_of("scales", actual.scales, c.input_scale_bytes()), untouched, c.scales);
  if (!fault.empty() || actual.is_backward) return fault;
  fault = beside_fault(wanted, rank, "topk_weights", c.weights_per_row(), wanted.topk_weights, actual.topk_weights,
                       untouched);
  if (!fault.empty() || c.layout == HtLayout::kExpertMajor) return fault;
  return beside_fault(wanted, rank, "topk_idx", c.topk, wanted.topk_idx, actual.topk_idx, untouched);
}

std::string check_ht_gradients(const HtCase& c, int rank, std::span<const float> expected,
                               std::span<const float> actual) {
  const Rows rows = rows_of("weight gradients", actual, c.topk * sizeof(float));
  const Rows wanted = rows_of("weight gradients", expected, rows.row_bytes);
  if (std::string fault = size_fault(rank, rows, c.num_tokens[rank]); !fault.empty()) return fault;
  return rows_fault(rank, rows, c.num_tokens[rank], 0, [&](size_t row_idx) { return wanted.row(row_idx); });
}

}  // namespace switchyard::oracle
