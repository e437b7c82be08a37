// Cases for the oracle and the library alike: routing patterns, fill levels and contents that find bugs, the same
// for the same seed everywhere (std::mt19937_64 alone; the standard fixes its output, unlike the distributions').
//
// THREADS    pure functions.
// OWNERSHIP  results are values.
// ERRORS     none; make_case() returns cases in which describe_fault() finds nothing, for every sound Shape.
#pragma once
#include <cstdint>

#include "oracle/oracle.hpp"

namespace switchyard::oracle {

// Experts are distinct inside a token except in kDuplicates; where a pattern runs out of experts, entries are -1.
enum class Routing {
  kUniform,
  kOneExpert,    // every token names the same expert once, at any k, and no other
  kOneRank,      // all entries name experts of one rank
  kZipf,         // expert i in popularity is drawn with probability ~ 1/(i+1)
  kDuplicates,   // uniform, then about half the tokens name one of their experts twice, while its block has room
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

// Nobody is masked. Tokens that only travel are random bytes, NaN patterns included; kDsFp8 tokens are finite numbers
// with groups of zeros and of denormals among them.
Case make_case(uint64_t seed, const Shape& shape, Routing routing, Fill fill);

// Random finite rows for every live slot, with zeros, denormals and large values sprinkled in; no sum of them leaves
// FP32, so a combine never yields NaN. Global scales are those a caller would compute.
ExpertOutputs make_expert_outputs(uint64_t seed, const Case& c, const Dispatch& dispatch);

}  // namespace switchyard::oracle
