// What tests of random cases share: how many cases there are, and ranks that stay from case to case.
//
//   SWITCHYARD_RANDOM_CASES   how many cases
//   RC_PARAMS                 RapidCheck's own settings, e.g. "seed=1 max_success=100"; they win
#pragma once
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/env.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {

// RapidCheck reads its settings once, before its first check.
inline void set_num_cases(uint64_t default_num_cases) {
  const char* given = getenv("RC_PARAMS");
  std::string params = given ? given : "";
  if (params.find("max_success") != std::string::npos) return;
  const char* wanted = getenv("SWITCHYARD_RANDOM_CASES");
  const uint64_t num_cases = parse_number(wanted ? wanted : "", 1, 100'000'000).value_or(default_num_cases);
  params += text(params.empty() ? "" : " ", "max_success=", num_cases);
  setenv("RC_PARAMS", params.c_str(), 1);
}

// Communicators are made once for every number of ranks and split into nodes; those that a failure ended are made
// again.
class RankPool {
 public:
  // Runs one rank's part on each; empty, or what the parts returned.
  std::string run(int num_ranks, const std::vector<int>& nodes,
                  const std::function<std::string(Communicator&, StreamRef)>& part) {
    std::unique_ptr<ThreadRanks>& ranks = ranks_[{num_ranks, nodes}];
    if (ranks == nullptr) ranks = std::make_unique<ThreadRanks>(num_ranks, Communicator::Options{}, nodes);
    std::string faults;
    std::mutex mutex;
    ranks->on_all([&](int rank) {
      const std::string fault = part(ranks->comm(rank), ranks->stream_ref(rank));
      const std::lock_guard lock(mutex);
      if (!fault.empty()) faults += fault + "\n";
    });
    if (!faults.empty()) ranks.reset();
    return faults;
  }

 private:
  std::map<std::pair<int, std::vector<int>>, std::unique_ptr<ThreadRanks>> ranks_;
};

}  // namespace switchyard::testing
