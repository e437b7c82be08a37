// Whole suites with ranks on machines of their own: the matrices and random cases of both algorithms against the
// oracle, and the collectives against plain loops. Each rank goes through a share of a suite's list until its end, or
// until the library fails: that is no fault of the process, the test judges it. Results that differ from the model
// always are.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "hosts/host_ranks.hpp"

namespace switchyard::testing {

// Every step-th case of a list, from the first on.
struct Share {
  size_t first = 0, step = 1;
  size_t size_of(size_t num_cases) const { return first < num_cases ? (num_cases - 1 - first) / step + 1 : 0; }
};

struct Suite {
  const char* body;
  size_t (*num_cases)(const std::vector<int>& host_of_rank);
  // Of a plain run. Prime to the lengths of what the lists go through, so that every value comes up.
  size_t step;
};
const std::vector<Suite>& all_suites();

struct Placement {
  const char* name;
  std::vector<int> host_of_rank;
};
const std::vector<Placement>& all_placements();

// main() of a test program with these suites.
int suites_main(int argc, char** argv);

class SuitesTest : public HostRanksTest {
 protected:
  // Ranks on new hosts, each of which goes through that share. `wanted` says the rest.
  void start_suite(const Suite& suite, const Placement& placement, const Share& share, HostRanks wanted);

  // How a rank that has exited in good order got on.
  struct Ending {
    bool through = false;             // with right results of all cases
    std::optional<size_t> failed_at;  // or the case in which the library failed
    std::string error;
  };
  Ending ending_of(int rank) const;

  size_t num_cases_ = 0, num_planned_ = 0;  // of the list, and of the share
};

}  // namespace switchyard::testing
