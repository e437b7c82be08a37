#include "capi/host_values.h"

#include <gtest/gtest.h>

extern "C" const long long host_values[];
extern "C" const long long nvidia_values[];

namespace {

TEST(HostFlavour, GivesEveryNameTheValueThatNvidiasHeadersGiveIt) {
#define SWITCHYARD_NAME(name) #name,
  const char* const names[] = {SWITCHYARD_HOST_VALUES(SWITCHYARD_NAME) "sizeof(ncclConfig_t)"};
  for (size_t idx = 0; idx < std::size(names); ++idx) EXPECT_EQ(host_values[idx], nvidia_values[idx]) << names[idx];
}

}  // namespace
