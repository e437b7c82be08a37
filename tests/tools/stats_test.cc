#include "bench/stats.hpp"

#include <gtest/gtest.h>

namespace switchyard::bench {
namespace {

TEST(Percentile, IsTheSampleThatSoManyPercentDoNotExceed) {
  const std::vector<double> samples{50, 10, 40, 20, 30};
  EXPECT_EQ(percentile(samples, 50), 30);
  EXPECT_EQ(percentile(samples, 95), 50);
  EXPECT_EQ(percentile(samples, 100), 50);
  EXPECT_EQ(percentile(samples, 20), 10);
  EXPECT_EQ(percentile(samples, 21), 20);
}

TEST(Percentile, OfOneSampleIsThatSample) { EXPECT_EQ(percentile({7}, 1), 7); }

}  // namespace
}  // namespace switchyard::bench
