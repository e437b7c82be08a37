#include "oracle/ht_oracle.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "oracle/float_formats.hpp"

namespace switchyard::oracle {
namespace {

void require_consistent(const HtCase& c) {
  if (const std::string fault = describe_fault(c); !fault.empty()) throw std::invalid_argument(fault);
}

void for_each_token(const HtCase& c, const std::function<void(TokenRef)>& visit) {
  for (int source = 0; source < c.num_ranks; ++source) {
    for (int token_idx = 0; token_idx < c.num_tokens[source]; ++token_idx) visit({source, token_idx});
  }
}

// A token and the experts of one rank that it names, ascending, each with its weight.
struct Arrival {
  TokenRef token;
  std::map<int64_t, float> hits;
};

std::vector<Arrival> arrivals_at(const HtCase& c, int rank) {
  std::vector<Arrival> arrivals;
  for_each_token(c, [&](TokenRef token) {
    std::map<int64_t, float> hits;
    for (int k = 0; k < c.topk; ++k) {
      const int entry_idx = token.token_idx * c.topk + k;
      const int64_t expert = c.topk_idx[token.rank][entry_idx];
      if (expert >= 0 && c.owner(expert) == rank) hits[expert] = c.topk_weights[token.rank][entry_idx];
    }
    if (!hits.empty()) arrivals.push_back({token, std::move(hits)});
  });
  return arrivals;
}

// Remembers the row of every entry of the token for which `is_meant` holds.
template <class IsMeant>
void record_slot(const HtCase& c, TokenRef token, int64_t slot, HtDispatch& dispatch, IsMeant is_meant) {
  for (int k = 0; k < c.topk; ++k) {
    const int entry_idx = token.token_idx * c.topk + k;
    const int64_t expert = c.topk_idx[token.rank][entry_idx];
    if (expert >= 0 && is_meant(expert)) dispatch.slots[token.rank][entry_idx] = slot;
  }
}

void append_hits(const HtCase& c, const std::map<int64_t, float>& hits, HtRankDispatch& output) {
  for (const auto& [expert, weight] : hits) {
    output.topk_idx.push_back(c.id_kind == IdKind::kGlobal ? expert : c.local_id(expert));
    output.topk_weights.push_back(weight);
  }
  output.topk_idx.resize(output.rows.size() * c.topk, -1);
  output.topk_weights.resize(output.rows.size() * c.topk, 0.0f);
}

void deliver_flat(const HtCase& c, int rank, const std::vector<Arrival>& arrivals, HtDispatch& dispatch) {
  HtRankDispatch& output = dispatch.ranks[rank];
  output.expert_counters.resize(c.num_local(rank));
  for (const auto& [token, hits] : arrivals) {
    const int64_t slot = output.num_total++;
    if (!c.has_room(slot)) continue;
    output.rows.push_back(token);
    append_hits(c, hits, output);
    for (const auto& [expert, weight] : hits) ++output.expert_counters[c.local_id(expert)];
    record_slot(c, token, slot, dispatch, [&](int64_t expert) { return c.owner(expert) == rank; });
  }
}

// One zone behind the last. What has no room is counted and left out.
void deliver_zone(const HtCase& c, int64_t expert, const std::vector<Arrival>& arrivals, HtDispatch& dispatch) {
  HtRankDispatch& output = dispatch.ranks[c.owner(expert)];
  const int64_t zone_first = output.num_total;
  const auto first_row = output.rows.size();
  const auto append = [&](std::optional<TokenRef> row, float weight) {
    const int64_t slot = output.num_total++;
    if (!c.has_room(slot)) return;
    output.rows.push_back(row);
    output.topk_weights.push_back(weight);
    if (row) record_slot(c, *row, slot, dispatch, [&](int64_t named) { return named == expert; });
  };
  for (const auto& [token, hits] : arrivals) {
    if (const auto hit = hits.find(expert); hit != hits.end()) append(token, hit->second);
  }
  const int64_t zone_end = zone_first + c.padded(output.num_total - zone_first);
  while (output.num_total < zone_end) append(std::nullopt, 0.0f);
  output.expert_counters.push_back(static_cast<int64_t>(output.rows.size() - first_row));
  output.expert_offsets.push_back(static_cast<int64_t>(first_row));
}

// Worked out as if rows past the budget were dropped, whatever the policy.
HtDispatch deliver(const HtCase& c) {
  HtDispatch dispatch;
  dispatch.ranks.resize(c.num_ranks);
  for (const auto& entries : c.topk_idx) dispatch.slots.emplace_back(entries.size(), -1);
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    const std::vector<Arrival> arrivals = arrivals_at(c, rank);
    if (c.layout == HtLayout::kFlat) {
      deliver_flat(c, rank, arrivals, dispatch);
      continue;
    }
    const int64_t first = c.expert_first(rank);
    for (int64_t expert = first; expert < first + c.num_local(rank); ++expert) {
      deliver_zone(c, expert, arrivals, dispatch);
    }
  }
  return dispatch;
}

std::vector<HtOverflowing> overflowing_of(const HtCase& c, const HtDispatch& dispatch) {
  std::vector<HtOverflowing> overflowing;
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    const int64_t num_total = dispatch.ranks[rank].num_total;
    if (num_total > 0 && !c.has_room(num_total - 1)) overflowing.push_back({rank, num_total});
  }
  return overflowing;
}

