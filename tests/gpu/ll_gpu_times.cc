#include "gpu/ll_gpu_times.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>

#include "base/clock.hpp"
#include "ep/ll_harness.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumWarmups = 5;
constexpr int kNumIterations = 20;

const char* layout_name(oracle::Layout layout) {
  return layout == oracle::Layout::kExpertMajor ? "expert-major" : "rank-major";
}

// One rank's times, by iteration.
struct Samples {
  std::array<double, kNumIterations> dispatch_kernel_us{}, dispatch_wall_us{}, combine_kernel_us{}, combine_wall_us{};
  double pair_us = 0;
};

class EventPair {
 public:
  EventPair() {
    for (cudaEvent_t& event : events_) {
      if (cudaEventCreate(&event) != cudaSuccess) event = nullptr;
    }
  }
  ~EventPair() {
    for (cudaEvent_t event : events_) {
      if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
    }
  }
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;

  // Posts `operation` between the events and waits for it: kernel and wall time in microseconds.
  template <class Operation>
  Result<std::array<double, 2>> time(cudaStream_t stream, Operation operation) {
    const uint64_t start_ns = now_ns();
    cudaError_t error = cudaEventRecord(events_[0], stream);
    SWITCHYARD_TRY(operation());
    if (error == cudaSuccess) error = cudaEventRecord(events_[1], stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    const double wall_us = double(now_ns() - start_ns) / 1e3;
    float kernel_ms = 0;
    if (error == cudaSuccess) error = cudaEventElapsedTime(&kernel_ms, events_[0], events_[1]);
    if (error != cudaSuccess) return Status::device_error(cudaGetErrorString(error));
    return std::array<double, 2>{double(kernel_ms) * 1e3, wall_us};
  }

 private:
  std::array<cudaEvent_t, 2> events_{};
};

// One rank's part. A rank that fails goes on to meet the others at the barrier: they must not wait for it for ever.
class TimedRank {
 public:
  TimedRank(cudaStream_t stream, LlRank& rank, Steps& steps, std::barrier<>& start)
      : stream_(stream), rank_(rank), steps_(steps), start_(start) {}

  Samples run() {
    Samples samples;
    for (int iteration = -kNumWarmups; iteration < kNumIterations; ++iteration) {
      const auto dispatch = step([&] { return rank_.repost_dispatch(); });
      const auto combine = step([&] { return rank_.repost_combine(); });
      if (iteration < 0) continue;
      const auto i = size_t(iteration);
      samples.dispatch_kernel_us[i] = dispatch[0];
      samples.dispatch_wall_us[i] = dispatch[1];
      samples.combine_kernel_us[i] = combine[0];
      samples.combine_wall_us[i] = combine[1];
    }
    const auto pairs = step([&]() -> Status {
      for (int iteration = 0; iteration < kNumIterations; ++iteration) {
        SWITCHYARD_TRY(rank_.repost_dispatch());
        SWITCHYARD_TRY(rank_.repost_combine());
      }
      return {};
    });
    samples.pair_us = pairs[0] / kNumIterations;
    return samples;
  }

 private:
  template <class Operation>
  std::array<double, 2> step(Operation operation) {
    start_.arrive_and_wait();
    if (!steps_.ok()) return {};
    const auto taken = events_.time(stream_, operation);
    if (!steps_(taken) || !steps_(rank_.synchronize())) return {};
    return taken.value();
  }

  cudaStream_t stream_;
  LlRank& rank_;
  Steps& steps_;
  std::barrier<>& start_;
  EventPair events_;
};

double median_of_slowest(const std::vector<Samples>& ranks, std::array<double, kNumIterations> Samples::* what) {
  std::array<double, kNumIterations> slowest{};
  for (const Samples& rank : ranks) {
    for (size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], (rank.*what)[i]);
  }
  std::sort(slowest.begin(), slowest.end());
  return (slowest[kNumIterations / 2 - 1] + slowest[kNumIterations / 2]) / 2;
}

}  // namespace

