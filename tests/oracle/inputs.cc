#include "oracle/inputs.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace switchyard::oracle {
namespace {

using Entries = std::vector<int64_t>;  // of one token

// The first min(topk, candidates) of a shuffle.
Entries draw_distinct(Random& random, int first_expert, int num_candidates, int topk) {
  Entries candidates(num_candidates);
  std::iota(candidates.begin(), candidates.end(), first_expert);
  Entries entries(topk, -1);
  for (int k = 0; k < std::min(topk, num_candidates); ++k) {
    std::swap(candidates[k], candidates[k + random.below(num_candidates - k)]);
    entries[k] = candidates[k];
  }
  return entries;
}

Entries draw_zipf(Random& random, int num_experts, int topk) {
  std::vector<double> popularity(num_experts);
  for (int expert = 0; expert < num_experts; ++expert) popularity[expert] = 1.0 / (expert + 1);
  Entries entries(topk, -1);
  for (int k = 0; k < std::min(topk, num_experts); ++k) {
    double rest = random.unit() * std::accumulate(popularity.begin(), popularity.end(), 0.0);
    int chosen = -1;  // the last candidate, should rounding carry `rest` past all of them
    for (int expert = 0; expert < num_experts && (chosen < 0 || rest >= 0); ++expert) {
      if (popularity[expert] == 0) continue;
      chosen = expert;
      rest -= popularity[expert];
    }
    entries[k] = chosen;
    popularity[chosen] = 0;
  }
  return entries;
}

Entries draw_one_expert(Random& random, int hot_expert, int topk) {
  Entries entries(topk, -1);
  entries[random.below(topk)] = hot_expert;
  return entries;
}

void drop_some(Random& random, Entries& entries) {
  const bool drops_token = random.one_in(8);
  for (int64_t& expert : entries) {
    if (drops_token || random.one_in(4)) expert = -1;
  }
}

// `hot` stays the same for all tokens of a case.
Entries draw_token(Random& random, const ExchangeShape& shape, Routing routing, int hot_expert) {
  const int hot_rank = shape.owner(hot_expert);
  switch (routing) {
    case Routing::kOneExpert: return draw_one_expert(random, hot_expert, shape.topk);
    case Routing::kOneRank:
      return draw_distinct(random, shape.expert_first(hot_rank), shape.num_local(hot_rank), shape.topk);
    case Routing::kZipf: return draw_zipf(random, shape.num_experts, shape.topk);
    case Routing::kAllDropped: return Entries(shape.topk, -1);
    case Routing::kUniform:
    case Routing::kDuplicates:
    case Routing::kSomeDropped: break;
  }
  Entries entries = draw_distinct(random, 0, shape.num_experts, shape.topk);
  if (routing == Routing::kSomeDropped) drop_some(random, entries);
  return entries;
}

int draw_num_tokens(Random& random, const ExchangeShape& shape, Fill fill, int rank) {
  if (fill == Fill::kFull) return shape.max_tokens;
  if (fill == Fill::kSomeEmpty && rank % 2 == 0) return 0;
  return 1 + random.below(shape.max_tokens);
}

std::vector<uint8_t> random_tokens(Random& random, const ExchangeShape& shape, int num_tokens) {
  if (shape.dispatch_recipe != DispatchRecipe::kDsFp8) {
    return random_bytes(random, num_tokens * shape.input_token_bytes());
  }
  std::vector<uint8_t> tokens;
  for (int token_idx = 0; token_idx < num_tokens; ++token_idx) {
    const std::vector<uint8_t> row = random_row(random, shape.dtype, shape.hidden);
    tokens.insert(tokens.end(), row.begin(), row.end());
  }
  return tokens;
}

}  // namespace

const char* routing_name(Routing routing) {
  switch (routing) {
    case Routing::kUniform: return "uniform";
    case Routing::kOneExpert: return "one_expert";
    case Routing::kOneRank: return "one_rank";
    case Routing::kZipf: return "zipf";
    case Routing::kDuplicates: return "duplicates";
    case Routing::kSomeDropped: return "some_dropped";
    case Routing::kAllDropped: return "all_dropped";
  }
  return "unknown";
}

const char* fill_name(Fill fill) {
  switch (fill) {
    case Fill::kFull: return "full";
    case Fill::kPartial: return "partial";
    case Fill::kSomeEmpty: return "some_empty";
  }
  return "unknown";
}

ExchangeInputs make_inputs(Random& random, const ExchangeShape& shape, Routing routing, Fill fill) {
  ExchangeInputs inputs;
  const int hot_expert = random.below(shape.num_experts);
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const int num_tokens = draw_num_tokens(random, shape, fill, rank);
    inputs.num_tokens.push_back(num_tokens);
    std::vector<int64_t>& idx = inputs.topk_idx.emplace_back();
    for (int token_idx = 0; token_idx < num_tokens; ++token_idx) {
      const Entries entries = draw_token(random, shape, routing, hot_expert);
      idx.insert(idx.end(), entries.begin(), entries.end());
    }
    std::vector<float>& weights = inputs.topk_weights.emplace_back(idx.size());
    std::generate(weights.begin(), weights.end(), [&] { return random_weight(random); });
    inputs.tokens.push_back(random_tokens(random, shape, num_tokens));
    inputs.scales.push_back(random_bytes(random, num_tokens * shape.input_scale_bytes()));
  }
  return inputs;
}

void duplicate_some(Random& random, const ExchangeShape& shape, int64_t max_rows_per_expert, ExchangeInputs& inputs) {
  std::vector<int64_t> num_rows(shape.num_experts);
  for (const auto& entries : inputs.topk_idx) {
    for (int64_t expert : entries) {
      if (expert >= 0) ++num_rows[expert];
    }
  }
  for (auto& entries : inputs.topk_idx) {
    for (size_t first = 0; first < entries.size(); first += shape.topk) {
      const int64_t copied = entries[first + random.below(shape.topk)];
      int64_t& replaced = entries[first + random.below(shape.topk)];
      if (random.one_in(2) || copied < 0 || copied == replaced) continue;
      if (num_rows[copied] >= max_rows_per_expert) continue;
      if (replaced >= 0) --num_rows[replaced];
      ++num_rows[copied];
      replaced = copied;
    }
  }
}

}  // namespace switchyard::oracle
