// A rank for the tests of `switchyard run`: joins its job as any program does and prints what the ranks told each
// other.
#include <cstdio>
#include <numeric>
#include <vector>

#include "comm/bootstrap.hpp"
#include "comm/launch_env.hpp"
#include "comm/rendezvous.hpp"

namespace switchyard {
namespace {

Result<int> sum_over_ranks(const LaunchEnv& launch) {
  const Deadline deadline = Deadline::after_ns(30 * kSecond);
  SWITCHYARD_ASSIGN(const UniqueId id, rendezvous(launch, process_environment(), deadline));
  SWITCHYARD_ASSIGN(const auto bootstrap, Bootstrap::connect(id, launch.rank, launch.num_ranks, deadline));
  std::vector<int> everyone(size_t(launch.num_ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  SWITCHYARD_ASSIGN(const std::vector<int> values,
                    bootstrap->exchange_values(Bootstrap::kWorldCommId, everyone, 1 << launch.rank, deadline));
  return std::accumulate(values.begin(), values.end(), 0);
}

int run() {
  const auto launch = read_launch_env(process_environment());
  const Result<int> sum = launch.ok() ? sum_over_ranks(launch.value()) : Result<int>(launch.status());
  if (sum.ok()) std::printf("%d\n", sum.value());
  else std::fprintf(stderr, "%s\n", sum.status().to_string().c_str());
  return sum.ok() ? 0 : 1;
}

}  // namespace
}  // namespace switchyard

int main() { return switchyard::run(); }
