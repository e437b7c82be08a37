// tcp;ofi_rxm speaks one of two protocols: all ranks the same, or they are told so when they meet.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

std::string join(const RankProcess& process) {
  const auto comm = Communicator::create(process.id, process.rank, process.num_ranks,
                                         {.timeout_ns = 20 * kSecond, .node_id = process.rank, .net = "ofi"});
  const Status met = comm.ok() ? comm.value()->barrier() : comm.status();
  std::printf("%s\n", met.ok() ? "met" : met.to_string().c_str());
  return "";
}

// What the ranks printed, each with this word of the user's on handing everything on to tcp; empty: none.
std::vector<std::string> run(const std::string& first, const std::string& second) {
  const auto environment = [&](int rank) {
    const std::string& word = rank == 0 ? first : second;
    return word.empty() ? std::vector<std::string>{} : std::vector<std::string>{"FI_OFI_RXM_ENABLE_PASSTHRU=" + word};
  };
  auto ranks = ProcessRanks::start({.num_ranks = 2, .body = "join", .environment = environment});
  EXPECT_TRUE(ranks.ok()) << ranks.status().to_string();
  if (!ranks.ok()) return {};
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
  return {ranks.value()->output(0), ranks.value()->output(1)};
}

bool has(const std::string& output, const std::string& words) { return output.find(words) != std::string::npos; }

TEST(Protocol, EverythingIsHandedOnToTcpUnlessTheUserSaysOtherwise) {
  for (const std::string& output : run("", "1")) {
    EXPECT_TRUE(has(output, "met")) << output;
    EXPECT_FALSE(has(output, "does not hand everything on")) << output;
  }
  for (const std::string& output : run("0", "0")) {
    EXPECT_TRUE(has(output, "met")) << output;
    EXPECT_TRUE(has(output, "does not hand everything on to tcp: FI_OFI_RXM_ENABLE_PASSTHRU")) << output;
  }
}

TEST(Protocol, TwoOfThemDoNotMeet) {
  const auto outputs = run("0", "");
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_TRUE(has(outputs[0], "rank 1's libfabric speaks another protocol than rank 0's")) << outputs[0];
  EXPECT_TRUE(has(outputs[1], "rank 0's libfabric speaks another protocol than rank 1's")) << outputs[1];
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  return switchyard::testing::process_ranks_main(argc, argv, {{"join", switchyard::testing::join}});
}
