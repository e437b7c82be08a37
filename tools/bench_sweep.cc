#include "tools/bench_sweep.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <vector>

#include "base/log.hpp"
#include "tools/bench_figures.hpp"
#include "tools/bench_launch.hpp"

namespace switchyard::tools {
namespace {

// 1, 4, 16, ... up to what was asked for.
std::vector<int> token_counts(int most) {
  std::vector<int> counts;
  for (int tokens = 1; tokens < most; tokens *= 4) counts.push_back(tokens);
  counts.push_back(most);
  return counts;
}

// Rows once per token and rank in both: rank-major and flat.
bench::EpSpec spec_of(bench::EpSpec spec, const char* mode, int tokens) {
  spec.mode = mode;
  spec.layout = spec.high_throughput() ? "flat" : "rm";
  spec.tokens = tokens;
  spec.gather_scatter = spec.high_throughput();
  spec.bound_to_cores = true;  // else small shapes measure which ranks happened to wait on one core
  return spec;
}

double p50(const nlohmann::json& times, const char* name = "round_trip_us") { return times[name]["p50"].get<double>(); }

// One size: a line of the table.
struct Row {
  int tokens;
  std::optional<double> ll_us;  // nothing: low latency can't do it
  double ht_us, gather_us, ht_row_us, gather_row_us;

  bool picks_ht() const { return !ll_us || ht_us < *ll_us; }
  double speedup() const { return gather_row_us / ht_row_us; }
  double speedup_apart() const { return gather_us / ht_us; }
  void print() const {
    fmt::print("{:>8}{:>14}{:>14.1f}{:>28.1f}  {:<6}{:>14.1f}{:>14.1f}{:>9.2f}\n", tokens, ll_us ? fmt::format("{:.1f}", *ll_us) : "-",
               ht_us, gather_us, picks_ht() ? "ht" : "ll", ht_row_us, gather_row_us, speedup());
    std::fflush(stdout);
  }
  nlohmann::json to_json() const {
    return {{"tokens", tokens},
            {"ll_us", ll_us ? nlohmann::json(*ll_us) : nlohmann::json()},
            {"ht_us", ht_us},
            {"gather_scatter_us", gather_us},
            {"ht_over_gather_scatter", ht_us / gather_us},
            {"ht_in_a_row_us", ht_row_us},
            {"gather_scatter_in_a_row_us", gather_row_us},
            {"speedup_in_a_row", speedup()},
            {"pick", picks_ht() ? "ht" : "ll"}};
  }
};

nlohmann::json crossover_of(const std::vector<Row>& rows) {
  nlohmann::json crossover;
  for (const Row& row : rows) {
    if (!row.picks_ht()) crossover = nullptr;
    else if (crossover.is_null()) crossover = row.tokens;
  }
  return crossover;
}

// Sizes at which high throughput is slower than the baseline.
std::vector<int> slower_sizes(const std::vector<Row>& rows, double (Row::*speedup)() const, const char* when) {
  std::vector<int> slower;
  for (const Row& row : rows) {
    if ((row.*speedup)() < 1) slower.push_back(row.tokens);
  }
  if (slower.empty()) fmt::print("{}, high throughput is no slower than all-gather + reduce-scatter at any of them\n", when);
  else fmt::print("{}, high throughput is SLOWER than all-gather + reduce-scatter at {} tokens\n", when, fmt::join(slower, ", "));
  return slower;
}

}  // namespace

Result<nlohmann::json> measure_sweep(const bench::EpSpec& base) {
  nlohmann::json runs = nlohmann::json::array(), sweep = nlohmann::json::array();
  fmt::print("{} ranks on {} node(s), hidden {}, top-{} of {} experts, {}, {}: round trips in us, p50 of {}\n", base.ranks,
             base.nodes, base.hidden, base.topk, base.experts, base.dtype, base.zero_copy ? "windows" : "plain tensors",
             base.iters);
  fmt::print("{:>8}{:>14}{:>14}{:>28}  {:<6}{:>14}{:>14}{:>9}\n", "tokens", "ll", "ht", "all-gather+reduce-scatter", "pick",
             "in a row: ht", "ag+rs", "faster");
  std::vector<Row> rows;
  for (const int tokens : token_counts(base.tokens)) {
    Result<nlohmann::json> low = run_bench_job(spec_of(base, "ll", tokens));
    SWITCHYARD_ASSIGN(nlohmann::json high, run_bench_job(spec_of(base, "ht", tokens)));
    const nlohmann::json& gather = high["baselines"][0];
    rows.push_back({tokens, low.ok() ? std::optional(p50(*low)) : std::nullopt, p50(high), p50(gather), p50(high, "in_a_row_us"),
                    p50(gather, "in_a_row_us")});
    rows.back().print();
    sweep.push_back(rows.back().to_json());
    if (low.ok()) runs.push_back(std::move(low).value());
    else log(LogLevel::kWarn, "no low latency with ", tokens, " tokens: ", low.status().message());
    runs.push_back(std::move(high));
  }
  const nlohmann::json crossover = crossover_of(rows);
  if (crossover.is_null()) fmt::print("low latency is faster at the greatest of these sizes\n");
  else fmt::print("high throughput is faster from {} tokens a rank on\n", crossover.get<int>());
  const std::vector<int> slower = slower_sizes(rows, &Row::speedup, "in a row");
  const std::vector<int> slower_apart = slower_sizes(rows, &Row::speedup_apart, "from a common start");
  return nlohmann::json{{"runs", std::move(runs)},
                        {"sweep", std::move(sweep)},
                        {"crossover_tokens", crossover},
                        {"slower_than_gather_scatter", slower},
                        {"slower_than_gather_scatter_apart", slower_apart}};
}

}  // namespace switchyard::tools
