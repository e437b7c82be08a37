// `switchyard bench gin`: a short run over every backend has all its numbers, and bad options are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "net/net.hpp"
#include "tool_process.hpp"
#include "tools/bench_launch.hpp"

namespace switchyard::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(BenchGin, MeasuresEveryBackendBesideTheRawOne) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  const std::string path = folder.value().path() + "/gin.json";
  std::set<std::string> expected{"lsa mem", "direct mem", "proxy mem"};
  std::string nets = "mem";
  if (find_net_plugin("ofi").ok()) {
    nets += ",ofi";
    expected.insert({"direct ofi", "proxy ofi"});
  }
  const Captured bench =
      run_tool({"bench", "gin", "--rounds", "2", "--sizes", "8,65536", "--net", nets, "--json", path});
  ASSERT_EQ(bench.report.exit_code, 0) << bench.error << bench.output;
  const auto results = read_json(path);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  std::set<std::string> seen;
  for (const nlohmann::json& run : results.value()["runs"]) {
    const std::string name = run["backend"].get<std::string>() + " " + run["net"].get<std::string>();
    seen.insert(name);
    for (const char* key : {"rate_mps", "raw_rate_mps", "post_ns", "raw_post_ns", "gbps", "raw_gbps", "raw_rtt_us",
                            "rtt_ratio", "bandwidth_ratio"}) {
      EXPECT_GT(run[key].get<double>(), 0) << name << " " << key;
    }
    EXPECT_GT(run["rtt_us"]["p50"].get<double>(), 0) << name;
    EXPECT_GE(run["rtt_us"]["p95"].get<double>(), run["rtt_us"]["p50"].get<double>()) << name;
    EXPECT_GE(run["raw_rtt_p95_us"].get<double>(), run["raw_rtt_us"].get<double>()) << name;
  }
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(results.value()["runs"].size(), 2 * expected.size());
  for (const nlohmann::json& bulk : results.value()["behind_bulk"]) {
    EXPECT_GT(bulk["bulk_puts"].get<uint64_t>(), 0u) << "nothing stood in the way";
    EXPECT_GT(bulk["p95_ratio"].get<double>(), 0);
  }
}

TEST(BenchGin, SaysWhatLiesOverTheNetwork) {
  const std::vector<std::string> command{"bench", "gin",   "--rounds", "1",         "--sizes",
                                         "8",     "--net", "mem",      "--backend", "direct"};
  EXPECT_THAT(run_tool(command).output, Not(HasSubstr("SWITCHYARD_NET")));
  const Captured decorated = run_tool(command, {"SWITCHYARD_NET_CHECKSUM=1", "SWITCHYARD_NET_FAULTS=delay=0.01:10us"});
  EXPECT_EQ(decorated.report.exit_code, 0) << decorated.error;
  EXPECT_THAT(decorated.output, HasSubstr("SWITCHYARD_NET_CHECKSUM is on"));
  EXPECT_THAT(decorated.output, HasSubstr("SWITCHYARD_NET_FAULTS=delay=0.01:10us"));
}

TEST(BenchGin, RefusesBadOptions) {
  EXPECT_THAT(run_tool({"bench", "gin", "--backend", "pigeon"}).error, HasSubstr("pigeon"));
  EXPECT_THAT(run_tool({"bench", "gin", "--backend", "lsa", "--net", "ofi"}).error, HasSubstr("nothing to measure"));
  EXPECT_THAT(run_tool({"bench", "gin", "--sizes", "4"}).error, HasSubstr("4"));
  EXPECT_THAT(run_tool({"bench", "gin", "--net", "pigeon", "--backend", "direct"}).error, HasSubstr("no network plugin 'pigeon'"));
  EXPECT_THAT(run_tool({"bench", "gin", "--json", "/no/such/folder/gin.json"}).error, HasSubstr("cannot write"));
}

}  // namespace
}  // namespace switchyard::tools
