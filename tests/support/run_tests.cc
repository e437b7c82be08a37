#include "support/run_tests.hpp"

#include <gtest/gtest.h>

#include <cstdio>

namespace switchyard::testing {
namespace {

// At the end, so that it is not lost among what passed.
int print_skipped() {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  int num_skipped = 0;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!test.should_run() || !test.result()->Skipped()) continue;
      ++num_skipped;
      const int num_parts = test.result()->total_part_count();
      printf("skipped: %s.%s: %s\n", suite.name(), test.name(),
             num_parts == 0 ? "" : test.result()->GetTestPartResult(num_parts - 1).message());
    }
  }
  return num_skipped;
}

}  // namespace

int run_tests(int& argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  return print_skipped() > 0 && result == 0 ? kSkippedExitCode : result;
}

}  // namespace switchyard::testing
