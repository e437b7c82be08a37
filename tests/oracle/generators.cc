#include "oracle/generators.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "oracle/float_formats.hpp"
#include "oracle/quantise.hpp"

namespace switchyard::oracle {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t bits() { return engine_(); }
  // The remainder's bias is of no consequence here.
  int below(int bound) { return static_cast<int>(engine_() % static_cast<uint64_t>(bound)); }
  bool one_in(int chances) { return below(chances) == 0; }
  float unit() { return static_cast<float>(engine_() >> 40) * 0x1p-24f; }  // [0, 1)

 private:
  std::mt19937_64 engine_;
};

std::vector<uint8_t> random_bytes(Random& random, size_t num_bytes) {
  std::vector<uint8_t> bytes(num_bytes);
  for (size_t first = 0; first < num_bytes; first += sizeof(uint64_t)) {
    const uint64_t word = random.bits();
    std::memcpy(bytes.data() + first, &word, std::min(sizeof word, num_bytes - first));
  }
  return bytes;
}

// ---- routing ----

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
Entries draw_token(Random& random, const Shape& shape, Routing routing, int hot_expert) {
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

// Runs after all tokens are drawn, so that it knows how full every block gets.
void duplicate_some(Random& random, Case& c) {
  std::vector<int> num_rows(c.num_experts);
  for (const auto& entries : c.topk_idx) {
    for (int64_t expert : entries) {
      if (expert >= 0) ++num_rows[expert];
    }
  }
  for (auto& entries : c.topk_idx) {
    for (size_t first = 0; first < entries.size(); first += c.topk) {
      const int64_t copied = entries[first + random.below(c.topk)];
      int64_t& replaced = entries[first + random.below(c.topk)];
      if (random.one_in(2) || copied < 0 || copied == replaced) continue;
      if (num_rows[copied] >= c.num_ranks * c.max_tokens) continue;
      if (replaced >= 0) --num_rows[replaced];
      ++num_rows[copied];
      replaced = copied;
    }
  }
}

// ---- contents ----

struct CodeLayout {
  int exponent_bits;
  int mantissa_bits;
  float large;  // sums of 64 of them, weighted, stay inside FP32
};

CodeLayout code_layout(DType dtype) {
  if (dtype == DType::kFloat32) return {8, 23, 0x1p100f};
  if (dtype == DType::kBfloat16) return {8, 7, 0x1p100f};
  return {5, 10, 65504.0f};
}

// A number of magnitude 2^-8..2^8, straight from random bits.
uint32_t ordinary_code(const CodeLayout& layout, uint32_t bits) {
  const uint32_t bias = (1u << (layout.exponent_bits - 1)) - 1;
  const uint32_t sign = bits & 1;
  const uint32_t exponent = bias - 8 + ((bits >> 1) & 15);
  const uint32_t mantissa = (bits >> 5) & ((1u << layout.mantissa_bits) - 1);
  return (((sign << layout.exponent_bits) | exponent) << layout.mantissa_bits) | mantissa;
}

uint32_t denormal_code(const CodeLayout& layout, uint32_t bits) {
  const uint32_t sign = bits & 1;
  return (sign << (layout.exponent_bits + layout.mantissa_bits)) |
         ((bits >> 1) & ((1u << layout.mantissa_bits) - 1));  // zero among them, of either sign
}

std::vector<uint8_t> random_row(Random& random, DType dtype, size_t num_elements) {
  constexpr size_t kGroup = 64;  // half a group of kDsFp8, four blocks of kNvfp4: neighbours stay ordinary
  const CodeLayout layout = code_layout(dtype);
  const size_t element_bytes = dtype_bytes(dtype);
  std::vector<uint8_t> row(num_elements * element_bytes);
  bool group_is_denormal = false;
  bool group_is_zero = false;
  for (size_t i = 0; i < num_elements; ++i) {
    if (i % kGroup == 0) {
      group_is_denormal = random.one_in(8);
      group_is_zero = random.one_in(8);
    }
    const uint64_t bits = random.bits();
    const auto low = static_cast<uint32_t>(bits);
    const bool is_denormal = group_is_denormal || (bits >> 32) % 32 == 0;
    uint32_t code = is_denormal ? denormal_code(layout, low) : ordinary_code(layout, low);
    if (group_is_zero) code = 0;
    std::memcpy(row.data() + i * element_bytes, &code, element_bytes);
  }
  if (num_elements != 0 && random.one_in(8)) {  // in few rows: beside a large value all others quantise to 0
    const float large = random.one_in(2) ? layout.large : -layout.large;
    const uint32_t code = encode(dtype, large);
    std::memcpy(row.data() + random.below(static_cast<int>(num_elements)) * element_bytes, &code, element_bytes);
  }
  return row;
}

float random_weight(Random& random) {
  switch (random.below(16)) {
    case 0: return 0.0f;
    case 1: return 1.0f;
    case 2: return -random.unit();
    default: return random.unit();
  }
}

int draw_num_tokens(Random& random, const Shape& shape, Fill fill, int rank) {
  if (fill == Fill::kFull) return shape.max_tokens;
  if (fill == Fill::kSomeEmpty && rank % 2 == 0) return 0;
  return 1 + random.below(shape.max_tokens);
}

std::vector<uint8_t> random_tokens(Random& random, const Shape& shape, int num_tokens) {
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

Case make_case(uint64_t seed, const Shape& shape, Routing routing, Fill fill) {
  Random random(seed);
  Case c{shape, {}, {}, {}, {}, {}, {}, {}};
  const int hot_expert = random.below(shape.num_experts);
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const int num_tokens = draw_num_tokens(random, shape, fill, rank);
    c.num_tokens.push_back(num_tokens);
    std::vector<int64_t>& idx = c.topk_idx.emplace_back();
    for (int token_idx = 0; token_idx < num_tokens; ++token_idx) {
      const Entries entries = draw_token(random, shape, routing, hot_expert);
      idx.insert(idx.end(), entries.begin(), entries.end());
    }
    std::vector<float>& weights = c.topk_weights.emplace_back(idx.size());
    std::generate(weights.begin(), weights.end(), [&] { return random_weight(random); });
    c.tokens.push_back(random_tokens(random, shape, num_tokens));
    c.scales.push_back(random_bytes(random, num_tokens * shape.input_scale_bytes()));
  }
  if (routing == Routing::kDuplicates) duplicate_some(random, c);
  return c;
}

ExpertOutputs make_expert_outputs(uint64_t seed, const Case& c, const Dispatch& dispatch) {
  Random random(seed);
  ExpertOutputs outputs;
  outputs.rows.resize(c.num_ranks);
  outputs.global_scales.resize(c.num_ranks);
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    for (const auto& block : dispatch.ranks[rank].blocks) {
      std::vector<uint8_t>& rows = outputs.rows[rank].emplace_back();
      std::vector<float>& global_scales = outputs.global_scales[rank].emplace_back();
      for (size_t row_idx = 0; row_idx < block.size(); ++row_idx) {
        const std::vector<uint8_t> row =
            random_row(random, c.combine_dtype, c.combine_row_bytes() / dtype_bytes(c.combine_dtype));
        rows.insert(rows.end(), row.begin(), row.end());
        if (c.combine_recipe != CombineRecipe::kNvfp4) continue;
        global_scales.push_back(nvfp4_global_scale(decode_row(c.combine_dtype, row)));
      }
    }
  }
  return outputs;
}

}  // namespace switchyard::oracle
