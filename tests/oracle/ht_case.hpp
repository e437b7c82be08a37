// One high-throughput update with its dispatches and combines as the oracle sees it: the shape all ranks agree on and
// every rank's inputs.
//
// THREADS    values; const methods are pure.
// OWNERSHIP  a case owns its buffers.
// ERRORS     describe_fault() says what is wrong with a case; the methods of HtShape expect a sound one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/exchange.hpp"

namespace switchyard::oracle {

enum class HtLayout {
  kFlat,         // a row for every token that names any expert of the rank
  kExpertMajor,  // a zone of rows for every expert, a row in each for every token that names it
};
enum class Overflow {
  kTrap,  // more rows than the budget are an error
  kDrop,  // rows past the budget are left out
};

struct HtShape : ExchangeShape {
  HtLayout layout = HtLayout::kFlat;
  int budget = 0;  // most rows that a rank receives; 0: as many as there are (eager)
  Overflow overflow = Overflow::kTrap;
  int alignment = 1;              // expert-major: zones have whole multiples of so many rows; 0 as 1
  std::vector<int> node_of_rank;  // ascending; empty: all ranks are on one node

  int node_of(int rank) const { return node_of_rank.empty() ? 0 : node_of_rank[rank]; }
  // Rows of a zone that so many tokens use.
  int64_t padded(int64_t num_rows) const;
  // Is there a row at this place, or has it fallen over the budget's edge?
  bool has_room(int64_t slot) const { return budget == 0 || slot < budget; }
  // Routing weights and their gradients that go with one row.
  int weights_per_row() const { return layout == HtLayout::kFlat ? topk : 1; }
};

struct HtCase : HtShape, ExchangeInputs {};

// Empty when the case is consistent, else what is wrong.
std::string describe_fault(const HtCase& c);

}  // namespace switchyard::oracle
