// `switchyard bench gin`: puts and signals between two ranks, beside what plain stores or plain libfabric calls reach.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "bench/gin/job.hpp"
#include "tools/bench_command.hpp"
#include "tools/bench_report.hpp"
#include "tools/exit_codes.hpp"

namespace switchyard::tools {
namespace {

// Targets of the project (docs/figures.md).
constexpr double kMaxDirectRtt = 1.2;        // at 8 B, times raw
constexpr double kMinDirectBandwidth = 0.9;  // from 64 KiB, of raw
constexpr double kMinProxyBandwidth = 0.8;
constexpr double kMaxPostNs = 40;        // proxy
constexpr double kMaxBehindBulk = 5;     // proxy: p95 of a signal, times the idle one
constexpr uint64_t kBulkSize = 64 << 10;

struct GinOptions {
  std::vector<std::string> backends{"lsa", "direct", "proxy"};
  std::vector<std::string> nets{"mem", "ofi"};
  std::vector<uint64_t> sizes{8, 64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304};
  int rounds = 31;
  std::string json_path;
};

void print_gin_run(const nlohmann::json& run) {
  fmt::print("{:7} {:10} {:>8} {:9.1f} {:9.1f} {:9.1f} {:6.2f} {:10.0f} {:8.2f} {:8.2f} {:6.2f} {:8.1f}\n",
             run["backend"].get<std::string>(), run["net"].get<std::string>(), run["size"].get<uint64_t>(),
             run["rtt_us"]["p50"].get<double>(), run["rtt_us"]["p95"].get<double>(),
             run["raw_rtt_us"].get<double>(), run["rtt_ratio"].get<double>(), run["rate_mps"].get<double>(),
             run["gbps"].get<double>(), run["raw_gbps"].get<double>(), run["bandwidth_ratio"].get<double>(), run["post_ns"].get<double>());
}

void print_behind_bulk(const nlohmann::json& result) {
  fmt::print("{:7} {:10} signals: p95 {:.1f} us idle, {:.1f} us behind a stream of {} KiB puts ({}): {:.2f}x\n",
             result["backend"].get<std::string>(), result["net"].get<std::string>(),
             result["idle_us"]["p95"].get<double>(), result["loaded_us"]["p95"].get<double>(),
             result["bulk_bytes"].get<uint64_t>() / 1024, result["bulk_puts"].get<uint64_t>(),
             result["p95_ratio"].get<double>());
}

// What the project promises of these results; nothing where there is no promise.
void add_figures(const nlohmann::json& result, nlohmann::json& figures) {
  const auto add = [&](const std::string& what, const nlohmann::json& run, double value, double target, bool at_most) {
    figures.push_back({{"name", text(what, " (", run["backend"].get<std::string>(), ", ", run["net"].get<std::string>(), ")")},
                       {"value", value},
                       {"unit", ""},
                       {"target", target},
                       {"at_most", at_most},
                       {"ok", at_most ? value <= target : value >= target}});
  };
  for (const nlohmann::json& run : result["runs"]) {
    const bool proxy = run["backend"] == "proxy";
    const uint64_t size = run["size"];
    if (proxy && size == 8) add("ns to post a descriptor", run, run["post_ns"], kMaxPostNs, true);
    if (run["net"] == "mem") continue;
    if (!proxy && size == 8) add("round trip of 8 B, times raw", run, run["rtt_ratio"], kMaxDirectRtt, true);
    if (size >= kBulkSize) {
      add(text("bandwidth of ", size / 1024, " KiB, of raw"), run, run["bandwidth_ratio"],
          proxy ? kMinProxyBandwidth : kMinDirectBandwidth, false);
    }
  }
  const nlohmann::json bulk = result.value("behind_bulk", nlohmann::json());
  if (bulk.is_object() && bulk["backend"] == "proxy" && bulk["net"] != "mem") {
    add("p95 of a signal behind bulk data, times idle", bulk, bulk["p95_ratio"], kMaxBehindBulk, true);
  }
}

// What lies over the network slows ours down and not what is raw.
void tell_decorations(nlohmann::json& all) {
  all["net_checksum"] = env().net_checksum;
  all["net_faults"] = env().net_faults;
  if (env().net_checksum)
    fmt::print("SWITCHYARD_NET_CHECKSUM is on: figures are of puts with checksums, raw is without\n");
  if (!env().net_faults.empty())
    fmt::print("SWITCHYARD_NET_FAULTS={}: figures are of a network that makes mistakes\n", env().net_faults);
}

// What was measured before an error is not lost with it.
void report_gin(const nlohmann::json& all, const std::string& json_path) {
  print_figures(all["figures"]);
  if (json_path.empty()) return;
  if (const Status written = write_json(json_path, all); !written.ok()) fail_bench(written, kExitFailure);
}

void bench_gin(const GinOptions& options) {
  if (const Status status = check_writable(options.json_path); !status.ok()) return fail_bench(status, kExitUsage);
  nlohmann::json all{{"runs", nlohmann::json::array()}, {"behind_bulk", nlohmann::json::array()}, {"figures", nlohmann::json::array()}};
  tell_decorations(all);
  fmt::print("{:7} {:10} {:>8} {:>9} {:>9} {:>9} {:>6} {:>10} {:>8} {:>8} {:>6} {:>8}\n", "backend", "net", "bytes", "rtt us",
             "p95", "raw rtt", "ratio", "puts/s", "Gbit/s", "raw", "ratio", "post ns");
  for (const std::string& net : options.nets) {
    for (const std::string& backend : options.backends) {
      if (backend == "lsa" && net != "mem") continue;  // it knows no network
      const bench::GinSpec spec{backend, net, options.sizes, options.rounds, true};
      nlohmann::json job = spec;
      job["gin"] = spec.gin();
      job["bound_to_cores"] = true;  // else what is measured is how long two spinning ranks stay on one core
      auto result = run_rank_processes(job, {2, spec.nodes(), net, "gin-rank"});
      if (!result.ok()) {
        report_gin(all, options.json_path);
        return fail_bench(result.status(), kExitFailure);
      }
      for (const nlohmann::json& run : (*result)["runs"]) {
        print_gin_run(run);
        all["runs"].push_back(run);
      }
      if (result->contains("behind_bulk")) {
        print_behind_bulk((*result)["behind_bulk"]);
        all["behind_bulk"].push_back((*result)["behind_bulk"]);
      }
      add_figures(*result, all["figures"]);
    }
  }
  if (all["runs"].empty()) {
    return fail_bench(Status::invalid_argument("nothing to measure: backend lsa is for --net mem"), kExitUsage);
  }
  report_gin(all, options.json_path);
}

}  // namespace

void register_bench_gin(CLI::App& bench) {
  const auto options = std::make_shared<GinOptions>();
  CLI::App* gin = bench.add_subcommand("gin", "Puts and signals between two ranks, beside raw stores and libfabric");
  gin->add_option("--backend", options->backends, "direct, proxy, lsa; several with commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"direct", "proxy", "lsa"}));
  gin->add_option("--net", options->nets, "network plugins; several with commas")->delimiter(',');
  gin->add_option("--sizes", options->sizes, "bytes of a put; several with commas")
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{8}, uint64_t{4} << 20));
  gin->add_option("--rounds", options->rounds, "pairs of raw and ours, each pair over new connections")->check(CLI::Range(1, 10000));
  gin->add_option("--json", options->json_path, "also write the results to this file");
  gin->footer(
      "Two ranks as processes of this machine, each bound to its half of the cores: lsa inside one node, direct and proxy\n"
      "between two pretended ones. Raw is plain stores beside mem, plain libfabric calls beside ofi. Every round\n"
      "makes its connections anew; ratios are medians over the rounds. Targets are for a real network: of mem only\n"
      "the time to post has one.\n"
      "A figure that misses its target is no failure.");
  gin->callback([options] { bench_gin(*options); });
  add_rank_command(bench, "gin-rank", [](const nlohmann::json& job, Communicator& comm) {
    return bench::run_gin_job(job.get<bench::GinSpec>(), comm);
  });
}

}  // namespace switchyard::tools
