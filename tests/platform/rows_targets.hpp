// Runs a check once for each instruction set that this machine can run.
#pragma once
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <set>
#include <string>

#include "platform/host/rows.hpp"

namespace switchyard {

template <class Check>
void on_every_target(Check check) {
  std::set<std::string> seen;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    const std::string name = rows::target_name();
    // A target that was not compiled falls back to one that was.
    if (seen.insert(name).second) {
      SCOPED_TRACE(name);
      check();
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace switchyard
