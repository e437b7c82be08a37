#include "hosts/host_ranks.hpp"

namespace switchyard::testing {

void HostRanksTest::SetUp() {
  if (const std::string why = Hosts::why_not(); !why.empty()) GTEST_SKIP() << why;
}

void HostRanksTest::start_on_hosts(const HostRanks& wanted) {
  host_of_rank_ = wanted.host_of_rank;
  auto hosts = Hosts::create(host_of_rank_.back() + 1, wanted.num_networks);
  ASSERT_TRUE(hosts.ok()) << hosts.status().to_string();
  hosts_ = std::move(hosts).value();
  std::string interfaces = "eth0";
  for (int network = 1; network < wanted.num_networks; ++network) interfaces += text(",eth", network);
  for (int host = 0; host < hosts_->size(); ++host) {
    for (size_t network = 0; network < wanted.mbit.size(); ++network) {
      const Status slow = hosts_->limit_rate(host, wanted.mbit[network], int(network));
      ASSERT_TRUE(slow.ok()) << slow.to_string();
    }
  }
  const auto environment = [&](int) {
    return std::vector<std::string>{text("SWITCHYARD_STORE=tcp://", Hosts::address(0), ":29400"),
                                    "SWITCHYARD_JOB_KEY=only-for-the-tests-of-hosts",
                                    "SWITCHYARD_INTERFACE=" + interfaces,
                                    "SWITCHYARD_NET=" + wanted.net,
                                    text("SWITCHYARD_GIN=", wanted.proxy ? "proxy" : "direct"),
                                    "SWITCHYARD_LOG=info"};
  };
  auto ranks = ProcessRanks::start({.num_ranks = int(host_of_rank_.size()),
                                    .body = wanted.body,
                                    .arguments = wanted.arguments,
                                    .environment = environment,
                                    .prefix = [&](int rank) { return hosts_->prefix(host_of(rank)); },
                                    .meet_by_themselves = true});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  ranks_ = std::move(ranks).value();
}

std::string HostRanksTest::outputs() const {
  std::string all;
  for (int rank = 0; rank < ranks_->size(); ++rank) all += text("rank ", rank, ":\n", ranks_->output(rank));
  return all;
}

}  // namespace switchyard::testing
