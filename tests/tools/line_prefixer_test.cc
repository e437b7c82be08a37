#include "tools/line_prefixer.hpp"

#include <gtest/gtest.h>

namespace switchyard::tools {
namespace {

TEST(LinePrefixer, HoldsALineBackUntilItIsWhole) {
  LinePrefixer lines("[3] ");
  std::string out;
  lines.feed("one", out);
  EXPECT_EQ(out, "");
  lines.feed(" line\nnext", out);
  EXPECT_EQ(out, "[3] one line\n");
}

TEST(LinePrefixer, KeepsEmptyLines) {
  LinePrefixer lines("> ");
  std::string out;
  lines.feed("\n\na\n", out);
  EXPECT_EQ(out, "> \n> \n> a\n");
}

TEST(LinePrefixer, CompletesAnUnfinishedLastLine) {
  LinePrefixer lines("> ");
  std::string out;
  lines.feed("a\nb", out);
  lines.finish(out);
  EXPECT_EQ(out, "> a\n> b\n");
}

TEST(LinePrefixer, AddsNothingWhenTheLastLineIsWhole) {
  LinePrefixer lines("> ");
  std::string out;
  lines.feed("a\n", out);
  lines.finish(out);
  EXPECT_EQ(out, "> a\n");
}

TEST(LinePrefixer, KeepsALineOfExactlyTheLimitWhole) {
  const std::string longest(LinePrefixer::kMaxLineBytes, 'x');
  LinePrefixer lines("> ");
  std::string out;
  lines.feed(longest + "\n", out);
  EXPECT_EQ(out, "> " + longest + "\n");
}

TEST(LinePrefixer, BreaksALineBeyondTheLimitWithoutLosingBytes) {
  const std::string longest(LinePrefixer::kMaxLineBytes, 'x');
  LinePrefixer lines("> ");
  std::string out;
  lines.feed(longest + "yz\n", out);
  EXPECT_EQ(out, "> " + longest + "\n> yz\n");
}

}  // namespace
}  // namespace switchyard::tools
