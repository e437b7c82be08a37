// `bench gin` over libfabric: what it says of the network, and what is left when something fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool_process.hpp"
#include "tools/bench_launch.hpp"

namespace switchyard::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Captured run_over(const char* net) {
  return run_tool({"bench", "gin", "--rounds", "1", "--sizes", "8,65536", "--backend", "direct", "--net", net},
                  {"SWITCHYARD_LOG=info"});
}

TEST(BenchGin, ShowsWhatItsRanksSay) {
  EXPECT_THAT(run_over("ofi").error, HasSubstr("network ofi, provider tcp;ofi_rxm, interface lo, address 127.0.0.1"));
}

// Which refuses an operation where it has no room, and has no connections that could have ended.
TEST(BenchGin, SaysNothingOfConnectionsOverSharedMemory) {
  const Captured bench = run_over("ofi:shm");
  if (bench.report.failed() && bench.error.find("'shm'") != std::string::npos) GTEST_SKIP() << bench.error;
  EXPECT_EQ(bench.report.exit_code, 0) << bench.error;
  EXPECT_THAT(bench.error, HasSubstr("provider shm, device shm, in any order"));
  EXPECT_THAT(bench.error, Not(HasSubstr("made anew")));
}

TEST(BenchGin, KeepsWhatWasMeasuredBeforeAnError) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  const std::string path = folder.value().path() + "/gin.json";
  const Captured bench = run_tool({"bench", "gin", "--rounds", "1", "--sizes", "8", "--backend", "direct", "--net",
                                   "mem,ofi:bogus", "--json", path});
  EXPECT_NE(bench.report.exit_code, 0);
  EXPECT_THAT(bench.error, HasSubstr("provider 'bogus'"));
  const auto results = read_json(path);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  EXPECT_EQ(results.value()["runs"].size(), 1u);
}

}  // namespace
}  // namespace switchyard::tools
