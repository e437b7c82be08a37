// The meetings of collectives (src/coll, as they are) as programs for the explorer: a few ranks, on one node or several, go through
// operations one behind the other.
#pragma once
#include <string>
#include <vector>

#include "model/explorer.hpp"
#include "model/kernels.hpp"

namespace switchyard::model {

struct CollCase {
  std::vector<int32_t> nodes = {2};  // sizes
  // One letter an operation. In each step of it a rank stages a cell, meets its node and reads what the others staged.
  //   m  one step
  //   s  two steps
  //   a  one step, before which all ranks announce what they have for each other
  //   w  no operation but a barrier of all ranks
  std::string script = "mmm";
};

Report explore_meetings(const CollCase& c, const Kernels& kernels, const Options& options = {});

}  // namespace switchyard::model
