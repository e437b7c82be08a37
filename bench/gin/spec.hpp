// What one launch of `switchyard bench gin` measures, as it travels to its two ranks.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace switchyard::bench {

struct GinSpec {
  std::string backend = "direct";  // direct or proxy, between two nodes; lsa, inside one
  std::string net = "mem";
  std::vector<uint64_t> sizes;
  int rounds = 31;         // pairs of raw and ours
  bool under_load = true;  // also signals behind a stream of bulk data

  int nodes() const { return backend == "lsa" ? 1 : 2; }
  std::string gin() const { return backend == "lsa" ? "" : backend; }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GinSpec, backend, net, sizes, rounds, under_load)

}  // namespace switchyard::bench
