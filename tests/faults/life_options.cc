#include "faults/life_options.hpp"

#include <algorithm>

#include "switchyard/status.hpp"

namespace switchyard::testing {
namespace {

constexpr const char* kAlgorithms[] = {"low latency", "high throughput", "collectives"};

std::string layout_name(const LifeOptions& options) {
  if (options.layout == oracle::Layout::kExpertMajor) return "expert-major";
  return options.algorithm == Algorithm::kLowLatency ? "rank-major" : "flat";
}

}  // namespace

std::vector<std::string> LifeOptions::to_arguments() const {
  return {std::to_string(num_ranks),
          std::to_string(victim),
          masks ? "masks" : "no-masks",
          windows ? "windows" : "plain",
          layout == oracle::Layout::kExpertMajor ? "by-expert" : "by-rank",
          std::to_string(timeout_ns),
          std::to_string(comm_timeout_ns),
          std::to_string(hidden),
          kAlgorithms[size_t(algorithm)],
          drops ? "drops" : "fits",
          two_nodes ? "two-nodes" : "one-node"};
}

LifeOptions LifeOptions::from_arguments(const std::vector<std::string>& arguments) {
  return {.num_ranks = std::stoi(arguments.at(0)),
          .victim = std::stoi(arguments.at(1)),
          .masks = arguments.at(2) == "masks",
          .windows = arguments.at(3) == "windows",
          .layout = arguments.at(4) == "by-expert" ? oracle::Layout::kExpertMajor : oracle::Layout::kRankMajor,
          .timeout_ns = std::stoull(arguments.at(5)),
          .comm_timeout_ns = std::stoull(arguments.at(6)),
          .hidden = std::stoi(arguments.at(7)),
          .algorithm = Algorithm(std::ranges::find(kAlgorithms, arguments.at(8)) - kAlgorithms),
          .drops = arguments.at(9) == "drops",
          .two_nodes = arguments.at(10) == "two-nodes"};
}

std::string LifeOptions::name() const {
  return text(kAlgorithms[size_t(algorithm)], masks ? ", masks" : ", no masks",
              windows ? ", windows, " : ", plain, ", layout_name(*this), drops ? ", dropping" : "",
              two_nodes ? ", two nodes" : "", ", rank ", victim, " of ", num_ranks);
}

}  // namespace switchyard::testing
