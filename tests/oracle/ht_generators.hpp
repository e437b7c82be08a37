// High-throughput cases for the oracle and the library alike, the same for the same seed everywhere.
//
// THREADS    pure functions.
// OWNERSHIP  results are values.
// ERRORS     none; make_ht_case() returns cases in which describe_fault() finds nothing, for every sound HtShape.
#pragma once
#include <cstdint>

#include "oracle/ht_oracle.hpp"
#include "oracle/inputs.hpp"

namespace switchyard::oracle {

enum class Budget {
  kEager,     // none
  kExact,     // what the fullest rank receives
  kGenerous,  // more than that
  kTight,     // about half of that: rows are dropped, or the update fails
};
inline constexpr Budget kAllBudgets[] = {Budget::kEager, Budget::kExact, Budget::kGenerous, Budget::kTight};
const char* budget_name(Budget budget);

// Sets the shape's budget by what the routing needs, never below max_tokens; with kEager the policy becomes kTrap.
HtCase make_ht_case(uint64_t seed, const HtShape& shape, Routing routing, Fill fill, Budget budget);

// The same case with entries blanked, the last ranks' first, until every rank's rows are inside the budget.
HtCase fit_to_budget(HtCase c);

// Random finite rows and gradients for all that a token or an entry owns; padding rows and gradients that belong to no
// expert are NaN, which spoils every sum that takes them in.
HtExpertOutputs make_ht_outputs(uint64_t seed, const HtCase& c, const HtDispatch& dispatch);

}  // namespace switchyard::oracle
