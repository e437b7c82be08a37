// The high-throughput protocol (src/ep/ht_*.hpp and rail_stream.hpp, as they are) as a program for the explorer.
//
// A few ranks, on one node or on two, do a script of operations on memory in the arena; rows are cells, as in ll_model.hpp.
// What goes to another node is carried by couriers (explorer.hpp): in the order of the puts, at any moment.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/explorer.hpp"
#include "model/kernels.hpp"

namespace switchyard::model {

struct HtCase {
  static constexpr int kAlignment = 2;  // of an expert's rows, expert-major

  std::vector<int> nodes = {2};  // ranks of each
  int num_tokens = 2;            // of each rank
  int topk = 1;
  int num_local = 1;  // experts of a rank
  bool expert_major = false;
  bool in_place = false;      // outputs and expert results in windows
  uint64_t chunk_bytes = 32;  // of rings between nodes: one row of a forward dispatch, two of anything else
  bool masks = false;         // ranks could be masked; none is
  int budget = 0;             // rows that a rank receives; what is over it is dropped. 0: no budget
  // One letter an operation: U update, D dispatch, C combine; d, c backward. Without a U, plans are there
  // from the beginning; a script that begins with a combine answers a dispatch that was before.
  std::string script = "DCDC";
  // One letter a plan, again and again: s spread over the experts, l all to the last expert, a all to the next rank.
  std::string routes = "sl";

  int num_ranks() const {
    int sum = 0;
    for (const int size : nodes) sum += size;
    return sum;
  }
  int num_experts() const { return num_ranks() * num_local; }
};

Report explore_ht(const HtCase& c, const Kernels& kernels, const Options& options = {});

}  // namespace switchyard::model
