// Inputs of cases: routing patterns, fill levels and contents that find bugs.
//
// THREADS    a Random belongs to one thread.
// OWNERSHIP  results are values.
// ERRORS     none; describe_inputs_fault() finds nothing in what make_inputs() returns, for every sound shape.
#pragma once
#include <cstdint>

#include "oracle/contents.hpp"
#include "oracle/exchange.hpp"

namespace switchyard::oracle {

// Experts are distinct inside a token except in kDuplicates; where a pattern runs out of experts, entries are -1.
enum class Routing {
  kUniform,
  kOneExpert,    // every token names the same expert once, at any k, and no other
  kOneRank,      // all entries name experts of one rank
  kZipf,         // expert i in popularity is drawn with probability ~ 1/(i+1)
  kDuplicates,   // uniform; to be followed by duplicate_some()
  kSomeDropped,  // uniform, then a quarter of the entries and an eighth of the tokens are -1
  kAllDropped,
};
inline constexpr Routing kAllRoutings[] = {Routing::kUniform,   Routing::kOneExpert,  Routing::kOneRank,
                                           Routing::kZipf,      Routing::kDuplicates, Routing::kSomeDropped,
                                           Routing::kAllDropped};

enum class Fill {
  kFull,       // max_tokens on every rank
  kPartial,    // 1..max_tokens
  kSomeEmpty,  // kPartial, but every second rank, from the first, has none
};
inline constexpr Fill kAllFills[] = {Fill::kFull, Fill::kPartial, Fill::kSomeEmpty};

const char* routing_name(Routing routing);
const char* fill_name(Fill fill);

// Tokens that only travel are random bytes, NaN patterns included; kDsFp8 tokens are finite numbers with groups of
// zeros and of denormals among them.
ExchangeInputs make_inputs(Random& random, const ExchangeShape& shape, Routing routing, Fill fill);

// For kDuplicates: about half the tokens name one of their experts once more, in place of another entry, as long as
// that expert is named no more often than said.
void duplicate_some(Random& random, const ExchangeShape& shape, int64_t max_rows_per_expert, ExchangeInputs& inputs);

}  // namespace switchyard::oracle
