#include "oracle/dense.hpp"

#include <algorithm>
#include <sstream>

namespace switchyard::oracle {
namespace {

size_t num_rows(const Case& c, int rank) {
  return static_cast<size_t>(c.num_blocks(rank)) * static_cast<size_t>(c.rows_per_block());
}

std::string place(const Case& c, int rank, const char* name, size_t row_idx) {
  std::ostringstream out;
  out << "rank " << rank << ", " << name << ", "
      << (c.layout == Layout::kExpertMajor ? "local expert " : "source rank ") << row_idx / c.rows_per_block()
      << ", row " << row_idx % c.rows_per_block();
  return out.str();
}

// With the place named.
std::string row_fault(const Case& c, int rank, const Rows& rows, size_t row_idx, const uint8_t* expected,
                      uint8_t untouched) {
  if (std::string fault = row_fault(rows, row_idx, expected, untouched); !fault.empty()) {
    return place(c, rank, rows.name, row_idx) + fault;
  }
  return "";
}

// expected_row(token, row_idx) points to the bytes of a live row.
template <class ExpectedRow>
std::string rows_fault(const Case& c, const Dispatch& expected, int rank, const Rows& rows, uint8_t untouched,
                       ExpectedRow expected_row) {
  if (std::string fault = size_fault(rank, rows, num_rows(c, rank)); !fault.empty()) return fault;
  if (rows.row_bytes == 0) return "";
  for (size_t row_idx = 0; row_idx < num_rows(c, rank); ++row_idx) {
    const auto& block = expected.ranks[rank].blocks[row_idx / c.rows_per_block()];
    const size_t idx_in_block = row_idx % c.rows_per_block();
    const uint8_t* wanted = idx_in_block < block.size() ? expected_row(block[idx_in_block], row_idx) : nullptr;
    if (std::string fault = row_fault(c, rank, rows, row_idx, wanted, untouched); !fault.empty()) return fault;
  }
  return "";
}

std::string counters_fault(const Case& c, const Dispatch& expected, int rank, std::span<const int32_t> actual) {
  if (actual.empty() && c.layout == Layout::kRankMajor) return "";
  const std::vector<int32_t> wanted = expected.ranks[rank].counters();
  if (std::equal(wanted.begin(), wanted.end(), actual.begin(), actual.end())) return "";
  std::ostringstream out;
  out << "rank " << rank << ", counters:";
  for (int32_t count : actual) out << ' ' << count;
  out << ", expected";
  for (int32_t count : wanted) out << ' ' << count;
  return out.str();
}

std::string entries_fault(const Case& c, const Dispatch& expected, int rank, const DispatchView& actual,
                          uint8_t untouched) {
  const RankDispatch& wanted = expected.ranks[rank];
  const size_t row_bytes = c.topk * sizeof(int32_t);
  const Rows idx_rows = rows_of("topk_idx", actual.topk_idx, row_bytes);
  const Rows wanted_idx = rows_of("topk_idx", std::span<const int32_t>(wanted.topk_idx), row_bytes);
  if (std::string fault = size_fault(rank, idx_rows, num_rows(c, rank)); !fault.empty()) return fault;
  for (size_t row_idx = 0; row_idx < num_rows(c, rank); ++row_idx) {  // dead rows too: they read -1
    std::string fault = row_fault(c, rank, idx_rows, row_idx, wanted_idx.row(row_idx), untouched);
    if (!fault.empty()) return fault;
  }
  const Rows wanted_weights = rows_of("topk_weights", std::span<const float>(wanted.topk_weights), row_bytes);
  return rows_fault(c, expected, rank, rows_of("topk_weights", actual.topk_weights, row_bytes), untouched,
                    [&](TokenRef, size_t row_idx) { return wanted_weights.row(row_idx); });
}

}  // namespace

std::string check_dispatch(const Case& c, const Dispatch& expected, int rank, const DispatchView& actual,
                           uint8_t untouched) {
  if (std::string fault = counters_fault(c, expected, rank, actual.counters); !fault.empty()) return fault;
  const auto payload_fault = [&](const Rows& rows, const std::vector<std::vector<uint8_t>>& payload) {
    return rows_fault(c, expected, rank, rows, untouched, [&](TokenRef token, size_t) {
      return payload[token.rank].data() + token.token_idx * rows.row_bytes;
    });
  };
  std::string fault = payload_fault(rows_of("tokens", actual.tokens, c.output_token_bytes()), expected.tokens);
  if (!fault.empty()) return fault;
  fault = payload_fault(rows_of("scales", actual.scales, c.output_scale_bytes()), expected.scales);
  if (!fault.empty() || c.layout == Layout::kExpertMajor) return fault;
  return entries_fault(c, expected, rank, actual, untouched);
}

void scatter_outputs(const Case& c, const ExpertOutputs& outputs, int rank, std::span<uint8_t> rows,
                     std::span<float> global_scales) {
  for (int block_idx = 0; block_idx < c.num_blocks(rank); ++block_idx) {
    const size_t first_row = static_cast<size_t>(block_idx) * c.rows_per_block();
    std::ranges::copy(outputs.rows[rank][block_idx], rows.subspan(first_row * c.combine_row_bytes()).begin());
    if (c.combine_recipe != CombineRecipe::kNvfp4) continue;
    std::ranges::copy(outputs.global_scales[rank][block_idx], global_scales.subspan(first_row).begin());
  }
}

ExpertOutputs gather_outputs(const Case& c, const Dispatch& dispatch, const std::vector<std::span<const uint8_t>>& rows,
                             const std::vector<std::span<const float>>& global_scales) {
  ExpertOutputs outputs;
  outputs.rows.resize(c.num_ranks);
  outputs.global_scales.resize(c.num_ranks);
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    for (int block_idx = 0; block_idx < c.num_blocks(rank); ++block_idx) {
      const size_t first_row = static_cast<size_t>(block_idx) * c.rows_per_block();
      const size_t num_live = dispatch.ranks[rank].blocks[block_idx].size();
      const auto live = rows[rank].subspan(first_row * c.combine_row_bytes(), num_live * c.combine_row_bytes());
      outputs.rows[rank].emplace_back(live.begin(), live.end());
      if (global_scales.empty()) continue;
      const auto live_scales = global_scales[rank].subspan(first_row, num_live);
      outputs.global_scales[rank].emplace_back(live_scales.begin(), live_scales.end());
    }
  }
  return outputs;
}

}  // namespace switchyard::oracle
