#include "base/env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <string>

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseFlagTest, AcceptsTheThreeSpellingsOfEachInAnyCase) {
  for (const char* on : {"1", "on", "ON", "true", "True"}) EXPECT_EQ(parse_flag(on), true) << on;
  for (const char* off : {"0", "off", "Off", "false", "FALSE"}) EXPECT_EQ(parse_flag(off), false) << off;
}

TEST(ParseFlagTest, RefusesEverythingElse) {
  for (const char* other : {"", "2", "yes", "on ", " on", "tru"}) EXPECT_EQ(parse_flag(other), std::nullopt) << other;
}

TEST(ParseNumberTest, AcceptsWholeNumbersInsideTheRangeWithItsEnds) {
  EXPECT_EQ(parse_number("16", 16, 32), 16u);
  EXPECT_EQ(parse_number("32", 16, 32), 32u);
  EXPECT_EQ(parse_number("18446744073709551615", 0, std::numeric_limits<uint64_t>::max()),
            std::numeric_limits<uint64_t>::max());
}

TEST(ParseNumberTest, RefusesWhatIsOutsideOrNotAWholeNumber) {
  for (const char* other : {"15", "33", "", "-1", "+20", "20 ", " 20", "20ms", "0x20", "2e1", "18446744073709551616"}) {
    EXPECT_EQ(parse_number(other, 16, 32), std::nullopt) << other;
  }
}

// Output and warnings of a fresh process with these assignments and no others of ours.
std::string probe(const std::string& assignments) {
  const std::string command = "env -i " + assignments + " " ENV_PROBE " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::string output;
  char buffer[512];
  while (pipe && fgets(buffer, sizeof(buffer), pipe.get())) output += buffer;
  return output;
}

TEST(EnvTest, AnEmptyEnvironmentGivesTheDocumentedDefaults) {
  EXPECT_EQ(probe(""),
            "log_level 1\nnode_id -1\ntimeout_ms 30000\nheartbeat_ms 1000\npin 0\nnet ''\nnet_checksum 0\nnet_data_bytes 8\nnet_faults ''\n"
            "interface ''\npoll_us 200\ntrace_records 16384\nep_timeout_ms -1\nep_debug 0\nep_env_verbose 0\nfailpoint 0\n");
}

TEST(EnvTest, EveryVariableReachesItsField) {
  EXPECT_EQ(
      probe("SWITCHYARD_LOG=error SWITCHYARD_NODE_ID=3 SWITCHYARD_TIMEOUT_MS=5 SWITCHYARD_HEARTBEAT_MS=250 "
            "SWITCHYARD_PIN=on SWITCHYARD_NET=ofi SWITCHYARD_NET_CHECKSUM=1 SWITCHYARD_NET_DATA_BYTES=4 SWITCHYARD_NET_FAULTS=flip=1 SWITCHYARD_INTERFACE=eth1,eth2 "
            "SWITCHYARD_POLL_US=0 SWITCHYARD_TRACE_RECORDS=64 "
            "NCCL_EP_TIMEOUT_MS=7 NCCL_EP_DEBUG=1 NCCL_EP_ENV_VERBOSE=true SWITCHYARD_FAILPOINTS=probe.point=error"),
      "log_level 0\nnode_id 3\ntimeout_ms 5\nheartbeat_ms 250\npin 1\nnet 'ofi'\nnet_checksum 1\nnet_data_bytes 4\nnet_faults 'flip=1'\n"
      "interface 'eth1' 'eth1' 'eth2'\npoll_us 0\ntrace_records 64\n"
      "ep_timeout_ms 7\nep_debug 1\nep_env_verbose 1\nfailpoint 1\n");
}

TEST(EnvTest, AMalformedNumberIsWarnedAboutAndTheDefaultStays) {
  const std::string output = probe("SWITCHYARD_TIMEOUT_MS=soon");
  EXPECT_THAT(output, HasSubstr("SWITCHYARD_TIMEOUT_MS='soon' is ignored; allowed: a number from 1 to 86400000"));
  EXPECT_THAT(output, HasSubstr("timeout_ms 30000\n"));
}

TEST(EnvTest, AMalformedFlagOrLevelIsWarnedAbout) {
  EXPECT_THAT(probe("SWITCHYARD_PIN=yes"), HasSubstr("SWITCHYARD_PIN='yes' is ignored"));
  EXPECT_THAT(probe("SWITCHYARD_LOG=loud"), HasSubstr("SWITCHYARD_LOG='loud' is ignored"));
}

TEST(EnvTest, ATraceCapacityThatIsNoPowerOfTwoIsRefused) {
  const std::string output = probe("SWITCHYARD_TRACE_RECORDS=100");
  EXPECT_THAT(output, HasSubstr("a power of two"));
  EXPECT_THAT(output, HasSubstr("trace_records 16384\n"));
}

TEST(EnvTest, MalformedFailpointsAreWarnedAboutAndIgnored) {
  const std::string output = probe("SWITCHYARD_FAILPOINTS=probe.point=error,probe.point=explode");
  EXPECT_THAT(output, HasSubstr("SWITCHYARD_FAILPOINTS is ignored"));
  EXPECT_THAT(output, HasSubstr("explode"));
  EXPECT_THAT(output, HasSubstr("failpoint 0\n"));
}

TEST(EnvTest, CorrectSettingsAreNotCommentedOn) {
  EXPECT_THAT(probe("SWITCHYARD_LOG=warn SWITCHYARD_PIN=off"), Not(HasSubstr("ignored")));
}

TEST(EnvTest, AListKeepsEveryNameAlsoEmptyOnes) {
  EXPECT_THAT(probe("SWITCHYARD_INTERFACE=lo,lo"), HasSubstr("interface 'lo' 'lo' 'lo'\n"));
  EXPECT_THAT(probe("SWITCHYARD_INTERFACE=a,,b,"), HasSubstr("interface 'a' 'a' '' 'b' ''\n"));
}

}  // namespace
}  // namespace switchyard
