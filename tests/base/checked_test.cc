#include "base/checked.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace switchyard {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(CheckedTest, SumsAreExactUpToTheLastValueAndNothingBeyond) {
  EXPECT_EQ(checked_add<uint64_t>(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add<uint64_t>(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add<int32_t>(std::numeric_limits<int32_t>::min(), -1), std::nullopt);
}

TEST(CheckedTest, ProductsAreExactUpToTheLastValueAndNothingBeyond) {
  EXPECT_EQ(checked_mul<uint64_t>(uint64_t(1) << 32, (uint64_t(1) << 32) - 1), kMax - (uint64_t(1) << 32) + 1);
  EXPECT_EQ(checked_mul<uint64_t>(uint64_t(1) << 32, uint64_t(1) << 32), std::nullopt);
  EXPECT_EQ(checked_mul<uint32_t>(0, std::numeric_limits<uint32_t>::max()), 0u);
}

TEST(CheckedTest, ARangeFitsUpToTheLastByte) {
  EXPECT_TRUE(range_fits(0, 16, 16));
  EXPECT_TRUE(range_fits(16, 0, 16));
  EXPECT_FALSE(range_fits(1, 16, 16));
  EXPECT_FALSE(range_fits(17, 0, 16));
}

TEST(CheckedTest, ARangeWhoseEndWrapsAroundDoesNotFit) {
  EXPECT_FALSE(range_fits(kMax, 2, 16));
  EXPECT_FALSE(range_fits(8, kMax - 4, 16));
}

TEST(CheckedTest, RoundingUpKeepsMultiples) {
  EXPECT_EQ(round_up(0, 16), 0u);
  EXPECT_EQ(round_up(1, 16), 16u);
  EXPECT_EQ(round_up(32, 16), 32u);
  EXPECT_EQ(div_up(33, 16), 3u);
  EXPECT_EQ(div_up(32, 16), 2u);
}

TEST(CheckedTest, AnUntrustedNumberComesOutOnlyInsideItsRange) {
  const Untrusted<int32_t> number(-1);
  EXPECT_EQ(number.within(0, 10), std::nullopt);
  EXPECT_EQ(number.within(-1, -1), -1);
  EXPECT_EQ(Untrusted<uint32_t>(11).within(0, 10), std::nullopt);
  EXPECT_EQ(Untrusted<uint32_t>(10).within(0, 10), 10u);
}

}  // namespace
}  // namespace switchyard
