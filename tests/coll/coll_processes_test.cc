// Ranks as processes: windows are mapped from others, nodes are joined by a network, and a rank that dies is noticed.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "coll/coll_rank.hpp"
#include "comm/coordinator.hpp"

namespace switchyard::testing {
namespace {

// Arguments: the network, then the node of each rank.
std::vector<int> nodes_of(const RankProcess& self) {
  std::vector<int> nodes;
  for (int rank = 0; rank < self.num_ranks; ++rank) nodes.push_back(std::stoi(self.arguments.at(1 + size_t(rank))));
  return nodes;
}

Result<CollRank> join(const RankProcess& self) {
  Communicator::Options options;
  options.net = self.arguments.at(0);
  options.node_id = nodes_of(self)[size_t(self.rank)];
  return CollRank::join(self, options);
}

std::string rounds(const RankProcess& self) {
  auto rank = join(self);
  if (!rank.ok()) return rank.status().to_string();
  for (const size_t count : {1, 30'001, 777}) {
    const CollRound round{.count = count};
    if (const std::string fault = rank->run_and_check(round, nodes_of(self)); !fault.empty())
      return text(round.name(), ": ", fault);
  }
  return "";
}

// Goes on until something fails, and says what.
std::string until_failure(const RankProcess& self) {
  auto rank = join(self);
  if (!rank.ok()) return rank.status().to_string();
  std::string fault;
  for (bool is_first = true; fault.empty(); is_first = false) {
    fault = rank->run_and_check({.count = 5'000}, nodes_of(self));
    if (is_first && fault.empty()) puts("running");
    fflush(stdout);
  }
  return fault;
}

// As where programs are started by others: the coordinator is in rank 0's process.
std::string until_failure_with_a_coordinator(const RankProcess& self) {
  const auto meeting = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!meeting.ok()) return meeting.status().to_string();
  UniqueId id{};
  if (self.rank == 0) id = create_unique_id().value();
  RankProcess in_job = self;
  in_job.id = meeting.value()->exchange(id).value()[0];
  return until_failure(in_job);
}

struct Job {
  const char* name;
  const char* net;
  std::vector<std::string> nodes;
};

class CollectiveProcesses : public ::testing::TestWithParam<Job> {
 protected:
  static void kill_and_expect_its_name(ProcessRanks& ranks, int victim) {
    const Deadline deadline = Deadline::after_ns(30 * kSecond);
    for (int rank = 0; rank < ranks.size(); ++rank) ASSERT_TRUE(ranks.wait_for_output(rank, "running", deadline));
    ranks.send(victim, SIGKILL);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      ASSERT_TRUE(ranks.wait_for_exit(rank, deadline)) << "rank " << rank << " hangs";
      const std::string& output = ranks.output(rank);
      EXPECT_NE(output.find("remote error"), std::string::npos) << output;
      EXPECT_NE(output.find(text("rank ", victim)), std::string::npos) << output;
    }
  }
  static Result<std::unique_ptr<ProcessRanks>> start(const std::string& body) {
    std::vector<std::string> arguments{GetParam().net};
    arguments.insert(arguments.end(), GetParam().nodes.begin(), GetParam().nodes.end());
    return ProcessRanks::start({.num_ranks = int(GetParam().nodes.size()), .body = body, .arguments = arguments});
  }
};

TEST_P(CollectiveProcesses, GiveWhatPlainLoopsGive) {
  auto ranks = start("rounds");
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
}

TEST_P(CollectiveProcesses, NameTheOneThatWasKilled) {
  auto ranks = start("until_failure");
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  kill_and_expect_its_name(*ranks.value(), ranks.value()->size() - 1);
}

TEST_P(CollectiveProcesses, NameTheOneThatTookTheCoordinatorWithIt) {
  auto ranks = start("until_failure_with_a_coordinator");
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  kill_and_expect_its_name(*ranks.value(), 0);
}
INSTANTIATE_TEST_SUITE_P(Jobs, CollectiveProcesses,
                         ::testing::Values(Job{"one_node", "mem", {"0", "0", "0", "0"}},
                                           Job{"two_nodes_mem", "mem", {"0", "0", "1"}},
                                           Job{"two_nodes_ofi", "ofi", {"0", "1", "1"}}),
                         [](const auto& job) { return job.param.name; });

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"rounds", rounds}, {"until_failure", until_failure},
                                          {"until_failure_with_a_coordinator", until_failure_with_a_coordinator}});
}
