// What the tests of protocols share: explore, print the size of the search, expect the verdict.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "model/scenarios.hpp"

namespace switchyard::model {

inline void print_size(const Report& report) {
  std::cout << report.num_executions << " executions, " << report.num_states << " states, depth " << report.max_depth
            << ", " << report.seconds << " s\n";
}

inline void expect_right(const Report& report) {
  print_size(report);
  EXPECT_FALSE(report.violation) << report.to_string();
  EXPECT_TRUE(report.exhaustive) << report.to_string();
}

inline std::string name_of(const ::testing::TestParamInfo<const Scenario*>& scenario) { return scenario.param->name; }

// The short scenarios of a list, or the long ones where SWITCHYARD_MODEL_SOAK is set.
inline std::vector<const Scenario*> chosen(const std::vector<Scenario>& scenarios) {
  const bool wants_long = std::getenv("SWITCHYARD_MODEL_SOAK") != nullptr;
  std::vector<const Scenario*> result;
  for (const Scenario& scenario : scenarios) {
    if (scenario.is_long == wants_long) result.push_back(&scenario);
  }
  return result;
}

constexpr Options kPatient{.time_limit_ns = 1'200 * kSecond};

}  // namespace switchyard::model
