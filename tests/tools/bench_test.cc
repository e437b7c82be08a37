// `switchyard bench ep`: small runs whose results must be right and complete, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "bench/ep/plan.hpp"
#include "tool_process.hpp"
#include "tools/bench_launch.hpp"

namespace switchyard::tools {
namespace {

using testing::HasSubstr;

std::vector<std::string> small_run(std::vector<std::string> more) {
  std::vector<std::string> arguments{"bench",  "ep", "--ranks",   "2", "--tokens", "4", "--hidden", "128",
                                     "--topk", "3",  "--experts", "5", "--iters",  "3", "--warmup", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The file's only run, after the command itself went well.
nlohmann::json measure(std::vector<std::string> arguments) {
  const auto folder = TemporaryFolder::create();
  if (!folder.ok()) {
    ADD_FAILURE() << folder.status().to_string();
    return {};
  }
  const std::string path = folder.value().path() + "/result.json";
  arguments.insert(arguments.end(), {"--json", path});
  const Captured bench = run_tool(std::move(arguments));
  EXPECT_EQ(bench.report.exit_code, 0) << bench.error << bench.output;
  EXPECT_THAT(bench.output, HasSubstr("round_trip"));
  const auto results = read_json(path);
  if (!results.ok() || results.value()["runs"].size() != 1) {
    ADD_FAILURE() << "no result: " << bench.error;
    return {};
  }
  return results.value()["runs"][0];
}

void expect_percentiles(const nlohmann::json& times) {
  EXPECT_GT(times["p50"].get<double>(), 0);
  EXPECT_GE(times["p95"].get<double>(), times["p50"].get<double>());
}

TEST(BenchEp, WritesEveryKeyOfASmallRun) {
  const nlohmann::json run =
      measure({"bench", "ep", "--ranks", "2", "--tokens", "4", "--hidden", "64", "--iters", "3"});
  ASSERT_TRUE(run.is_object());
  EXPECT_EQ(run["mode"], "ll");
  EXPECT_EQ(run["layout"], "em");
  EXPECT_EQ(run["platform"], "host");
  EXPECT_EQ(run["net"], "mem");
  EXPECT_EQ(run["ranks"], 2);
  EXPECT_EQ(run["nodes"], 1);
  EXPECT_EQ(run["tokens"], 4);
  EXPECT_EQ(run["hidden"], 64);
  EXPECT_EQ(run["topk"], 8);
  EXPECT_EQ(run["experts"], 256);
  EXPECT_EQ(run["dtype"], "bf16");
  EXPECT_EQ(run["zero_copy"], false);
  EXPECT_EQ(run["errors"], 0);
  // 2 ranks x 4 tokens x 8 experts x 128 bytes.
  EXPECT_EQ(run["bytes"]["dispatch"], 8192);
  EXPECT_EQ(run["bytes"]["combine"], 8192);
  for (const char* phase : {"dispatch", "combine", "round_trip"}) {
    expect_percentiles(run[std::string(phase) + "_us"]);
    EXPECT_GT(run["bound_us"][phase].get<double>(), 0) << phase;
  }
  EXPECT_GT(run["bound_ratio"].get<double>(), 0);
  EXPECT_GT(run["memory_bytes_per_rank"].get<uint64_t>(), 0u);
  expect_percentiles(run["post_us"]["hot"]);
  EXPECT_TRUE(run["baselines"].empty());
  EXPECT_GT(run["machine"]["cores"].get<int>(), 0);
}

class BenchEpModes : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(BenchEpModes, MeasureAndFindNoErrors) {
  const nlohmann::json run = measure(small_run(GetParam()));
  ASSERT_TRUE(run.is_object());
  EXPECT_TRUE(run["verify"].get<bool>());
  EXPECT_EQ(run["errors"], 0);
}

INSTANTIATE_TEST_SUITE_P(All, BenchEpModes,
                         ::testing::Values(std::vector<std::string>{"--zero-copy"},
                                           std::vector<std::string>{"--layout", "rm"},
                                           std::vector<std::string>{"--layout", "rm", "--zero-copy", "--ranks", "3"},
                                           std::vector<std::string>{"--dtype", "fp16"},
                                           std::vector<std::string>{"--dtype", "fp32", "--skew", "2"},
                                           std::vector<std::string>{"--quant", "fp8"},
                                           std::vector<std::string>{"--quant", "fp8", "--zero-copy"},
                                           std::vector<std::string>{"--quant", "nvfp4"},
                                           std::vector<std::string>{"--threads", "--ranks", "4"},
                                           std::vector<std::string>{"--mode", "ht", "--layout", "flat"},
                                           std::vector<std::string>{"--mode", "ht", "--layout", "em", "--zero-copy"}));

// Each token crosses once to each other node that needs it, and comes back once.
TEST(BenchEp, CountsTheRowsOfHighThroughputBetweenNodes) {
  const nlohmann::json run = measure(small_run({"--mode", "ht", "--layout", "flat", "--ranks", "4", "--nodes", "2"}));
  ASSERT_TRUE(run.is_object());
  EXPECT_EQ(run["errors"], 0);
  EXPECT_GT(run["network_rows"]["bound"].get<double>(), 0);
  EXPECT_EQ(run["network_rows"]["counted"].get<double>(), run["network_rows"]["bound"].get<double>());
  // Half of the rows are tokens, which bring their weights along, in units of 16 bytes.
  const double num_weight_bytes = std::ceil(run["topk"].get<double>() * sizeof(float) / 16) * 16;
  EXPECT_EQ(run["network_row_bytes"]["counted"].get<double>(),
            run["network_row_bytes"]["bound"].get<double>() + run["network_rows"]["bound"].get<double>() / 2 * num_weight_bytes);
}

TEST(BenchEp, MeasuresHighThroughputBesideGatherAndScatter) {
  const nlohmann::json run = measure(small_run({"--mode", "ht", "--layout", "flat", "--baselines"}));
  ASSERT_TRUE(run.is_object());
  ASSERT_EQ(run["baselines"].size(), 2u);
  for (const nlohmann::json& baseline : run["baselines"]) {
    if (baseline["name"] != "all-gather + reduce-scatter") continue;
    expect_percentiles(baseline["round_trip_us"]);
    expect_percentiles(baseline["in_a_row_us"]);
  }
  expect_percentiles(run["in_a_row_us"]);
}

TEST(BenchEp, SweepsBothModesAndPicksTheFasterAtEachSize) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const std::string path = folder.value().path() + "/result.json";
  const Captured bench = run_tool(small_run({"--mode", "auto", "--json", path}));
  ASSERT_EQ(bench.report.exit_code, 0) << bench.error;
  const auto results = read_json(path);
  ASSERT_TRUE(results.ok());
  const nlohmann::json& sweep = results.value()["sweep"];
  ASSERT_EQ(sweep.size(), 2u) << "1 and 4 tokens";
  int crossover = -1;  // from where on high throughput is picked at all sizes
  std::vector<int> slower, slower_apart;
  for (const nlohmann::json& size : sweep) {
    const bool ht = size["ht_us"].get<double>() < size["ll_us"].get<double>();
    EXPECT_EQ(size["pick"], ht ? "ht" : "ll");
    crossover = !ht ? -1 : crossover < 0 ? size["tokens"].get<int>() : crossover;
    const double speedup = size["gather_scatter_in_a_row_us"].get<double>() / size["ht_in_a_row_us"].get<double>();
    EXPECT_NEAR(size["speedup_in_a_row"].get<double>(), speedup, 1e-6);
    if (speedup < 1) slower.push_back(size["tokens"]);
    if (size["gather_scatter_us"].get<double>() < size["ht_us"].get<double>()) slower_apart.push_back(size["tokens"]);
  }
  EXPECT_EQ(results.value()["crossover_tokens"], crossover < 0 ? nlohmann::json() : nlohmann::json(crossover));
  EXPECT_EQ(results.value()["slower_than_gather_scatter"], nlohmann::json(slower));
  EXPECT_EQ(results.value()["slower_than_gather_scatter_apart"], nlohmann::json(slower_apart));
  EXPECT_THAT(bench.output, HasSubstr(text("in a row, high throughput is ", slower.empty() ? "no slower" : "SLOWER")));
  EXPECT_THAT(bench.output, HasSubstr(text("from a common start, high throughput is ", slower_apart.empty() ? "no slower" : "SLOWER")));
  EXPECT_THAT(bench.output, HasSubstr(crossover < 0 ? "low latency is faster at the greatest" : "high throughput is faster from"));
}

TEST(BenchEp, MeasuresTheBaselineOrSaysWhyNot) {
  const nlohmann::json run = measure(small_run({"--baselines"}));
  ASSERT_TRUE(run.is_object());
  ASSERT_EQ(run["baselines"].size(), 1u);
  const nlohmann::json& baseline = run["baselines"][0];
  EXPECT_EQ(baseline["name"], "permute + MPI_Alltoallv");
  if (baseline.contains("unavailable")) {
    EXPECT_NE(baseline["unavailable"], "");
  } else {
    expect_percentiles(baseline["round_trip_us"]);
    EXPECT_GT(baseline["speedup"].get<double>(), 0);
  }
}

TEST(BenchEp, SaysThatTheBaselineIsUnavailableWithoutMpirun) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const std::string path = folder.value().path() + "/result.json";
  const Captured bench = run_tool(small_run({"--baselines", "--json", path}), {"PATH=" + folder.value().path()});
  EXPECT_EQ(bench.report.exit_code, 0) << bench.error;
  EXPECT_THAT(bench.output, HasSubstr("unavailable"));
  const auto results = read_json(path);
  ASSERT_TRUE(results.ok());
  EXPECT_NE(results.value()["runs"][0]["baselines"][0]["unavailable"], "");
}

void expect_refused(std::vector<std::string> options, const std::string& reason) {
  std::vector<std::string> arguments{"bench", "ep"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Captured bench = run_tool(arguments);
  EXPECT_EQ(bench.report.exit_code, 2) << reason;
  EXPECT_THAT(bench.error, HasSubstr(reason));
}

TEST(BenchEp, RefusesBadOptionsAndSaysWhatIsAllowed) {
  expect_refused({"--topk", "9", "--experts", "8"}, "--topk is 9, allowed 1..8");
  expect_refused({"--hidden", "100", "--quant", "fp8"}, "--hidden is 100, must be a multiple of 128");
  expect_refused({"--hidden", "4"}, "--hidden is 4, must be a multiple of 8");
  expect_refused({"--quant", "fp8", "--dtype", "fp32"}, "--quant fp8 needs --dtype bf16");
  expect_refused({"--ranks", "2", "--nodes", "3"}, "--nodes is 3, allowed 1..2");
  expect_refused({"--threads", "--nodes", "2"}, "--threads and --nodes exclude each other");
  expect_refused({"--layout", "diagonal"}, "--layout");
  expect_refused({"--tokens", "0"}, "--tokens");
  expect_refused({"--tokens", "1000000", "--hidden", "65536"}, "GB of memory, this machine has");
  expect_refused({"--mode", "fast"}, "--mode");
  expect_refused({"--mode", "auto", "--layout", "em"}, "leave out --layout");
  expect_refused({"--mode", "auto", "--baselines"}, "leave out --baselines");
  expect_refused({"--json", "/no/such/folder/result.json"}, "cannot write '/no/such/folder/result.json'");
#if !defined(SWITCHYARD_HAVE_CUDA)
  expect_refused({"--platform", "cuda"}, "built without CUDA");
#endif
}

TEST(BenchEp, ShowsWhatARankSaidWhenItFails) {
  const Captured bench = run_tool(small_run({}), {"SWITCHYARD_FAILPOINTS=ep.before_post=error@5#1"});
  EXPECT_EQ(bench.report.exit_code, 1);
  EXPECT_THAT(bench.error, HasSubstr("[1] switchyard bench: failpoint ep.before_post"));
}

TEST(BenchPlan, PlacesRowsBySourceTokenAndExpert) {
  bench::EpSpec spec;
  spec.ranks = 3;
  spec.tokens = 7;
  spec.experts = 8;
  spec.topk = 3;
  for (const char* layout : {"em", "rm"}) {
    spec.layout = layout;
    const bench::EpPlan plan(spec);
    // Inside a block rows follow each other without gaps, and no two share a place.
    std::vector<std::vector<std::vector<size_t>>> places(3);
    for (int owner = 0; owner < 3; owner++) places[size_t(owner)].resize(spec.outer(owner));
    for (const bench::RowRoute& route : plan.rows()) {
      places[size_t(route.owner)][route.row / spec.inner()].push_back(route.row % spec.inner());
    }
    for (int owner = 0; owner < 3; owner++) {
      for (size_t block = 0; block < spec.outer(owner); block++) {
        const auto& rows = places[size_t(owner)][block];
        EXPECT_EQ(rows.size(), size_t(plan.counters(owner)[block]));
        for (size_t i = 0; i < rows.size(); i++) EXPECT_EQ(rows[i], i);
      }
    }
  }
}

}  // namespace
}  // namespace switchyard::tools
