#include "tools/bench_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench_baseline.hpp"
#include "tools/bench_launch.hpp"
#include "tools/bench_report.hpp"

namespace switchyard::tools {
namespace {

// Targets. Ratios hold on any machine; times are of a current server core with more ranks than cores.
constexpr double kMaxBoundRatioWindows = 1.5;
constexpr double kMaxBoundRatioPlain = 1.6;
constexpr double kMinSpeedupWindows = 4.0;
constexpr double kMinSpeedupPlain = 2.0;
constexpr double kMaxVisibleWindows = 0.2;  // of a dispatch that had 10 ms to itself
constexpr double kMaxVisiblePlain = 0.6;    // the receiver's copy remains
constexpr double kMaxLateExtraUs = 100;     // of a rank's 5 ms: nothing but noise
constexpr double kMaxPostHotUs = 5;
constexpr double kMaxPostColdUs = 20;
constexpr double kMaxBarrierUs = 150;
constexpr double kMinPushShare = 0.95;
constexpr double kMaxMemoryMb = 150;

constexpr double kMinHtSpeedupWindows = 2.5;
constexpr double kMinHtSpeedupPlain = 1.3;
constexpr double kMaxNetworkRatio = 1.4;
constexpr double kHtMemorySlack = 64e6;
constexpr int kHtRanks = 4;
constexpr int kHtTokens = 4096;
constexpr int kHtTokensBetweenNodes = 1024;
constexpr int kHtIters = 15;

constexpr int kJobRanks = 2;  // of the figures that are not about many ranks
constexpr int kBarrierRanks = 16;
constexpr int kMaxJobIters = 30;

struct Target {
  double value;
  bool at_most;
  const char* unit;
};
Target at_most(double value, const char* unit) { return {value, true, unit}; }
Target at_least(double value, const char* unit) { return {value, false, unit}; }

class Figures {
 public:
  explicit Figures(const bench::EpSpec& base) : base_(base) {}

  void measure_runs() {
    for (const int num_ranks : {2, 4, 8}) {
      for (const bool windows : {true, false}) measure_ranks(num_ranks, windows);
    }
  }

  void measure_jobs() {
    for (const int num_ranks : {2, 8}) {
      for (const bool windows : {true, false}) {
        add("overlap: visible share of a dispatch", job("overlap", num_ranks, windows), "/share"_json_pointer,
            at_most(windows ? kMaxVisibleWindows : kMaxVisiblePlain, ""));
      }
    }
    for (const bool windows : {true, false}) {
      add("a rank late by 5 ms: the others' sends longer by", job("late_rank", kJobRanks, windows),
          "/extra_us"_json_pointer, at_most(kMaxLateExtraUs, "us"));
    }
    const Measured posts = job("post", kJobRanks, false);
    add("post, worker polling", posts, "/hot_us/p50"_json_pointer, at_most(kMaxPostHotUs, "us"));
    add("post, worker asleep", posts, "/cold_us/p50"_json_pointer, at_most(kMaxPostColdUs, "us"));
    add("waking a thread, for comparison", posts, "/wake_us/p50"_json_pointer, std::nullopt);
    add("world barrier", job("barrier", kBarrierRanks, false), "/barrier_us/p50"_json_pointer,
        at_most(kMaxBarrierUs, "us"));
    add("LSA push: share of the bound's bandwidth", job("push", kJobRanks, true), "/share"_json_pointer,
        at_least(kMinPushShare, ""));
  }

  void measure_low_latency_between_nodes() {
    for (const int num_ranks : {2, 4}) {
      bench::EpSpec spec = this->spec("round_trip", num_ranks, false);
      spec.nodes = 2;
      spec.net = "ofi";
      Measured run = middle_of_three([&] { return Measured{where(num_ranks, false) + ", 2 nodes", measure_run(spec, false)}; });
      add("LL over the network and memory bound", run, "/network_bound_ratio"_json_pointer, at_most(kMaxNetworkRatio, "x"));
      keep(std::move(run));
    }
  }