// ---- combine ----

// The rows of one token, met entry by entry.
class TokenSum {
 public:
  TokenSum(const HtCase& c, const HtDispatch& dispatch, const HtExpertOutputs& outputs, TokenRef token)
      : c_(c), dispatch_(dispatch), outputs_(outputs), token_(token) {}

  std::vector<uint8_t> total() const {
    const int home = c_.node_of(token_.rank);
    std::vector<float> sums = zeros();
    std::set<int> met;
    for (int k = 0; k < c_.topk; ++k) {
      if (!has_row(k)) continue;
      const int node = node_of(k);
      if (node == home) {
        add_entry(k, sums);
      } else if (met.insert(node).second) {
        add(partial_of(node), sums);
      }
    }
    return encode_row(c_.combine_dtype, sums);
  }

 private:
  std::vector<float> zeros() const {
    return std::vector<float>(c_.combine_row_bytes() / dtype_bytes(c_.combine_dtype), 0.0f);
  }
  int64_t expert_of(int k) const { return c_.topk_idx[token_.rank][token_.token_idx * c_.topk + k]; }
  bool has_row(int k) const { return slot_of(k) >= 0; }
  int64_t slot_of(int k) const { return dispatch_.slots[token_.rank][token_.token_idx * c_.topk + k]; }
  int owner_of(int k) const { return c_.owner(expert_of(k)); }
  int node_of(int k) const { return c_.node_of(owner_of(k)); }

  // What another node sends.
  std::vector<float> partial_of(int node) const {
    std::vector<float> sums = zeros();
    for (int k = 0; k < c_.topk; ++k) {
      if (has_row(k) && node_of(k) == node) add_entry(k, sums);
    }
    return decode_row(c_.combine_dtype, encode_row(c_.combine_dtype, sums));
  }

  // Adds the entry's row, unless an earlier entry had the same.
  void add_entry(int k, std::vector<float>& sums) const {
    for (int earlier = 0; earlier < k; ++earlier) {
      if (slot_of(earlier) == slot_of(k) && owner_of(earlier) == owner_of(k)) return;
    }
    const size_t row_bytes = c_.combine_row_bytes();
    add(decode_row(c_.combine_dtype, std::span(outputs_.rows[owner_of(k)]).subspan(slot_of(k) * row_bytes, row_bytes)),
        sums);
  }

  static void add(const std::vector<float>& row, std::vector<float>& sums) {
    for (size_t i = 0; i < row.size(); ++i) sums[i] += row[i];
  }

  const HtCase& c_;
  const HtDispatch& dispatch_;
  const HtExpertOutputs& outputs_;
  const TokenRef token_;
};

float gradient_of(const HtCase& c, const HtDispatch& dispatch, const HtExpertOutputs& outputs, int source,
                  int entry_idx) {
  const int64_t slot = dispatch.slots[source][entry_idx];
  if (slot < 0) return 0.0f;
  const int64_t expert = c.topk_idx[source][entry_idx];
  const int rank = c.owner(expert);
  if (c.layout == HtLayout::kExpertMajor) return outputs.weight_gradients[rank][slot];
  const auto listed = std::span(dispatch.ranks[rank].topk_idx).subspan(slot * c.topk, c.topk);
  const int64_t id = c.id_kind == IdKind::kGlobal ? expert : c.local_id(expert);
  const auto position = std::ranges::find(listed, id) - listed.begin();
  return outputs.weight_gradients[rank][slot * c.topk + position];
}

}  // namespace

std::vector<HtOverflowing> find_overflowing(const HtCase& c) {
  require_consistent(c);
  return overflowing_of(c, deliver(c));
}

HtDispatch expected_ht_dispatch(const HtCase& c) {
  require_consistent(c);
  HtDispatch dispatch = deliver(c);
  if (c.overflow == Overflow::kTrap && !overflowing_of(c, dispatch).empty()) {
    throw std::invalid_argument("a rank receives more rows than its budget, and the case traps");
  }
  return dispatch;
}

HtCombine expected_ht_combine(const HtCase& c, const HtDispatch& dispatch, const HtExpertOutputs& outputs) {
  require_consistent(c);
  HtCombine combined;
  combined.tokens.resize(c.num_ranks);
  combined.weight_gradients.resize(c.num_ranks);
  for_each_token(c, [&](TokenRef token) {
    const std::vector<uint8_t> row = TokenSum(c, dispatch, outputs, token).total();
    combined.tokens[token.rank].insert(combined.tokens[token.rank].end(), row.begin(), row.end());
    for (int k = 0; k < c.topk; ++k) {
      const int entry_idx = token.token_idx * c.topk + k;
      combined.weight_gradients[token.rank].push_back(gradient_of(c, dispatch, outputs, token.rank, entry_idx));
    }
  });
  return combined;
}

}  // namespace switchyard::oracle
