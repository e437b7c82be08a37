#include "switchyard/status.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace switchyard {
namespace {

TEST(StatusTest, ADefaultStatusIsOkAndHasNoMessage) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_TRUE(status.message().empty());
}

TEST(StatusTest, TextNamesTheCodeAndTheMessage) {
  const Status status = Status::invalid_argument(text("hidden is ", 7, ", must be a multiple of ", 8));
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.to_string(), "invalid argument: hidden is 7, must be a multiple of 8");
}

TEST(StatusTest, ASystemErrorSaysWhatErrnoSays) {
  errno = ENOENT;
  const Status status = Status::system_error("open /nowhere");
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_EQ(status.message(), "open /nowhere: No such file or directory");
}

TEST(StatusTest, EveryCodeHasANameOfItsOwn) {
  for (int i = 0; i <= int(Code::kInProgress); ++i) {
    EXPECT_STRNE(code_name(Code(i)), "unknown");
    for (int j = 0; j < i; ++j) EXPECT_STRNE(code_name(Code(i)), code_name(Code(j)));
  }
  EXPECT_STREQ(code_name(Code(99)), "unknown");
}

TEST(StatusTest, CodesEqualThoseOfTheCApi) {
  EXPECT_EQ(int(Code::kSystemError), 2);
  EXPECT_EQ(int(Code::kInvalidArgument), 4);
  EXPECT_EQ(int(Code::kInvalidUsage), 5);
  EXPECT_EQ(int(Code::kRemoteError), 6);
}

TEST(StatusTest, AnErrorCarriesCodeAndTextOfItsStatus) {
  const Error error(Status::remote("rank 3 did not answer"));
  EXPECT_EQ(error.code(), Code::kRemoteError);
  EXPECT_STREQ(error.what(), "remote error: rank 3 did not answer");
}

Result<int> half(int number) {
  if (number % 2 != 0) return Status::invalid_argument(text(number, " is odd"));
  return number / 2;
}

Status quarter(int number, int& out) {
  SWITCHYARD_ASSIGN(const int once, half(number));
  SWITCHYARD_ASSIGN(out, half(once));
  return {};
}

Status quarter_twice(int number, int& out) {
  SWITCHYARD_TRY(quarter(number, out));
  SWITCHYARD_TRY(quarter(out, out));
  return {};
}

TEST(ResultTest, AssignPassesValuesOn) {
  int out = 0;
  EXPECT_TRUE(quarter_twice(32, out).ok());
  EXPECT_EQ(out, 2);
}

TEST(ResultTest, AssignAndTryReturnTheFirstFailure) {
  int out = 0;
  EXPECT_EQ(quarter(6, out).message(), "3 is odd");
  EXPECT_EQ(quarter_twice(24, out).message(), "3 is odd");
}

TEST(ResultTest, HoldsValuesThatCanOnlyMove) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 5);
}

}  // namespace
}  // namespace switchyard
