#include "tools/bench_report.hpp"

#include <fmt/format.h>

#include <string>

namespace switchyard::tools {
namespace {

constexpr double kMega = 1e6;

void print_baseline(const nlohmann::json& baseline) {
  const auto name = baseline["name"].get<std::string>();
  if (baseline.contains("unavailable")) {
    fmt::print("  baseline {}: unavailable: {}\n", name, baseline["unavailable"].get<std::string>());
    return;
  }
  fmt::print("  baseline {}: {:.1f} us, speedup {:.2f}\n", name, baseline["round_trip_us"]["p50"].get<double>(),
             baseline["speedup"].get<double>());
}

}  // namespace

void print_run(const nlohmann::json& run) {
  fmt::print(
      "{} {}, {} ranks{} on {} node(s), {} tokens each, hidden {}, top-{} of {} experts, {}, quant {}, {}, seed {}\n",
      run["mode"].get<std::string>(), run["layout"].get<std::string>(), run["ranks"].get<int>(),
      run["threads"].get<bool>() ? " (threads)" : "", run["nodes"].get<int>(), run["tokens"].get<int>(),
      run["hidden"].get<int>(), run["topk"].get<int>(), run["experts"].get<int>(), run["dtype"].get<std::string>(),
      run["quant"].get<std::string>(), run["zero_copy"].get<bool>() ? "windows" : "plain tensors",
      run["seed"].get<uint64_t>());
  const nlohmann::json& machine = run["machine"];
  fmt::print("  {}, {} cores, load {:.1f} before; {}\n", machine["cpu"].get<std::string>(),
             machine["usable_cores"].get<int>(), machine["load"].get<double>(), run["build"].get<std::string>());
  fmt::print("  {:<12}{:>12}{:>12}{:>12}{:>10}  us, slowest rank, {} iterations\n", "", "p50", "p95", "bound", "MB",
             run["iters"].get<int>());
  for (const std::string phase : {"dispatch", "combine", "round_trip"}) {
    const nlohmann::json& times = run[phase + "_us"];
    const std::string bytes =
        run["bytes"].contains(phase) ? fmt::format("{:.2f}", run["bytes"][phase].get<double>() / kMega) : "";
    fmt::print("  {:<12}{:>12.1f}{:>12.1f}{:>12.1f}{:>10}\n", phase, times["p50"].get<double>(),
               times["p95"].get<double>(), run["bound_us"][phase].get<double>(), bytes);
  }
  fmt::print("  {:.2f} x the bound; post {:.2f} us; {:.2f} MB of buffers a rank; {}\n",
             run["bound_ratio"].get<double>(), run["post_us"]["hot"]["p50"].get<double>(),
             run["memory_bytes_per_rank"].get<double>() / kMega,
             run["verify"].get<bool>() ? fmt::format("{} errors", run["errors"].get<uint64_t>()) : "not verified");
  if (run.contains("network_us")) {
    fmt::print("  plain libfabric: {:.1f} us for {:.2f} MB there, {:.1f} us for {:.2f} MB back; {:.2f} x (bound + network)\n",
               run["network_us"]["dispatch"].get<double>(), run["network_bytes"]["dispatch"].get<double>() / kMega,
               run["network_us"]["combine"].get<double>(), run["network_bytes"]["combine"].get<double>() / kMega,
               run["network_bound_ratio"].get<double>());
  }
  if (run.contains("network_rows")) {
    fmt::print("  {} rows crossed between nodes each round trip, {} must (tokens x other nodes, there and back); {:.3f} x their bytes\n",
               run["network_rows"]["counted"].get<uint64_t>(), run["network_rows"]["bound"].get<uint64_t>(),
               run["network_row_bytes"]["counted"].get<double>() / run["network_row_bytes"]["bound"].get<double>());
  }
  for (const nlohmann::json& baseline : run["baselines"]) print_baseline(baseline);
}

void print_figures(const nlohmann::json& figures) {
  fmt::print("{:<68}{:>10}{:>16}  {}\n", "figure", "value", "target", "");
  for (const nlohmann::json& figure : figures) {
    const auto name = figure["name"].get<std::string>();
    if (figure.contains("error")) {
      fmt::print("{:<68}{:>10}{:>16}  {}\n", name, "-", "", figure["error"].get<std::string>());
      continue;
    }
    if (!figure.contains("target")) {  // stands beside another
      fmt::print("{:<68}{:>10.2f}\n", name, figure["value"].get<double>());
      continue;
    }
    const std::string target =
        fmt::format("{} {:.2f} {}", figure["at_most"].get<bool>() ? "<=" : ">=", figure["target"].get<double>(),
                    figure["unit"].get<std::string>());
    fmt::print("{:<68}{:>10.2f}{:>16}  {}\n", name, figure["value"].get<double>(), target,
               figure["ok"].get<bool>() ? "ok" : "MISSED");
  }
}

}  // namespace switchyard::tools