  // High throughput: one large batch on one node, and over two and three.
  void measure_high_throughput() {
    for (const bool windows : {true, false}) {
      Measured run = high_throughput(kHtRanks, 1, windows, true);
      add("HT round trip over the memory bound", run, "/bound_ratio"_json_pointer,
          at_most(windows ? kMaxBoundRatioWindows : kMaxBoundRatioPlain, "x"));
      add("HT against all-gather + reduce-scatter", run, "/baselines/0/speedup"_json_pointer, at_least(1, "x"));
      add("HT speedup over permute + MPI_Alltoallv", run, "/baselines/1/speedup"_json_pointer,
          at_least(windows ? kMinHtSpeedupWindows : kMinHtSpeedupPlain, "x"));
      keep(std::move(run));
    }
    Measured wide = high_throughput(8, 1, false, false);
    if (wide.result.ok()) {
      nlohmann::json& result = wide.result.value();
      const double received = result["bytes"]["dispatch"].get<double>() / 8;
      result["memory_over"] = (result["memory_bytes_per_rank"].get<double>() - kHtMemorySlack) / received;
    }
    add("HT memory a rank, less 64 MB, over the bytes it receives", wide, "/memory_over"_json_pointer, at_most(2, "x"));
    keep(std::move(wide));
    for (const int num_nodes : {2, 3}) {
      Measured run = middle_of_three([&] { return high_throughput(num_nodes == 2 ? 4 : 3, num_nodes, true, false); });
      if (run.result.ok()) {
        nlohmann::json& result = run.result.value();
        result["rows_over"] = result["network_rows"]["counted"].get<double>() / result["network_rows"]["bound"].get<double>();
      }
      add("HT over the network and memory bound", run, "/network_bound_ratio"_json_pointer, at_most(kMaxNetworkRatio, "x"));
      add("HT rows between nodes over tokens x other nodes", run, "/rows_over"_json_pointer, at_most(1, "x"));
      keep(std::move(run));
    }
  }

  nlohmann::json result() && { return {{"runs", std::move(runs_)}, {"figures", std::move(figures_)}}; }

 private:
  struct Measured {
    std::string where;  // ranks and memory, for the figure's name
    Result<nlohmann::json> result;
  };

  bench::EpSpec spec(const std::string& job_name, int num_ranks, bool windows) const {
    bench::EpSpec spec;
    spec.job = job_name;
    spec.ranks = num_ranks;
    spec.zero_copy = windows;
    spec.seed = base_.seed;
    spec.warmup = base_.warmup;
    spec.verify = base_.verify;
    spec.threads = base_.threads;
    spec.iters = job_name == "round_trip" ? base_.iters : std::min(base_.iters, kMaxJobIters);
    return spec;
  }
  static std::string where(int num_ranks, bool windows) {
    return fmt::format("{} ranks, {}", num_ranks, windows ? "windows" : "plain");
  }
  Measured job(const std::string& job_name, int num_ranks, bool windows) const {
    const bool has_tensors = job_name != "barrier" && job_name != "post";
    return {has_tensors ? where(num_ranks, windows) : fmt::format("{} ranks", num_ranks),
            run_bench_job(spec(job_name, num_ranks, windows))};
  }

