// Baseline: one expert-parallel round trip by permutation and MPI_Alltoallv, on the rows and the routing that the
// library's own benchmark uses.
//
//   mpirun -np 8 --oversubscribe --allow-run-as-root --mca mpi_yield_when_idle 1 mpi_baseline --tokens 128
//
// --oversubscribe and mpi_yield_when_idle are needed where there are more ranks than cores (without the second,
// waiting ranks spin and keep the others from their turn), --allow-run-as-root in containers.
//
// Boundary: inputs ready -> usable output, the slowest rank of each iteration. The experts' own work is not timed.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "bench/machine.hpp"
#include "bench/mpi_flat_round_trip.hpp"
#include "bench/mpi_round_trip.hpp"
#include "bench/routing.hpp"
#include "bench/stats.hpp"

namespace switchyard::bench {
namespace {

struct Options {
  int num_tokens = 128;
  int hidden = 7168;
  int num_iters = 30;
  int num_warmup = 5;
  RoutingSpec routing;
  bool flat = false;
  std::string json_path;
};

struct Job {
  int rank = 0, num_ranks = 1;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--tokens", options.num_tokens, "tokens of each rank")->check(CLI::Range(1, 1 << 20));
  app.add_option("--hidden", options.hidden, "BF16 elements of a row")->check(CLI::Range(1, 1 << 20));
  app.add_option("--topk", options.routing.topk, "experts of each token")->check(CLI::Range(1, 64));
  app.add_option("--experts", options.routing.num_experts, "experts over all ranks")->check(CLI::Range(1, 1 << 16));
  app.add_option("--skew", options.routing.skew, "Zipf exponent of the experts' popularity")->check(CLI::Range(0., 8.));
  app.add_option("--seed", options.routing.seed, "seed of routing, weights and rows");
  app.add_option("--iters", options.num_iters, "timed iterations")->check(CLI::Range(1, 1'000'000));
  app.add_option("--warmup", options.num_warmup, "iterations before them")->check(CLI::Range(0, 1'000'000));
  app.add_flag("--flat", options.flat, "one row per token and rank, instead of one per expert");
  app.add_option("--json", options.json_path, "also write the result to this file");
}

Tokens make_tokens(const Routing& routing, const Options& options, int rank) {
  const int topk = options.routing.topk;
  const size_t num_entries = size_t(options.num_tokens) * size_t(topk), hidden = size_t(options.hidden);
  Tokens tokens{options.num_tokens, topk, hidden, std::vector<int64_t>(num_entries), std::vector<float>(num_entries),
                RowBuffer(hidden)};
  tokens.rows.ensure(size_t(options.num_tokens));
  for (int t = 0; t < options.num_tokens; t++) {
    const size_t entry = size_t(t) * size_t(topk);
    routing.token(rank, t, std::span(tokens.experts).subspan(entry, size_t(topk)),
                  std::span(tokens.weights).subspan(entry, size_t(topk)));
    routing.row(rank, t, {tokens.rows.row(size_t(t)), hidden});
  }
  return tokens;
}

// What expert `expert` makes of one element: different for every expert, so that a row which met the wrong one shows.
uint16_t expert_result(uint16_t element, int expert, int num_experts) {
  return float_to_bf16(bf16_to_float(element) * (1.0f + float(expert) / float(num_experts)));
}

void run_experts(MpiRoundTrip& trip, Placement placement, int rank, size_t hidden) {
  trip.expert_output.ensure(trip.num_received());
  size_t row_idx = 0;
  for (int local = 0; local < placement.num_local(rank); local++) {
    for (const size_t end = row_idx + trip.num_received(local); row_idx < end; row_idx++) {
      for (size_t i = 0; i < hidden; i++) {
        trip.expert_output.row(row_idx)[i] =
            expert_result(trip.expert_input.row(row_idx)[i], placement.first(rank) + local, placement.num_experts);
      }
    }
  }
}

// Rows of expert_input that differ from what the routing of all ranks says they must be.
uint64_t count_dispatch_errors(const MpiRoundTrip& trip, const Routing& routing, const Options& options,
                               Placement placement, int rank) {
  std::vector<size_t> next_row(size_t(placement.num_local(rank)) + 1);
  for (int local = 0; local < placement.num_local(rank); local++) {
    next_row[size_t(local) + 1] = next_row[size_t(local)] + trip.num_received(local);
  }
  const std::vector<size_t> first_row = next_row;
  std::vector<int64_t> experts(size_t(options.routing.topk));
  std::vector<float> weights(experts.size());
  std::vector<uint16_t> expected(size_t(options.hidden));
  uint64_t num_errors = 0;
  for (int source = 0; source < placement.num_ranks; source++) {
    for (int t = 0; t < options.num_tokens; t++) {
      routing.token(source, t, experts, weights);
      bool row_made = false;
      for (const int64_t expert : experts) {
        if (placement.owner(int(expert)) != rank) continue;
        if (!std::exchange(row_made, true)) routing.row(source, t, expected);
        const auto local = size_t(int(expert) - placement.first(rank));
        const size_t row_idx = next_row[local]++;
        num_errors += row_idx >= first_row[local + 1] ||
                      memcmp(trip.expert_input.row(row_idx), expected.data(), expected.size() * 2) != 0;
      }
    }
  }
  for (size_t local = 0; local + 1 < first_row.size(); local++) num_errors += next_row[local] < first_row[local + 1];
  return num_errors;
}

uint64_t count_combine_errors(const MpiRoundTrip& trip, const Tokens& tokens, int num_experts) {
  uint64_t num_errors = 0;
  for (size_t t = 0; t < size_t(tokens.num_tokens); t++) {
    bool wrong = false;
    for (size_t i = 0; i < tokens.hidden; i++) {
      float sum = 0;
      for (size_t k = 0; k < size_t(tokens.topk); k++) {
        const size_t entry = t * size_t(tokens.topk) + k;
        const uint16_t result = expert_result(tokens.rows.row(t)[i], int(tokens.experts[entry]), num_experts);
        sum = std::fmaf(bf16_to_float(result), tokens.weights[entry], sum);
      }
      wrong |= trip.combined.row(t)[i] != float_to_bf16(sum);
    }
    num_errors += wrong;
  }
  return num_errors;
}

struct Times {
  std::vector<double> dispatch_us, combine_us, round_trip_us;
};

template <class Trip>
Times measure(Trip& trip, int num_iters) {
  Times times;
  for (int i = 0; i < num_iters; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const uint64_t dispatch_begin_ns = now_ns();
    trip.dispatch();
    const uint64_t dispatch_end_ns = now_ns();
    MPI_Barrier(MPI_COMM_WORLD);
    const uint64_t combine_begin_ns = now_ns();
    trip.combine();
    const uint64_t combine_end_ns = now_ns();
    times.dispatch_us.push_back(double(dispatch_end_ns - dispatch_begin_ns) / 1e3);
    times.combine_us.push_back(double(combine_end_ns - combine_begin_ns) / 1e3);
    times.round_trip_us.push_back(times.dispatch_us.back() + times.combine_us.back());
  }
  for (auto* samples : {&times.dispatch_us, &times.combine_us, &times.round_trip_us}) {
    MPI_Allreduce(MPI_IN_PLACE, samples->data(), num_iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
  return times;
}

uint64_t sum_over_ranks(uint64_t value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return value;
}

nlohmann::json percentiles(const std::vector<double>& samples) {
  return {{"p50", percentile(samples, 50)}, {"p95", percentile(samples, 95)}};
}

nlohmann::json describe(const Options& options, const Times& times, const Job& job, uint64_t num_rows, uint64_t num_errors) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int version_length = 0;
  MPI_Get_library_version(version, &version_length);
  const Machine machine = this_machine();
  return {{"bench", "mpi_baseline"},
          {"machine",
           {{"cpu", machine.cpu_model}, {"cores", machine.num_cores}, {"memory_bytes", machine.memory_bytes}}},
          {"build", this_build()},
          {"mpi", std::string(version)},
          {"ranks", job.num_ranks},
          {"tokens", options.num_tokens},
          {"hidden", options.hidden},
          {"topk", options.routing.topk},
          {"experts", options.routing.num_experts},
          {"skew", options.routing.skew},
          {"seed", options.routing.seed},
          {"iters", options.num_iters},
          {"warmup", options.num_warmup},
          {"layout", options.flat ? "flat" : "em"},
          {"bytes_each_way", num_rows * uint64_t(options.hidden) * 2},
          {"dispatch_us", percentiles(times.dispatch_us)},
          {"combine_us", percentiles(times.combine_us)},
          {"round_trip_us", percentiles(times.round_trip_us)},
          {"errors", num_errors}};
}

void print(const nlohmann::json& result) {
  fmt::print("permute + MPI_Alltoallv: {} ranks, {} tokens each, hidden {}, top-{} of {} experts, skew {}, seed {}\n",
             result["ranks"].get<int>(), result["tokens"].get<int>(), result["hidden"].get<int>(),
             result["topk"].get<int>(), result["experts"].get<int>(), result["skew"].get<double>(),
             result["seed"].get<uint64_t>());
  fmt::print("{}, {} cores; {}; {}\n", result["machine"]["cpu"].get<std::string>(),
             result["machine"]["cores"].get<int>(), result["build"].get<std::string>(),
             result["mpi"].get<std::string>());
  fmt::print("{:<12}{:>12}{:>12}  us, slowest rank, {} iterations\n", "", "p50", "p95", result["iters"].get<int>());
  for (const char* phase : {"dispatch", "combine", "round_trip"}) {
    const auto& times = result[std::string(phase) + "_us"];
    fmt::print("{:<12}{:>12.1f}{:>12.1f}\n", phase, times["p50"].get<double>(), times["p95"].get<double>());
  }
  fmt::print("{} MB each way, {} wrong rows\n", result["bytes_each_way"].get<uint64_t>() / 1'000'000,
             result["errors"].get<uint64_t>());
}

struct Outcome {
  Times times;
  uint64_t num_rows, num_errors;  // over all ranks
};

Outcome run_by_expert(const Options& options, const Job& job, const Routing& routing, const Tokens& tokens) {
  const Placement placement{options.routing.num_experts, job.num_ranks};
  MpiRoundTrip trip(MPI_COMM_WORLD, placement, tokens);
  trip.dispatch();
  run_experts(trip, placement, job.rank, tokens.hidden);
  for (int i = 0; i < options.num_warmup; i++) {
    trip.dispatch();
    trip.combine();
  }
  // What is checked below must come from the timed iterations.
  trip.expert_input.poison();
  trip.combined.poison();
  Times times = measure(trip, options.num_iters);
  const uint64_t num_errors = count_dispatch_errors(trip, routing, options, placement, job.rank) +
                              count_combine_errors(trip, tokens, options.routing.num_experts);
  return {std::move(times), sum_over_ranks(trip.num_received()), sum_over_ranks(num_errors)};
}

// Experts hand back what they were given: a token's sum is as many times its row as it has ranks.
Outcome run_flat(const Options& options, const Job& job, const Routing& routing, const Tokens& tokens) {
  const Placement placement{options.routing.num_experts, job.num_ranks};
  MpiFlatRoundTrip trip(MPI_COMM_WORLD, placement, tokens);
  for (int i = 0; i < options.num_warmup + 1; i++) {
    trip.dispatch();
    trip.combine();
  }
  trip.rows.poison();
  trip.combined.poison();
  Times times = measure(trip, options.num_iters);
  const auto topk = size_t(options.routing.topk);
  std::vector<int64_t> experts(topk);
  std::vector<float> weights(topk);
  std::vector<uint16_t> expected(tokens.hidden);
  uint64_t num_errors = 0;
  size_t row = 0;
  for (int source = 0; source < job.num_ranks; source++) {
    for (int t = 0; t < options.num_tokens; t++) {
      routing.token(source, t, experts, weights);
      std::vector<int> owners;
      for (const int64_t expert : experts) {
        const int owner = placement.owner(int(expert));
        if (std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
      }
      routing.row(source, t, expected);
      if (std::find(owners.begin(), owners.end(), job.rank) != owners.end()) {
        num_errors += row >= trip.num_received() || memcmp(trip.rows.row(row), expected.data(), expected.size() * 2) != 0;
        row++;
      }
      if (source != job.rank) continue;
      bool wrong = false;
      for (size_t i = 0; i < tokens.hidden; i++) {
        wrong |= trip.combined.row(size_t(t))[i] != float_to_bf16(bf16_to_float(expected[i]) * float(owners.size()));
      }
      num_errors += wrong;
    }
  }
  num_errors += row != trip.num_received();
  return {std::move(times), sum_over_ranks(trip.num_received()), sum_over_ranks(num_errors)};
}

int run(const Options& options, const Job& job) {
  const Routing routing(options.routing);
  const Tokens tokens = make_tokens(routing, options, job.rank);
  const auto [times, num_rows, num_errors] =
      options.flat ? run_flat(options, job, routing, tokens) : run_by_expert(options, job, routing, tokens);
  if (job.rank != 0) return num_errors == 0 ? 0 : 1;
  const nlohmann::json result = describe(options, times, job, num_rows, num_errors);
  print(result);
  if (!options.json_path.empty() && !(std::ofstream(options.json_path) << result.dump(2) << '\n')) {
    fmt::print(stderr, "mpi_baseline: cannot write '{}'; name a file in a folder that exists\n", options.json_path);
    return 1;
  }
  return num_errors == 0 ? 0 : 1;
}

int parse_and_run(int argc, char** argv) {
  Job job;
  MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.num_ranks);
  Options options;
  CLI::App app("Baseline: expert-parallel dispatch and combine by permutation and MPI_Alltoallv");
  add_options(app, options);
  try {
    app.parse(argc, argv);
    if (options.routing.topk > options.routing.num_experts) {
      throw CLI::ValidationError("--experts", fmt::format("must be at least --topk ({})", options.routing.topk));
    }
  } catch (const CLI::ParseError& error) {
    if (job.rank == 0) return app.exit(error) == 0 ? 0 : 2;
    return error.get_exit_code() == 0 ? 0 : 2;
  }
  return run(options, job);
}

}  // namespace
}  // namespace switchyard::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int exit_code = switchyard::bench::parse_and_run(argc, argv);
  MPI_Finalize();
  return exit_code;
}
