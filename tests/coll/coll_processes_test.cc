// Ranks as processes: windows are mapped from others, nodes are joined by a network, and a rank that dies is noticed.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "coll/collectives.hpp"
#include "coll/reference.hpp"
#include "platform/host/stream.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

using coll::ReduceOp;

struct Rank {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<coll::Collectives> collectives;
  StreamRef stream_ref() const { return {stream.get()}; }
};

// Arguments: the network, then the node of each rank.
Result<Rank> join(const RankProcess& self) {
  Rank rank;
  Communicator::Options options;
  options.net = self.arguments.at(0);
  options.node_id = std::stoi(self.arguments.at(1 + size_t(self.rank)));
  SWITCHYARD_ASSIGN(rank.stream, Stream::create());
  SWITCHYARD_ASSIGN(rank.comm, Communicator::create(self.id, self.rank, self.num_ranks, options));
  SWITCHYARD_ASSIGN(rank.collectives, coll::Collectives::create(*rank.comm, {.stage_bytes = 64 << 10}));
  return rank;
}

std::string round(const RankProcess& self, Rank& rank, size_t count) {
  const auto n = size_t(self.num_ranks);
  std::vector<Bytes> inputs;
  std::vector<int> nodes;
  Bytes gathered;
  for (int other = 0; other < self.num_ranks; ++other) {
    inputs.push_back(make_input(DType::kBfloat16, other, count * n));
    nodes.push_back(std::stoi(self.arguments.at(1 + size_t(other))));
    gathered.insert(gathered.end(), inputs.back().begin(), inputs.back().end());
  }
  const Bytes sums = reduce(DType::kBfloat16, ReduceOp::kSum, inputs, nodes);
  const Bytes& in = inputs[size_t(self.rank)];
  Bytes all(in.size() * n), added(in.size()), share(count * 2), turned(in.size()), expected;
  for (const Bytes& input : inputs) {
    const auto begin = input.begin() + std::ptrdiff_t(share.size()) * self.rank;
    expected.insert(expected.end(), begin, begin + std::ptrdiff_t(share.size()));
  }
  coll::Collectives& c = *rank.collectives;
  const auto run = [&]() -> Status {
    SWITCHYARD_TRY(c.all_gather(in.data(), all.data(), count * n, DType::kBfloat16, rank.stream_ref()));
    SWITCHYARD_TRY(
        c.all_reduce(in.data(), added.data(), count * n, DType::kBfloat16, ReduceOp::kSum, rank.stream_ref()));
    SWITCHYARD_TRY(
        c.reduce_scatter(in.data(), share.data(), count, DType::kBfloat16, ReduceOp::kSum, rank.stream_ref()));
    SWITCHYARD_TRY(c.all_to_all(in.data(), turned.data(), count, DType::kBfloat16, rank.stream_ref()));
    return rank.stream->synchronize(Deadline::after_ns(30 * kSecond));
  };
  if (const Status status = run(); !status.ok()) return status.to_string();
  if (all != gathered) return "all-gather is wrong";
  if (added != sums) return "all-reduce is wrong";
  if (!std::equal(share.begin(), share.end(), sums.begin() + std::ptrdiff_t(share.size()) * self.rank))
    return "reduce-scatter is wrong";
  return turned == expected ? "" : "all-to-all is wrong";
}

std::string rounds(const RankProcess& self) {
  auto rank = join(self);
  if (!rank.ok()) return rank.status().to_string();
  for (const size_t count : {1, 30'001, 777}) {
    if (const std::string fault = round(self, *rank, count); !fault.empty()) return text(count, ": ", fault);
  }
  return "";
}

// Goes on until something fails, and says what.
std::string until_failure(const RankProcess& self) {
  auto rank = join(self);
  if (!rank.ok()) return rank.status().to_string();
  std::string fault;
  for (bool is_first = true; fault.empty(); is_first = false) {
    fault = round(self, *rank, 5'000);
    if (is_first && fault.empty()) puts("running");
    fflush(stdout);
  }
  return fault;
}

struct Job {
  const char* name;
  const char* net;
  std::vector<std::string> nodes;
};

class CollectiveProcesses : public ::testing::TestWithParam<Job> {
 protected:
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
  const int victim = ranks.value()->size() - 1;
  const Deadline deadline = Deadline::after_ns(30 * kSecond);
  for (int rank = 0; rank <= victim; ++rank) ASSERT_TRUE(ranks.value()->wait_for_output(rank, "running", deadline));
  ranks.value()->send(victim, SIGKILL);
  bool is_named = false;
  for (int rank = 0; rank < victim; ++rank) {
    ASSERT_TRUE(ranks.value()->wait_for_exit(rank, deadline)) << "rank " << rank << " hangs";
    const std::string& output = ranks.value()->output(rank);
    EXPECT_NE(output.find("remote error"), std::string::npos) << output;
    is_named |= output.find(text("rank ", victim)) != std::string::npos;
  }
  EXPECT_TRUE(is_named);
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
  return process_ranks_main(argc, argv, {{"rounds", rounds}, {"until_failure", until_failure}});
}
