#include "tools/bench_sweep.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

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

}  // namespace

Result<nlohmann::json> measure_sweep(const bench::EpSpec& base) {
  nlohmann::json runs = nlohmann::json::array(), sweep = nlohmann::json::array(), crossover;
  fmt::print("{} ranks on {} node(s), hidden {}, top-{} of {} experts, {}, {}: round trips in us, p50 of {}\n", base.ranks,
             base.nodes, base.hidden, base.topk, base.experts, base.dtype, base.zero_copy ? "windows" : "plain tensors",
             base.iters);
  fmt::print("{:>8}{:>14}{:>14}{:>28}  {:<6}{:>32}\n", "tokens", "ll", "ht", "all-gather+reduce-scatter", "pick",
             "in a row: ht, all-gather+...");
  for (const int tokens : token_counts(base.tokens)) {
    SWITCHYARD_ASSIGN(nlohmann::json low, run_bench_job(spec_of(base, "ll", tokens)));
    SWITCHYARD_ASSIGN(nlohmann::json high, run_bench_job(spec_of(base, "ht", tokens)));
    const auto p50 = [](const nlohmann::json& times) { return times["round_trip_us"]["p50"].get<double>(); };
    const double ll_us = p50(low), ht_us = p50(high), gather_us = p50(high["baselines"][0]);
    const bool picks_ht = ht_us < ll_us;
    if (!picks_ht) crossover = nullptr;
    else if (crossover.is_null()) crossover = tokens;
    const nlohmann::json& gather = high["baselines"][0];
    const double row_us = high["in_a_row_us"]["p50"], gather_row_us = gather["in_a_row_us"]["p50"];
    fmt::print("{:>8}{:>14.1f}{:>14.1f}{:>28.1f}  {:<6}{:>16.1f}{:>16.1f}\n", tokens, ll_us, ht_us, gather_us,
               picks_ht ? "ht" : "ll", row_us, gather_row_us);
    std::fflush(stdout);
    sweep.push_back({{"tokens", tokens},
                     {"ll_us", ll_us},
                     {"ht_us", ht_us},
                     {"gather_scatter_us", gather_us},
                     {"ht_over_gather_scatter", ht_us / gather_us},
                     {"ht_in_a_row_us", row_us},
                     {"gather_scatter_in_a_row_us", gather_row_us},
                     {"pick", picks_ht ? "ht" : "ll"}});
    runs.push_back(std::move(low));
    runs.push_back(std::move(high));
  }
  if (crossover.is_null()) fmt::print("low latency is faster at the greatest of these sizes\n");
  else fmt::print("high throughput is faster from {} tokens a rank on\n", crossover.get<int>());
  return nlohmann::json{{"runs", std::move(runs)}, {"sweep", std::move(sweep)}, {"crossover_tokens", std::move(crossover)}};
}

}  // namespace switchyard::tools
