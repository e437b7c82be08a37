#include "base/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace switchyard {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

Fd open_null() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(FdTest, ClosesItsDescriptorWhenItGoes) {
  int number;
  {
    const Fd fd = open_null();
    number = fd.get();
    ASSERT_TRUE(fd.valid());
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(FdTest, MovingHandsTheDescriptorOver) {
  Fd from = open_null();
  const int number = from.get();
  const Fd to = std::move(from);
  EXPECT_EQ(to.get(), number);
  EXPECT_FALSE(from.valid());  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_TRUE(is_open(number));
}

TEST(FdTest, MoveAssignmentClosesTheOldDescriptorAndSurvivesItself) {
  Fd fd = open_null();
  Fd other = open_null();
  const int old_number = fd.get();
  const int new_number = other.get();
  fd = std::move(other);
  EXPECT_FALSE(is_open(old_number));
  Fd& alias = fd;
  fd = std::move(alias);
  EXPECT_EQ(fd.get(), new_number);
  EXPECT_TRUE(is_open(new_number));
}

}  // namespace
}  // namespace switchyard
