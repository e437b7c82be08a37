// `switchyard bench ep`: dispatch and combine on this machine, beside the memory bound and a baseline.
#include <memory>
#include <string>
#include <vector>

#include "bench/ep/jobs.hpp"
#include "bench/ep/spec.hpp"
#include "bench/machine.hpp"
#include "tools/bench_command.hpp"
#include "tools/bench_figures.hpp"
#include "tools/bench_launch.hpp"
#include "tools/bench_report.hpp"
#include "tools/bench_sweep.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"

namespace switchyard::tools {
namespace {

struct BenchOptions {
  bench::EpSpec spec;
  bool baselines = false;
  bool figures = false;
  std::string json_path;
};

void add_options(CLI::App& command, BenchOptions& options) {
  bench::EpSpec& spec = options.spec;
  constexpr int kMany = 1 << 20;
  command.option_defaults()->take_last();  // so that what follows can override a script's choice
  command.add_option("--mode", spec.mode, "algorithm: ll (low latency), ht (high throughput), or auto: both at 1, 4, 16 ... --tokens, and which is faster where")
      ->check(CLI::IsMember({"ll", "ht", "auto"}));
  command
      .add_option("--layout", spec.layout,
                  "of received rows: em (expert-major), rm (rank-major, ll only) or flat (ht only, its default)")
      ->check(CLI::IsMember({"em", "rm", "flat"}));
  command.add_option("--ranks", spec.ranks, "number of ranks")->check(CLI::Range(1, 1024));
  command.add_option("--nodes", spec.nodes, "pretend that the ranks are spread over this many nodes")
      ->check(CLI::Range(1, 1024));
  command.add_option("--tokens", spec.tokens, "tokens of each rank")->check(CLI::Range(1, kMany));
  command.add_option("--hidden", spec.hidden, "elements of a row")->check(CLI::Range(1, kMany));
  command.add_option("--topk", spec.topk, "experts of each token")->check(CLI::Range(1, 64));
  command.add_option("--experts", spec.experts, "experts over all ranks")->check(CLI::Range(1, 1 << 16));
  command.add_option("--dtype", spec.dtype, "of rows: bf16, fp16 or fp32")
      ->check(CLI::IsMember({"bf16", "fp16", "fp32"}));
  command.add_option("--quant", spec.quant, "none, fp8 (dispatch) or nvfp4 (combine)")
      ->check(CLI::IsMember({"none", "fp8", "nvfp4"}));
  command.add_flag("--zero-copy", spec.zero_copy, "received rows lie in windows; otherwise in plain memory");
  command.add_option("--skew", spec.skew, "Zipf exponent of the experts' popularity")->check(CLI::Range(0., 8.));
  command.add_option("--seed", spec.seed, "seed of routing, weights and rows");
  command.add_option("--iters", spec.iters, "timed iterations")->check(CLI::Range(1, kMany));
  command.add_option("--warmup", spec.warmup, "iterations before them")->check(CLI::Range(0, kMany));
  command.add_option("--platform", spec.platform, "host or cuda")->check(CLI::IsMember({"host", "cuda"}));
  command.add_option("--net", spec.net, "network plugin between nodes (SWITCHYARD_NET)");
  command.add_flag("--verify,!--no-verify", spec.verify, "compare the results with plain code");
  command.add_flag("--baselines", options.baselines, "also measure permute + MPI_Alltoallv");
  command.add_flag("--threads", spec.threads, "ranks are threads of one process instead of processes");
  command.add_flag("--bind", spec.bound_to_cores, "bind each rank's process to its share of the cores, as --mode auto does");
  command.add_flag("--figures", options.figures, "measure the project's whole table of figures; takes minutes");
  command.add_option("--json", options.json_path, "also write the results to this file");
  for (CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() > 0) option->capture_default_str();
  }
  command.footer(
      "Times are from inputs that are ready to output that can be used, of the slowest rank. The bound is what this\n"
      "machine's memory needs for the same rows, measured in turns with them by the same number of ranks.\n"
      "Exit code 1 if a result was wrong or a measurement failed; a figure that misses its target is no failure.");
}

Status check_host_only(const BenchOptions& options) {
  if (options.spec.platform == "host" || (!options.baselines && !options.figures)) return {};
  return Status::invalid_usage(text(options.figures ? "--figures" : "--baselines",
                                    " measures CPUs, not --platform ", options.spec.platform));
}

Status check_sweep(const BenchOptions& options, bool has_layout) {
  if (options.spec.mode != "auto" || (!options.baselines && !options.figures && !has_layout)) return {};
  return Status::invalid_usage(text("--mode auto measures rank-major and flat rows beside all-gather + reduce-scatter; leave out ",
                                    options.figures     ? "--figures"
                                    : options.baselines ? "--baselines"
                                                        : "--layout"));
}

// Rows as they arrive, come back and are kept for the bound, on every rank.
Status check_memory(const bench::EpSpec& spec) {
  if (spec.platform != "host") return {};
  const double rows = double(spec.ranks) * spec.tokens * (3. * spec.topk + 4);
  const double needed = rows * double(spec.input_bytes()), there = double(bench::this_machine().memory_bytes);
  if (needed <= there) return {};
  return Status::invalid_argument(text("--tokens ", spec.tokens, " with --ranks ", spec.ranks, ", --topk ", spec.topk,
                                       " and --hidden ", spec.hidden, " needs about ", uint64_t(needed / 1e9),
                                       " GB of memory, this machine has ", uint64_t(there / 1e9)));
}

bool all_well(const nlohmann::json& results) {
  for (const nlohmann::json& run : results["runs"]) {
    if (run["errors"].get<uint64_t>() != 0) return false;
  }
  for (const nlohmann::json& figure : results.value("figures", nlohmann::json::array())) {
    if (figure.contains("error")) return false;
  }
  return true;
}

void bench_ep(const BenchOptions& options, bool has_layout) {
  for (const Status& status : {bench::validate(options.spec), check_host_only(options), check_sweep(options, has_layout),
                               check_memory(options.spec), check_writable(options.json_path)}) {
    if (!status.ok()) return fail_bench(status, kExitUsage);
  }
  nlohmann::json results;
  if (options.spec.mode == "auto") {
    auto sweep = measure_sweep(options.spec);
    if (!sweep.ok()) return fail_bench(sweep.status(), kExitFailure);
    results = std::move(sweep).value();
  } else if (options.figures) {
    results = measure_figures(options.spec);
    print_figures(results["figures"]);
  } else {
    auto run = measure_run(options.spec, options.baselines);
    if (!run.ok()) return fail_bench(run.status(), kExitFailure);
    print_run(run.value());
    results = {{"runs", {std::move(run).value()}}};
  }
  if (!options.json_path.empty()) {
    if (const Status written = write_json(options.json_path, results); !written.ok())
      return fail_bench(written, kExitFailure);
  }
  if (!all_well(results)) finish(kExitFailure);
}

}  // namespace

void register_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);

  const auto options = std::make_shared<BenchOptions>();
  CLI::App* ep = bench->add_subcommand("ep", "Expert-parallel dispatch and combine");
  add_options(*ep, *options);
  ep->callback([options, ep] {
    if (options->spec.platform == "cuda") options->spec.threads = true;  // ranks share one GPU
    const bool has_layout = ep->count("--layout") > 0;
    if (options->spec.mode == "ht" && !has_layout) options->spec.layout = "flat";
    bench_ep(*options, has_layout);
  });

  add_rank_command(*bench, "ep-rank", [](const nlohmann::json& job, Communicator& comm) {
    return bench::run_job(job.get<bench::EpSpec>(), comm);
  });
  register_bench_gin(*bench);
}

}  // namespace switchyard::tools
