// Percentiles of a benchmark's samples.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace switchyard::bench {

// The nearest-rank percentile: always one of the samples. REQUIRES at least one sample, 0 < percent <= 100.
inline double percentile(std::vector<double> samples, double percent) {
  const auto rank = size_t(std::ceil(percent / 100 * double(samples.size())));
  const size_t idx = std::clamp<size_t>(rank, 1, samples.size()) - 1;
  std::nth_element(samples.begin(), samples.begin() + ptrdiff_t(idx), samples.end());
  return samples[idx];
}

}  // namespace switchyard::bench
