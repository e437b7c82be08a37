// Low-latency dispatch and combine on one GPU, ranks as threads: every case against the oracle, then times.
//
//   ll_gpu [--no-cases] [--no-times] [--json PATH]
//
// Prints a line per case and exits with 1 if any differs. No test framework: the machine that has the GPU has none.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "gpu/gin_gpu.hpp"
#include "gpu/gpu_ranks.hpp"
#include "gpu/ll_gpu_cases.hpp"
#include "gpu/ll_gpu_times.hpp"

namespace switchyard::testing {
namespace {

constexpr int kRankCounts[] = {2, 4, 8};
constexpr int kMaxFailures = 3;  // a kernel that fails may leave a device that fails everything

struct Options {
  bool cases = true;
  bool times = true;
  std::string json;
};

bool print_device() {
  cudaDeviceProp device{};
  int driver = 0, runtime = 0;
  const std::string fault = fault_of(cudaSetDevice(0)) + fault_of(cudaGetDeviceProperties(&device, 0));
  if (!fault.empty() || cudaDriverGetVersion(&driver) != cudaSuccess ||
      cudaRuntimeGetVersion(&runtime) != cudaSuccess) {
    fprintf(stderr, "no usable CUDA device: %s\n", fault.c_str());
    return false;
  }
  printf("%s, %d multiprocessors, compute capability %d.%d, CUDA driver %d, runtime %d\n", device.name,
         device.multiProcessorCount, device.major, device.minor, driver, runtime);
  return true;
}

// Returns the number of cases that differ; `num_run` counts all.
int run_cases(int num_ranks, int& num_run) {
  int num_failed = 0;
  auto ranks = std::make_unique<GpuRanks>(num_ranks);
  for (const GpuCase& gpu_case : gpu_cases(num_ranks)) {
    // The name first: if the program is stopped, the last line says where.
    printf("%s: ", gpu_case.name().c_str());
    fflush(stdout);
    const LlScenario scenario = make_scenario(gpu_case.seed, gpu_case.shape, gpu_case.routing, gpu_case.fill);
    std::string fault = ranks->fault();
    if (fault.empty()) {
      fault = ranks->on_all([&](int rank) {
        return run_ll_case(ranks->comm(rank), ranks->stream_ref(rank), scenario, gpu_case.mode);
      });
    }
    ++num_run;
    printf("%s\n", fault.empty() ? "ok" : fault.c_str());
    fflush(stdout);
    if (fault.empty()) continue;
    if (++num_failed == kMaxFailures) break;
    ranks = std::make_unique<GpuRanks>(num_ranks);  // a failure ends the communicators
  }
  return num_failed;
}

int run_times(std::vector<GpuTimes>& all) {
  int num_failed = 0;
  for (const int num_ranks : kRankCounts) {
    for (const oracle::Layout layout : {oracle::Layout::kExpertMajor, oracle::Layout::kRankMajor}) {
      for (const bool windows : {false, true}) {
        GpuRanks ranks(num_ranks);
        GpuTimes times{.num_ranks = num_ranks, .layout = layout, .windows = windows};
        const std::string fault = ranks.fault().empty() ? measure_times(ranks, times) : ranks.fault();
        if (fault.empty()) {
          all.push_back(times);
        } else {
          printf("timing with %d ranks: %s\n", num_ranks, fault.c_str());
          ++num_failed;
        }
      }
    }
  }
  return num_failed;
}

int run(const Options& options) {
  if (!print_device()) return 1;
  int num_failed = 0;
  if (options.cases) {
    int num_run = 0;
    for (const int num_ranks : kRankCounts) {
      num_failed += run_cases(num_ranks, num_run);
      GpuRanks ranks(num_ranks);
      const std::string fault = run_gin(ranks);
      printf("device API with %d ranks: %s\n", num_ranks, fault.empty() ? "ok" : fault.c_str());
      num_failed += !fault.empty();
    }
    printf("\n%d cases, %d differ\n", num_run, num_failed);
  }
  if (options.times) {
    std::vector<GpuTimes> all;
    num_failed += run_times(all);
    print_times(all);
    if (!options.json.empty() && !write_times(all, options.json)) {
      fprintf(stderr, "cannot write %s\n", options.json.c_str());
      return 1;
    }
  }
  return num_failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  switchyard::testing::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--no-cases") {
      options.cases = false;
    } else if (argument == "--no-times") {
      options.times = false;
    } else if (argument == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else {
      fprintf(stderr, "usage: %s [--no-cases] [--no-times] [--json PATH]\n", argv[0]);
      return 2;
    }
  }
  // Each rank's kernel needs a hardware queue of its own: two in one queue run one after another, and the first waits
  // for the second for ever. Read by the driver when it starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return switchyard::testing::run(options);
}
