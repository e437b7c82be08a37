// What kind of life ranks lead together: whom they may lose, and what they send each other how.
#pragma once
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "oracle/case.hpp"

namespace switchyard::testing {

enum class Algorithm { kLowLatency, kHighThroughput, kCollectives };

struct LifeOptions {
  int num_ranks = 3;
  int victim = 2;  // who may be masked; the others never
  bool masks = false;
  bool windows = false;
  oracle::Layout layout = oracle::Layout::kExpertMajor;  // high throughput: expert-major, or else flat
  uint64_t timeout_ns = 5 * kSecond;                     // of the group
  uint64_t comm_timeout_ns = 5 * kSecond;                // of collective host calls
  int hidden = 72;
  Algorithm algorithm = Algorithm::kLowLatency;
  bool drops = false;      // high throughput: the budget is small, and what exceeds it is dropped
  bool two_nodes = false;  // the last rank is on a node of its own

  // For the command line of a rank's process.
  std::vector<std::string> to_arguments() const;
  static LifeOptions from_arguments(const std::vector<std::string>& arguments);
  std::string name() const;
};

}  // namespace switchyard::testing
