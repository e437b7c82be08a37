// One low-latency dispatch and its combine as the oracle sees it: the shape all ranks agree on and every rank's inputs.
//
// THREADS    values; const methods are pure.
// OWNERSHIP  a Case owns its buffers.
// ERRORS     describe_fault() says what is wrong with a Case; the methods of Shape expect a sound one.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "oracle/exchange.hpp"

namespace switchyard::oracle {

enum class Layout { kExpertMajor, kRankMajor };
enum class CombineRecipe { kNone, kNvfp4 };

struct Shape : ExchangeShape {
  Layout layout = Layout::kExpertMajor;
  bool round_scales = false;  // kDsFp8
  CombineRecipe combine_recipe = CombineRecipe::kNone;

  // A rank's dispatch output and combine input are blocks of rows: one block an expert, or one a source rank.
  int num_blocks(int rank) const;
  int rows_per_block() const;

  size_t output_token_bytes() const;  // of one row, here and below
  size_t output_scale_bytes() const;
};

// masks[r][p] == 0: rank r has masked rank p. Empty: nobody masked anybody.
using Masks = std::vector<std::vector<int>>;

struct Case : Shape, ExchangeInputs {
  Masks mask;          // at the dispatch
  Masks combine_mask;  // at the combine; empty: as at the dispatch
};

// Empty when the case is consistent, else what is wrong. An expert-major case whose duplicates inside tokens give
// an expert more rows than its block has (num_ranks * max_tokens) is not: such an output has no place for them.
std::string describe_fault(const Case& c);

}  // namespace switchyard::oracle
