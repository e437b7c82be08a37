// How long dispatch and combine take on the GPU, for the shape that decoding has.
#pragma once
#include <string>
#include <vector>

#include "gpu/gpu_ranks.hpp"
#include "oracle/case.hpp"

namespace switchyard::testing {

// Median over the iterations of the slowest rank's time, in microseconds. `kernel` is between CUDA events around the
// operation, `wall` from before the call to after the stream's end. `pair` is one dispatch and one combine when 20 of
// both are posted at once.
struct GpuTimes {
  int num_ranks;
  oracle::Layout layout;
  bool windows;
  double dispatch_kernel_us = 0, dispatch_wall_us = 0, combine_kernel_us = 0, combine_wall_us = 0, pair_us = 0;
};

oracle::Shape timed_shape(int num_ranks, oracle::Layout layout);
// Checks the results before and after timing. Returns what went wrong, or nothing.
std::string measure_times(GpuRanks& ranks, GpuTimes& times);
void print_times(const std::vector<GpuTimes>& all);
bool write_times(const std::vector<GpuTimes>& all, const std::string& path);

}  // namespace switchyard::testing
