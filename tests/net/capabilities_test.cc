// What a network must be able to do, and that one which is not is refused with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/net.hpp"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;

TEST(Capabilities, APluginThatLacksOneIsRefusedByItsName) {
  constexpr NetCapabilities kNone{false, false, false, false, 0};
  const NetPlugin able{"able", {true, true, true, true, 4096}, nullptr}, lame{"lame", kNone, nullptr};
  struct Row {
    NetCapabilities needs;
    const char* missing;
  };
  const Row rows[] = {{{true, false, false, false, 0}, "signals that follow their data"},
                      {{false, true, false, false, 0}, "ordered puts"},
                      {{false, false, true, false, 0}, "progress without the target"},
                      {{false, false, false, true, 0}, "access to GPU memory"},
                      {{false, false, false, false, 4096}, "messages that large"}};
  for (const Row& row : rows) {
    EXPECT_TRUE(check_capabilities(able, row.needs).ok()) << row.missing;
    const Status refused = check_capabilities(lame, row.needs);
    EXPECT_EQ(refused.code(), Code::kInvalidUsage);
    EXPECT_THAT(refused.message(), HasSubstr(text("network plugin 'lame' can't be used: it lacks ", row.missing)));
  }
  EXPECT_TRUE(check_capabilities(lame, kNone).ok());
}

}  // namespace
}  // namespace switchyard::testing
