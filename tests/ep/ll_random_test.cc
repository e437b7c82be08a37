// Random cases, found and shrunk by RapidCheck. A failure prints the smallest case it could find and the RC_PARAMS that
// bring it back.
#include "ep/ll_random.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "ep/random_cases.hpp"
#include "ep/random_draws.hpp"

namespace switchyard::testing {
namespace {

constexpr uint64_t kDefaultNumCases = 5'000;
constexpr int kMaxRanks = 8;

TEST(LowLatencyRandom, EveryCaseMatchesTheOracle) {
  set_num_cases(kDefaultNumCases);
  RankPool pool;
  const bool passed = rc::check("a round trip gives every rank what the oracle says", [&] {
    const ll_random::Case random_case = ll_random::draw_case(between(1, kMaxRanks));
    RC_LOG() << random_case.name() << "\n";
    const LlScenario scenario = random_case.scenario();
    const std::string faults = pool.run(random_case.shape.num_ranks, {}, [&](Communicator& comm, StreamRef stream) {
      return run_ll_case(comm, stream, scenario, random_case.mode_of(comm.rank()));
    });
    if (!faults.empty()) RC_FAIL(faults);
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace switchyard::testing
