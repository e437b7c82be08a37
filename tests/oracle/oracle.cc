#include "oracle/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>

#include "oracle/float_formats.hpp"
#include "oracle/quantise.hpp"

namespace switchyard::oracle {
namespace {

bool may_exchange(const Masks& masks, int rank_a, int rank_b) {
  return masks.empty() || (masks[rank_a][rank_b] != 0 && masks[rank_b][rank_a] != 0);
}

template <class T>
std::span<const T> row_of(const std::vector<T>& rows, size_t row_idx, size_t row_size) {
  return std::span<const T>(rows).subspan(row_idx * row_size, row_size);
}

void require_consistent(const Case& c) {
  if (const std::string fault = describe_fault(c); !fault.empty()) throw std::invalid_argument(fault);
}

// What arrives of every token of one source: the input as it is, or its quantised form.
void make_payload(const Case& c, int source, std::vector<uint8_t>& tokens, std::vector<uint8_t>& scales) {
  if (c.dispatch_recipe != DispatchRecipe::kDsFp8) {
    tokens = c.tokens[source];
    if (c.dispatch_recipe == DispatchRecipe::kForward) scales = c.scales[source];
    return;
  }
  for (int token_idx = 0; token_idx < c.num_tokens[source]; ++token_idx) {
    const auto values = decode_row(c.dtype, row_of(c.tokens[source], token_idx, c.input_token_bytes()));
    const Fp8Row row = quantise_fp8(values, c.round_scales);
    const std::vector<uint8_t> scale_bytes = encode_row(DType::kFloat32, row.scales);
    tokens.insert(tokens.end(), row.codes.begin(), row.codes.end());
    scales.insert(scales.end(), scale_bytes.begin(), scale_bytes.end());
  }
}

// One row for every entry of the token that names an expert of `rank`.
void deliver_to_experts(const Case& c, int rank, TokenRef token, Dispatch& dispatch) {
  for (int k = 0; k < c.topk; ++k) {
    const int entry_idx = token.token_idx * c.topk + k;
    const int64_t expert = c.topk_idx[token.rank][entry_idx];
    if (expert < 0 || c.owner(expert) != rank) continue;
    const int block_idx = c.local_id(expert);
    auto& rows = dispatch.ranks[rank].blocks[block_idx];
    dispatch.slots[token.rank][entry_idx] = {rank, block_idx, static_cast<int>(rows.size())};
    rows.push_back(token);
  }
}

// One row if any entry of the token names an expert of `rank`, with the entries beside it.
void deliver_to_rank(const Case& c, int rank, TokenRef token, Dispatch& dispatch) {
  RankDispatch& output = dispatch.ranks[rank];
  auto& rows = output.blocks[token.rank];
  const int row_idx = static_cast<int>(rows.size());
  const size_t output_first = (static_cast<size_t>(token.rank) * c.max_tokens + row_idx) * c.topk;
  bool is_wanted = false;
  for (int k = 0; k < c.topk; ++k) {
    const int entry_idx = token.token_idx * c.topk + k;
    const int64_t expert = c.topk_idx[token.rank][entry_idx];
    if (expert < 0 || c.owner(expert) != rank) continue;
    is_wanted = true;
    dispatch.slots[token.rank][entry_idx] = {rank, token.rank, row_idx};
    output.topk_idx[output_first + k] =
        c.id_kind == IdKind::kGlobal ? static_cast<int32_t>(expert) : c.local_id(expert);
  }
  if (!is_wanted) return;
  rows.push_back(token);
  const auto weights = row_of(c.topk_weights[token.rank], token.token_idx, c.topk);
  std::copy(weights.begin(), weights.end(), output.topk_weights.begin() + static_cast<ptrdiff_t>(output_first));
}

// Adds one expert row to the sums of one token.
void accumulate(const Case& c, const ExpertOutputs& outputs, const Slot& slot, float weight, std::span<float> sums) {
  const auto& rows = outputs.rows[slot.rank][slot.block_idx];
  const auto values = decode_row(c.combine_dtype, row_of(rows, slot.row_idx, c.combine_row_bytes()));
  if (c.combine_recipe == CombineRecipe::kNvfp4) {
    const float global_scale = outputs.global_scales[slot.rank][slot.block_idx][slot.row_idx];
    accumulate_nvfp4(encode_nvfp4(values, global_scale), weight, sums);
    return;
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = std::fmaf(values[i], weight, sums[i]);
}

std::vector<uint8_t> combine_token(const Case& c, const Dispatch& dispatch, const ExpertOutputs& outputs,
                                   TokenRef token) {
  const Masks& masks = c.combine_mask.empty() ? c.mask : c.combine_mask;
  std::vector<float> sums(c.combine_row_bytes() / dtype_bytes(c.combine_dtype), 0.0f);
  std::vector<bool> is_counted(c.num_ranks, false);
  for (int k = 0; k < c.topk; ++k) {
    const int entry_idx = token.token_idx * c.topk + k;
    const Slot& slot = dispatch.slots[token.rank][entry_idx];
    if (slot.rank < 0 || !may_exchange(masks, token.rank, slot.rank)) continue;
    if (c.layout == Layout::kExpertMajor) {
      accumulate(c, outputs, slot, c.topk_weights[token.rank][entry_idx], sums);
    } else if (!is_counted[slot.rank]) {
      accumulate(c, outputs, slot, 1.0f, sums);
      is_counted[slot.rank] = true;
    }
  }
  return encode_row(c.combine_dtype, sums);
}

}  // namespace

std::vector<int32_t> RankDispatch::counters() const {
  std::vector<int32_t> counts;
  for (const auto& rows : blocks) counts.push_back(static_cast<int32_t>(rows.size()));
  return counts;
}

Dispatch expected_dispatch(const Case& c) {
  require_consistent(c);
  Dispatch dispatch;
  dispatch.ranks.resize(c.num_ranks);
  dispatch.slots.resize(c.num_ranks);
  dispatch.tokens.resize(c.num_ranks);
  dispatch.scales.resize(c.num_ranks);
  for (int source = 0; source < c.num_ranks; ++source) {
    dispatch.slots[source].resize(c.topk_idx[source].size());
    make_payload(c, source, dispatch.tokens[source], dispatch.scales[source]);
  }
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    RankDispatch& output = dispatch.ranks[rank];
    output.blocks.resize(c.num_blocks(rank));
    if (c.layout == Layout::kRankMajor) {
      const size_t num_entries = static_cast<size_t>(c.num_ranks) * c.max_tokens * c.topk;
      output.topk_idx.assign(num_entries, -1);
      output.topk_weights.assign(num_entries, 0.0f);
    }
    const auto deliver = c.layout == Layout::kExpertMajor ? deliver_to_experts : deliver_to_rank;
    for (int source = 0; source < c.num_ranks; ++source) {
      if (!may_exchange(c.mask, source, rank)) continue;
      for (int token_idx = 0; token_idx < c.num_tokens[source]; ++token_idx) {
        deliver(c, rank, {source, token_idx}, dispatch);
      }
    }
  }
  return dispatch;
}

std::vector<std::vector<uint8_t>> expected_combine(const Case& c, const Dispatch& dispatch,
                                                   const ExpertOutputs& outputs) {
  require_consistent(c);
  std::vector<std::vector<uint8_t>> combined(c.num_ranks);
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    for (int token_idx = 0; token_idx < c.num_tokens[rank]; ++token_idx) {
      const std::vector<uint8_t> row = combine_token(c, dispatch, outputs, {rank, token_idx});
      combined[rank].insert(combined[rank].end(), row.begin(), row.end());
    }
  }
  return combined;
}

}  // namespace switchyard::oracle
