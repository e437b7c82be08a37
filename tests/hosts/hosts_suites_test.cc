// Whole suites with ranks on machines of their own (suites.hpp), joined by cables that do what they should. What a run
// leaves out of a list, SWITCHYARD_FAULTS_SOAK=1 runs.
//
//   SWITCHYARD_TEST_CASE   of each list only the case of this number, which a failure names
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/env.hpp"
#include "faults/life.hpp"
#include "hosts/suites.hpp"

namespace switchyard::testing {
namespace {

struct Plan {
  Suite suite;
  Placement placement;
  bool proxy;
  Share share;
};
void PrintTo(const Plan& plan, std::ostream* out) {
  *out << "from case " << plan.share.first << " on in steps of " << plan.share.step
       << (plan.proxy ? ", proxy" : ", direct");
}

// Which of direct and proxy a plain run leaves out differs between neighbours, and so do the cases.
std::vector<Plan> plans() {
  const char* wanted = getenv("SWITCHYARD_TEST_CASE");
  const auto only = parse_number(wanted ? wanted : "", 0, 100'000);
  std::vector<Plan> plans;
  size_t idx = 0;
  for (const Suite& suite : all_suites()) {
    for (const Placement& placement : all_placements()) {
      ++idx;
      for (const bool proxy : {false, true}) {
        if (!soaking() && !only && proxy != (idx % 2 != 0)) continue;
        Share share{idx % suite.step, suite.step};
        if (soaking()) share = {0, 1};
        if (only) share = {size_t(*only), 1'000'000};
        plans.push_back({suite, placement, proxy, share});
      }
    }
  }
  return plans;
}

class HostsSuites : public SuitesTest, public ::testing::WithParamInterface<Plan> {};

TEST_P(HostsSuites, EveryCaseGivesWhatItsModelSays) {
  const auto& [suite, placement, proxy, share] = GetParam();
  start_suite(suite, placement, share, {.proxy = proxy});
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(ranks_->wait(Deadline::after_ns((soaking() ? 900 : 120) * kSecond)), "");
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    EXPECT_TRUE(ending_of(rank).through) << ranks_->output(rank);
    EXPECT_NE(ranks_->output(rank).find(text("interface eth0, address ", Hosts::address(host_of(rank)))),
              std::string::npos)
        << ranks_->output(rank);
  }
  printf("%zu of %zu cases on %d ranks\n", num_planned_, num_cases_, ranks_->size());
  RecordProperty("cases", int(num_planned_));
}

INSTANTIATE_TEST_SUITE_P(All, HostsSuites, ::testing::ValuesIn(plans()), [](const auto& instance) {
  const Plan& plan = instance.param;
  return text(plan.suite.body, "_", plan.placement.name, plan.proxy ? "_proxy" : "_direct");
});

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) { return switchyard::testing::suites_main(argc, argv); }