oracle::Shape timed_shape(int num_ranks, oracle::Layout layout) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 256;
  shape.topk = 8;
  shape.hidden = 7168;
  shape.max_tokens = 128;
  shape.layout = layout;
  return shape;
}

std::string measure_times(GpuRanks& ranks, GpuTimes& times) {
  const LlScenario scenario = make_scenario(1, timed_shape(times.num_ranks, times.layout), oracle::Routing::kUniform,
                                            oracle::Fill::kFull);
  std::vector<Samples> samples(size_t(ranks.size()));
  std::barrier start(ranks.size());
  const std::string fault = ranks.on_all([&](int rank_idx) {
    Communicator& comm = ranks.comm(rank_idx);
    auto rank = std::make_unique<LlRank>(comm, ranks.stream_ref(rank_idx), scenario, times.windows);
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(scenario.c));
    if (steps(group)) steps(rank->open(*group.value()));
    // Not run_dispatch() and run_combine(): the inputs must stay what they are for the timed repeats.
    if (steps.ok() && steps(rank->post_dispatch()) && steps(rank->synchronize())) steps(rank->check_dispatch());
    if (steps.ok() && steps(rank->post_combine()) && steps(rank->synchronize())) steps(rank->check_combine());
    samples[size_t(rank_idx)] = TimedRank(ranks.stream(rank_idx), *rank, steps, start).run();
    if (steps.ok() && steps(rank->check_dispatch())) steps(rank->check_combine());
    return steps.leave(std::move(group), std::move(rank));
  });
  times.dispatch_kernel_us = median_of_slowest(samples, &Samples::dispatch_kernel_us);
  times.dispatch_wall_us = median_of_slowest(samples, &Samples::dispatch_wall_us);
  times.combine_kernel_us = median_of_slowest(samples, &Samples::combine_kernel_us);
  times.combine_wall_us = median_of_slowest(samples, &Samples::combine_wall_us);
  for (const Samples& rank : samples) times.pair_us = std::max(times.pair_us, rank.pair_us);
  return fault;
}

void print_times(const std::vector<GpuTimes>& all) {
  printf("\nBF16, 128 tokens a rank, hidden 7168, top-8 of 256 experts; microseconds, slowest rank, median of %d\n",
         kNumIterations);
  printf("%5s  %-12s  %-7s  %15s  %13s  %14s  %12s  %13s\n", "ranks", "layout", "tensors", "dispatch kernel",
         "dispatch wall", "combine kernel", "combine wall", "pair, no wait");
  for (const GpuTimes& t : all) {
    printf("%5d  %-12s  %-7s  %15.1f  %13.1f  %14.1f  %12.1f  %13.1f\n", t.num_ranks, layout_name(t.layout),
           t.windows ? "windows" : "plain", t.dispatch_kernel_us, t.dispatch_wall_us, t.combine_kernel_us,
           t.combine_wall_us, t.pair_us);
  }
}

bool write_times(const std::vector<GpuTimes>& all, const std::string& path) {
  FILE* file = fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  fprintf(file, "{\"dtype\": \"bfloat16\", \"tokens\": 128, \"hidden\": 7168, \"topk\": 8, \"experts\": 256,\n");
  fprintf(file, " \"iterations\": %d, \"statistic\": \"median of the slowest rank\", \"unit\": \"us\", \"rows\": [",
          kNumIterations);
  const char* separator = "\n";
  for (const GpuTimes& t : all) {
    fprintf(file,
            "%s  {\"ranks\": %d, \"layout\": \"%s\", \"tensors\": \"%s\", \"dispatch_kernel\": %.2f, "
            "\"dispatch_wall\": %.2f, \"combine_kernel\": %.2f, \"combine_wall\": %.2f, \"pair\": %.2f}",
            separator, t.num_ranks, layout_name(t.layout), t.windows ? "windows" : "plain", t.dispatch_kernel_us,
            t.dispatch_wall_us, t.combine_kernel_us, t.combine_wall_us, t.pair_us);
    separator = ",\n";
  }
  fprintf(file, "\n]}\n");
  return fclose(file) == 0;
}

}  // namespace switchyard::testing
