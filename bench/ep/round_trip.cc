#include <algorithm>
#include <cstdlib>
#include <optional>

#include "bench/ep/bound_run.hpp"
#include "bench/ep/check.hpp"
#include "bench/ep/gather_scatter.hpp"
#include "bench/ep/jobs.hpp"
#include "bench/ep/network_bound.hpp"
#include "bench/machine.hpp"
#include "bench/stats.hpp"

namespace switchyard::bench {
namespace {

constexpr int kNumPosts = 50;

struct Samples {
  std::vector<double> dispatch, combine, round_trip;  // ns
  BoundSamples bound_dispatch, bound_combine;
  std::vector<double> gather_scatter;  // round trips of that baseline, where asked for
  std::vector<double> row, gather_scatter_row;  // both once more, one round trip behind the other
  std::vector<double> update, gather_routing;   // the exchange of routing, and an all-gather of it
  int num_in_a_row = 0;
  std::vector<double> network_dispatch, network_combine;  // where a network is in the way whose raw speed can be measured
};

// One round trip on spoiled outputs, checked. The number of errors of all ranks.
Result<uint64_t> verify(EpRank& rank, Meeting& meeting) {
  poison_arrived(rank);
  poison_combined(rank);
  SWITCHYARD_TRY(rank.upload_outputs());
  SWITCHYARD_TRY(meeting.comm().barrier());  // peers write the outputs that this rank has just spoiled
  SWITCHYARD_TRY(rank.dispatch());
  SWITCHYARD_TRY(rank.combine());
  SWITCHYARD_TRY(rank.download_outputs());
  return meeting.sum(count_dispatch_errors(rank) + count_combine_errors(rank));
}

Status sample_bound(const EpBound& bound, Meeting& meeting, Samples& samples) {
  const auto sample = [&](auto work, Method method, std::vector<double>& into) -> Status {
    SWITCHYARD_ASSIGN(const double elapsed_ns, meeting.time([&] { return (bound.*work)(method); }));
    into.push_back(elapsed_ns);
    return {};
  };
  // Each combine after the dispatch of its own method: it finds the rows where such a dispatch leaves them.
  SWITCHYARD_TRY(sample(&EpBound::dispatch, Method::kOrdinary, samples.bound_dispatch.ordinary));
  SWITCHYARD_TRY(sample(&EpBound::combine, Method::kOrdinary, samples.bound_combine.ordinary));
  SWITCHYARD_TRY(sample(&EpBound::dispatch, Method::kStreaming, samples.bound_dispatch.streaming));
  return sample(&EpBound::combine, Method::kStreaming, samples.bound_combine.streaming);
}

// Bounds and operations in turns, so that whatever else the machine does meets both.
Result<Samples> measure(EpRank& rank, Meeting& meeting, const EpBound& bound, std::optional<NetworkBound>& network,
                        GatherScatter* gather_scatter) {
  Samples samples;
  for (int i = 0; i < rank.spec().iters; i++) {
    SWITCHYARD_TRY(sample_bound(bound, meeting, samples));
    if (network) {
      SWITCHYARD_ASSIGN(const double there_ns, meeting.time([&] { return network->dispatch(); }));
      SWITCHYARD_ASSIGN(const double back_ns, meeting.time([&] { return network->combine(); }));
      samples.network_dispatch.push_back(there_ns);
      samples.network_combine.push_back(back_ns);
    }
    const auto touch = [&] { return rank.touch_stream(); };
    if (gather_scatter != nullptr) {
      SWITCHYARD_ASSIGN(const double there_ns, meeting.time([&] { return gather_scatter->dispatch(); }, touch));
      SWITCHYARD_ASSIGN(const double back_ns, meeting.time([&] { return gather_scatter->combine(); }, touch));
      samples.gather_scatter.push_back(there_ns + back_ns);
      SWITCHYARD_ASSIGN(const double update_ns, meeting.time([&] { return rank.update(); }, touch));
      SWITCHYARD_ASSIGN(const double gather_ns, meeting.time([&] { return gather_scatter->gather_routing(); }, touch));
      samples.update.push_back(update_ns);
      samples.gather_routing.push_back(gather_ns);
    }
    SWITCHYARD_ASSIGN(const double dispatch_ns, meeting.time([&] { return rank.dispatch(); }, touch));
    SWITCHYARD_ASSIGN(const double combine_ns, meeting.time([&] { return rank.combine(); }, touch));
    samples.dispatch.push_back(dispatch_ns);
    samples.combine.push_back(combine_ns);
    samples.round_trip.push_back(dispatch_ns + combine_ns);
  }
  return samples;
}

// Round trips one behind the other, as a model makes them. After the pause before a common start small ones take two to three
// times as long, whoever makes them: nothing is in the caches.
Status measure_rows(EpRank& rank, Meeting& meeting, GatherScatter& gather_scatter, Samples& samples) {
  constexpr double kRowNs = 5e6, kFewest = 5, kMost = 50, kLongNs = 20e6;
  const double slower_ns = std::max(percentile(samples.round_trip, 50), percentile(samples.gather_scatter, 50));
  // Equal on all ranks, as the samples are. What takes long has its rows out of the caches anyway.
  const int num_round_trips = slower_ns > kLongNs ? 1 : int(std::clamp(kRowNs / slower_ns, kFewest, kMost));
  const auto sample = [&](auto& operations, std::vector<double>& into) -> Status {
    const auto in_a_row = [&]() -> Status {
      for (int i = 0; i < num_round_trips; i++) {
        SWITCHYARD_TRY(operations.dispatch());
        SWITCHYARD_TRY(operations.combine());
      }
      return {};
    };
    SWITCHYARD_ASSIGN(const double elapsed_ns, meeting.time(in_a_row, [&] { return rank.touch_stream(); }));
    into.push_back(elapsed_ns / num_round_trips);
    return {};
  };
  samples.num_in_a_row = num_round_trips;
  for (int i = 0; i < rank.spec().iters; i++) {
    SWITCHYARD_TRY(sample(gather_scatter, samples.gather_scatter_row));
    SWITCHYARD_TRY(sample(rank, samples.row));
  }
  return {};
}

nlohmann::json describe(const EpRank& rank, const Samples& samples) {
  const EpSpec& spec = rank.spec();
  const auto& dispatch = samples.bound_dispatch.faster();
  const auto& combine = samples.bound_combine.faster();
  std::vector<double> round_trip;
  for (size_t i = 0; i < dispatch.size(); i++) round_trip.push_back(dispatch[i] + combine[i]);
  const auto p50_us = [](const std::vector<double>& samples_ns) { return percentile(samples_ns, 50) / 1e3; };
  const size_t num_rows = rank.plan().rows().size();
  nlohmann::json result = spec;
  result.update(
      {{"dispatch_us", percentiles_us(samples.dispatch)},
       {"combine_us", percentiles_us(samples.combine)},
       {"round_trip_us", percentiles_us(samples.round_trip)},
       {"bound_us", {{"dispatch", p50_us(dispatch)}, {"combine", p50_us(combine)}, {"round_trip", p50_us(round_trip)}}},
       {"bound_ratio", p50_us(samples.round_trip) / p50_us(round_trip)},
       {"bytes",
        {{"dispatch", num_rows * (spec.arriving_bytes() + spec.scale_bytes())},
         {"combine", num_rows * spec.contribution_bytes()}}}});
  if (!samples.network_dispatch.empty()) {
    std::vector<double> network, ratio;
    for (size_t i = 0; i < samples.network_dispatch.size(); i++) {
      network.push_back(samples.network_dispatch[i] + samples.network_combine[i]);
      ratio.push_back(samples.round_trip[i] / (round_trip[i] + network[i]));
    }
    result["network_us"] = {{"dispatch", p50_us(samples.network_dispatch)},
                            {"combine", p50_us(samples.network_combine)},
                            {"round_trip", p50_us(network)}};
    result["network_bound_ratio"] = percentile(ratio, 50);
  }
  return result;
}

}  // namespace

Result<nlohmann::json> measure_round_trip(EpRank& rank, Meeting& meeting) {
  const EpSpec& spec = rank.spec();
  double load = 0;  // of others: times taken on a busy machine say little
  if (getloadavg(&load, 1) != 1) load = -1;
  uint64_t num_errors = 0;
  const auto check = [&]() -> Status {
    if (!spec.verify) return {};
    SWITCHYARD_ASSIGN(const uint64_t found, verify(rank, meeting));
    num_errors += found;
    return {};
  };
  SWITCHYARD_TRY(check());
  for (int i = 0; i < spec.warmup; i++) {
    SWITCHYARD_TRY(rank.dispatch());
    SWITCHYARD_TRY(rank.combine());
  }
  SWITCHYARD_TRY(meeting.comm().barrier());  // the bound's lists include peers' windows
  SWITCHYARD_ASSIGN(const EpBound bound, EpBound::create(rank));
  std::optional<NetworkBound> network;
  if (spec.nodes > 1 && spec.net.starts_with("ofi")) {
    SWITCHYARD_ASSIGN(network, NetworkBound::create(rank));
  }
  std::unique_ptr<GatherScatter> gather_scatter;
  if (spec.gather_scatter) {
    SWITCHYARD_ASSIGN(gather_scatter, GatherScatter::create(rank));
    SWITCHYARD_TRY(gather_scatter->dispatch());
    SWITCHYARD_TRY(gather_scatter->combine());
    SWITCHYARD_ASSIGN(const uint64_t found, meeting.sum(gather_scatter->count_errors()));
    num_errors += found;
  }
  SWITCHYARD_ASSIGN(Samples samples, measure(rank, meeting, bound, network, gather_scatter.get()));
  // Once by itself: what is timed may be repeated.
  const ep::RailTraffic before = rank.rail_traffic();
  SWITCHYARD_TRY(rank.dispatch());
  SWITCHYARD_TRY(rank.combine());
  SWITCHYARD_ASSIGN(const uint64_t rail_rows, meeting.sum(rank.rail_traffic().num_rows - before.num_rows));
  SWITCHYARD_ASSIGN(const uint64_t rail_bytes, meeting.sum(rank.rail_traffic().num_bytes - before.num_bytes));
  if (gather_scatter) SWITCHYARD_TRY(measure_rows(rank, meeting, *gather_scatter, samples));
  SWITCHYARD_ASSIGN(const std::vector<double> posts, time_posts(rank, meeting, kNumPosts, 0));
  SWITCHYARD_TRY(check());

  nlohmann::json result = describe(rank, samples);
  if (network) {
    result["network_bytes"] = {{"dispatch", network->dispatch_bytes()}, {"combine", network->combine_bytes()}};
  }
  if (spec.high_throughput() && spec.nodes > 1) {
    uint64_t num_crossings = 0;
    for_each_crossing(rank.plan(), [&](int, int) { num_crossings++; });
    // Tokens and sums that crossed to other nodes in one round trip, and what must. Beside a token travel its weights.
    result["network_rows"] = {{"counted", rail_rows}, {"bound", 2 * num_crossings}};
    result["network_row_bytes"] = {{"counted", rail_bytes},
                                   {"bound", num_crossings * (spec.arriving_bytes() + spec.result_bytes())}};
  }
  SWITCHYARD_ASSIGN(const double memory_bytes, meeting.greatest(double(rank.memory_bytes())));
  const Machine machine = this_machine();
  result.update({{"errors", num_errors},
                 {"net", spec.net.empty() ? "mem" : spec.net},
                 {"post_us", {{"hot", percentiles_us(posts)}}},
                 {"memory_bytes_per_rank", uint64_t(memory_bytes)},
                 {"baselines", nlohmann::json::array()},
                 {"machine",
                  {{"cpu", machine.cpu_model},
                   {"cores", machine.num_cores},
                   {"usable_cores", machine.num_usable_cores},
                   {"load", load},
                   {"memory_bytes", machine.memory_bytes}}},
                 {"build", this_build()}});
  if (gather_scatter) {
    const auto speedup = [](const std::vector<double>& theirs, const std::vector<double>& ours) {
      return percentile(theirs, 50) / percentile(ours, 50);
    };
    result["in_a_row_us"] = percentiles_us(samples.row);
    result["num_in_a_row"] = samples.num_in_a_row;
    result["update_us"] = percentiles_us(samples.update);
    result["baselines"].push_back({{"name", "all-gather + reduce-scatter"},
                                   {"round_trip_us", percentiles_us(samples.gather_scatter)},
                                   {"speedup", speedup(samples.gather_scatter, samples.round_trip)},
                                   {"in_a_row_us", percentiles_us(samples.gather_scatter_row)},
                                   {"gather_routing_us", percentiles_us(samples.gather_routing)},
                                   {"speedup_in_a_row", speedup(samples.gather_scatter_row, samples.row)}});
  }
  return result;
}

}  // namespace switchyard::bench
