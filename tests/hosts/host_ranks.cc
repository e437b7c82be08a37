#include "hosts/host_ranks.hpp"

#include <poll.h>

namespace switchyard::testing {

void HostRanksTest::SetUp() {
  if (const std::string why = Hosts::why_not(); !why.empty()) GTEST_SKIP() << why;
}

void HostRanksTest::start_on_hosts(const HostRanks& wanted) {
  host_of_rank_ = wanted.host_of_rank;
  auto hosts = Hosts::create(host_of_rank_.back() + 1, wanted.num_networks);
  ASSERT_TRUE(hosts.ok()) << hosts.status().to_string();
  hosts_ = std::move(hosts).value();
  num_flaps_ = 0;
  std::string interfaces = "eth0";
  for (int network = 1; network < wanted.num_networks; ++network) interfaces += text(",eth", network);
  for (int host = 0; host < hosts_->size(); ++host) {
    for (size_t network = 0; network < wanted.mbit.size(); ++network) {
      const Status slow = hosts_->limit_rate(host, wanted.mbit[network], int(network));
      ASSERT_TRUE(slow.ok()) << slow.to_string();
    }
    if (wanted.per_mille_lost == 0) continue;
    const Status lossy = hosts_->lose_packets(host, wanted.per_mille_lost);
    ASSERT_TRUE(lossy.ok()) << lossy.to_string();
  }
  const auto environment = [&](int) {
    std::vector<std::string> variables{text("SWITCHYARD_STORE=tcp://", Hosts::address(0), ":29400"),
                                       "SWITCHYARD_JOB_KEY=only-for-the-tests-of-hosts",
                                       "SWITCHYARD_NET=" + wanted.net,
                                       text("SWITCHYARD_GIN=", wanted.proxy ? "proxy" : "direct"),
                                       "SWITCHYARD_LOG=info"};
    if (wanted.names_interfaces) variables.push_back("SWITCHYARD_INTERFACE=" + interfaces);
    variables.insert(variables.end(), wanted.environment.begin(), wanted.environment.end());
    return variables;
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

void HostRanksTest::wait_until_running() {
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    ASSERT_TRUE(ranks_->wait_for_output(rank, "running\n", Deadline::after_ns(20 * kSecond)))
        << "rank " << rank << ":\n"
        << ranks_->output(rank);
  }
}

void HostRanksTest::flap(int num_flaps, uint64_t up_ns) {
  for (const int end_of_flaps = num_flaps_ + num_flaps; num_flaps_ < end_of_flaps; ++num_flaps_) {
    const int host = num_flaps_ % hosts_->size(), lap = num_flaps_ / hosts_->size();
    const Hosts::End end = lap % 2 == 0 ? Hosts::End::kSwitch : Hosts::End::kHost;
    const int network = lap / 2 % hosts_->num_networks();
    const Status down = hosts_->set_link(host, end, false, network);
    ASSERT_TRUE(down.ok()) << down.to_string();
    poll(nullptr, 0, 20);  // long enough to lose packets, and to have no carrier when TCP tries again
    const Status up = hosts_->set_link(host, end, true, network);
    ASSERT_TRUE(up.ok()) << up.to_string();
    (void)ranks_->wait(Deadline::after_ns(up_ns));  // takes in what they print
  }
}

std::string HostRanksTest::outputs() const {
  std::string all;
  for (int rank = 0; rank < ranks_->size(); ++rank) all += text("rank ", rank, ":\n", ranks_->output(rank));
  return all;
}

}  // namespace switchyard::testing
