#include "tools/bench_baseline.hpp"

#include <fmt/format.h>

#include "bench/machine.hpp"
#include "tools/bench_launch.hpp"
#include "tools/capture.hpp"
#include "tools/child_process.hpp"

namespace switchyard::tools {
namespace {

std::string name_of(const bench::EpSpec& spec) {
  return spec.layout == "flat" ? "permute + MPI_Alltoallv, a row per token and rank" : "permute + MPI_Alltoallv";
}

constexpr uint64_t kLimitNs = 600 * kSecond;

// `yield`: a rank that waits lets others have its core.
Result<nlohmann::json> measure(const bench::EpSpec& spec, bool yield) {
  SWITCHYARD_ASSIGN(const std::string folder, own_folder());
  SWITCHYARD_ASSIGN(const std::string program, find_program(folder + "/mpi_baseline", nullptr));
  SWITCHYARD_ASSIGN(const TemporaryFolder scratch, TemporaryFolder::create());
  const std::string result_path = scratch.path() + "/baseline.json";
  std::vector<std::string> arguments{"mpirun", "--oversubscribe",     "--allow-run-as-root",
                                     "--mca",  "mpi_yield_when_idle", yield ? "1" : "0"};
  const std::vector<std::pair<const char*, std::string>> options{{"--tokens", std::to_string(spec.tokens)},
                                                                 {"--hidden", std::to_string(spec.hidden)},
                                                                 {"--topk", std::to_string(spec.topk)},
                                                                 {"--experts", std::to_string(spec.experts)},
                                                                 {"--skew", fmt::format("{}", spec.skew)},
                                                                 {"--seed", std::to_string(spec.seed)},
                                                                 {"--iters", std::to_string(spec.iters)},
                                                                 {"--warmup", std::to_string(spec.warmup)},
                                                                 {"--json", result_path}};
  arguments.insert(arguments.end(), {"-n", std::to_string(spec.ranks), program});
  if (spec.layout == "flat") arguments.push_back("--flat");
  for (const auto& [name, value] : options) arguments.insert(arguments.end(), {name, value});
  SWITCHYARD_ASSIGN(const Captured ended, capture(std::move(arguments), Deadline::after_ns(kLimitNs)));
  if (ended.report.failed()) return Status::remote(text("mpirun ", ended.report.reason, ": ", ended.error));
  return read_json(result_path);
}

// With a core for each rank it depends on the machine which way of waiting is faster: the faster one counts.
Result<nlohmann::json> measure_best(const bench::EpSpec& spec) {
  if (spec.dtype != "bf16" || spec.quant != "none") return Status::invalid_usage("it moves plain BF16 rows only");
  SWITCHYARD_ASSIGN(nlohmann::json yielding, measure(spec, true));
  if (spec.ranks > bench::this_machine().num_usable_cores) return yielding;
  SWITCHYARD_ASSIGN(nlohmann::json spinning, measure(spec, false));
  const auto p50 = [](const nlohmann::json& result) { return result["round_trip_us"]["p50"].get<double>(); };
  return p50(yielding) <= p50(spinning) ? yielding : spinning;
}

}  // namespace

nlohmann::json run_mpi_baseline(const bench::EpSpec& spec, double our_round_trip_us) {
  const auto result = measure_best(spec);
  if (!result.ok()) return {{"name", name_of(spec)}, {"unavailable", result.status().message()}};
  const nlohmann::json& times = result.value()["round_trip_us"];
  return {{"name", name_of(spec)}, {"round_trip_us", times}, {"speedup", times["p50"].get<double>() / our_round_trip_us}};
}

}  // namespace switchyard::tools
