// The same cases with ranks as processes: peers' windows are mapped at other addresses, and nodes share nothing but the
// network.
#include <gtest/gtest.h>

#include "ep/ht_harness.hpp"
#include "platform/host/stream.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::HtLayout;

// Half of the ranks, and the rest.
std::vector<int> two_nodes(int num_ranks) {
  std::vector<int> nodes;
  for (int rank = 0; rank < num_ranks; ++rank) nodes.push_back(rank >= (num_ranks + 1) / 2);
  return nodes;
}

// Arguments: flat or expert-major, plain or windows, one-node or two-nodes. Every rank makes the scenarios by itself:
// equal seeds give equal cases in every process.
std::string round_trips(const RankProcess& self) {
  const auto stream = Stream::create();
  if (!stream.ok()) return stream.status().to_string();
  const auto comm = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!comm.ok()) return comm.status().to_string();
  uint64_t seed = 0;
  for (const oracle::Budget budget : oracle::kAllBudgets) {
    for (const oracle::Overflow overflow : {oracle::Overflow::kTrap, oracle::Overflow::kDrop}) {
      oracle::HtShape shape;
      shape.num_ranks = self.num_ranks;
      shape.num_experts = 3 * self.num_ranks + int(seed % 2);
      shape.topk = 1 + int(seed % 4);
      shape.hidden = 24 + 512 * int(seed % 2);
      shape.max_tokens = 5 + 20 * int(seed % 3);
      shape.layout = self.arguments.at(0) == "flat" ? HtLayout::kFlat : HtLayout::kExpertMajor;
      shape.alignment = shape.layout == HtLayout::kFlat ? 1 : 4;
      shape.overflow = overflow;
      if (self.arguments.at(2) == "two-nodes") shape.node_of_rank = two_nodes(self.num_ranks);
      const oracle::Routing routing = oracle::kAllRoutings[seed % std::size(oracle::kAllRoutings)];
      const oracle::Fill fill = oracle::kAllFills[seed % std::size(oracle::kAllFills)];
      const HtScenario scenario = make_ht_scenario(++seed, shape, routing, fill, budget);
      const HtMode mode{.windows = self.arguments.at(1) == "windows", .pipelined = seed % 2 == 0, .num_rounds = 2};
      const std::string fault = run_ht_case(*comm.value(), {stream.value().get()}, scenario, mode);
      if (!fault.empty()) return text(describe(shape, routing, fill, budget), ": ", fault);
    }
  }
  return "";
}

using Mode = std::tuple<int, std::string, std::string, std::string>;
class HighThroughputProcesses : public ::testing::TestWithParam<Mode> {};

TEST_P(HighThroughputProcesses, MatchTheOracle) {
  const auto& [num_ranks, layout, memory, nodes] = GetParam();
  const std::vector<int> node_of_rank =
      nodes == "two-nodes" ? two_nodes(num_ranks) : std::vector<int>(size_t(num_ranks));
  auto ranks =
      ProcessRanks::start({.num_ranks = num_ranks,
                           .body = "round_trips",
                           .arguments = {layout, memory, nodes},
                           .environment = [&](int rank) {
                             return std::vector<std::string>{text("SWITCHYARD_NODE_ID=", node_of_rank[size_t(rank)])};
                           }});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
}

INSTANTIATE_TEST_SUITE_P(All, HighThroughputProcesses,
                         ::testing::Combine(::testing::Values(2, 5), ::testing::Values("flat", "expert-major"),
                                            ::testing::Values("plain", "windows"),
                                            ::testing::Values("one-node", "two-nodes")));

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"round_trips", round_trips}});
}