  Measured high_throughput(int num_ranks, int num_nodes, bool windows, bool baselines) const {
    bench::EpSpec spec = this->spec("round_trip", num_ranks, windows);
    spec.mode = "ht";
    spec.layout = "flat";
    spec.nodes = num_nodes;
    spec.net = num_nodes > 1 ? "ofi" : "";
    spec.tokens = num_nodes > 1 ? kHtTokensBetweenNodes : kHtTokens;
    spec.iters = std::min(base_.iters, kHtIters);
    spec.warmup = 2;
    std::string place = where(num_ranks, windows);
    if (num_nodes > 1) place += fmt::format(", {} nodes", num_nodes);
    return {std::move(place), measure_run(spec, baselines)};
  }
  // Between nodes more threads than cores are at work, and where the scheduler puts them decides about a whole job.
  template <class Measure>
  static Measured middle_of_three(Measure measure) {
    std::vector<Measured> runs;
    for (int i = 0; i < 3; i++) {
      runs.push_back(measure());
      if (!runs.back().result.ok() || !runs.back().result.value().contains("network_bound_ratio")) return std::move(runs.back());
    }
    const auto ratio = [](const Measured& run) { return run.result.value()["network_bound_ratio"].template get<double>(); };
    std::sort(runs.begin(), runs.end(), [&](const Measured& a, const Measured& b) { return ratio(a) < ratio(b); });
    return std::move(runs[1]);
  }
  void keep(Measured run) {
    if (!run.result.ok()) return;
    print_run(run.result.value());
    std::fflush(stdout);
    runs_.push_back(std::move(run.result).value());
  }

  void measure_ranks(int num_ranks, bool windows) {
    Measured run{where(num_ranks, windows), measure_run(spec("round_trip", num_ranks, windows), true)};
    if (run.result.ok()) {
      nlohmann::json& result = run.result.value();
      print_run(result);
      std::fflush(stdout);
      result["memory_mb"] = result["memory_bytes_per_rank"].get<double>() / 1e6;
    }
    add("LL round trip over the memory bound", run, "/bound_ratio"_json_pointer, at_most(windows ? kMaxBoundRatioWindows : kMaxBoundRatioPlain, "x"));
    add("LL speedup over permute + MPI_Alltoallv", run, "/baselines/0/speedup"_json_pointer,
        at_least(windows ? kMinSpeedupWindows : kMinSpeedupPlain, "x"));
    if (num_ranks == 8) {
      add("memory a rank", run, "/memory_mb"_json_pointer,
          at_most(kMaxMemoryMb, "MB"));
    }
    if (!run.result.ok()) return;
    run.result.value().erase("memory_mb");
    runs_.push_back(std::move(run.result).value());
  }

  void add(const std::string& what, const Measured& measured, const nlohmann::json::json_pointer& value,
           const std::optional<Target>& target) {
    nlohmann::json figure{{"name", fmt::format("{} ({})", what, measured.where)}};
    if (!measured.result.ok()) {
      figure.update({{"error", measured.result.status().message()}, {"ok", false}});
    } else if (!measured.result.value().contains(value)) {
      figure.update({{"error", "not available on this machine"}, {"ok", false}});
    } else {
      const auto number = measured.result.value()[value].get<double>();
      figure["value"] = number;
      if (target) {
        figure.update({{"unit", target->unit},
                       {"target", target->value},
                       {"at_most", target->at_most},
                       {"ok", target->at_most ? number <= target->value : number >= target->value}});
      }
    }
    figures_.push_back(std::move(figure));
  }

  const bench::EpSpec& base_;
  nlohmann::json runs_ = nlohmann::json::array();
  nlohmann::json figures_ = nlohmann::json::array();
};

}  // namespace

Result<nlohmann::json> measure_run(const bench::EpSpec& spec, bool baselines) {
  bench::EpSpec job = spec;
  // Where it has the same result: rows under weights are added up by their owner, not by a reduction.
  job.gather_scatter = baselines && spec.high_throughput() && !spec.expert_major();
  SWITCHYARD_ASSIGN(nlohmann::json run, run_bench_job(job));
  if (baselines) run["baselines"].push_back(run_mpi_baseline(spec, run["round_trip_us"]["p50"].get<double>()));
  return run;
}

nlohmann::json measure_figures(const bench::EpSpec& base) {
  Figures figures(base);
  figures.measure_runs();
  figures.measure_jobs();
  figures.measure_low_latency_between_nodes();
  figures.measure_high_throughput();
  return std::move(figures).result();
}

}  // namespace switchyard::tools
