// Tests whose ranks are processes, each on the pretended machine that it was given; they meet as between real hosts
// (docs/networks.md).
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "hosts/hosts.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {

struct HostRanks {
  std::vector<int> host_of_rank = {};  // numbers from 0 that don't decrease
  std::string body = {};
  std::vector<std::string> arguments = {};
  bool proxy = false;
  std::string net = "ofi";
  int num_networks = 1;                       // a rail each
  bool names_interfaces = true;
  std::vector<int> mbit = {};                 // of each cable, by network; of the others: as fast as they go
  int per_mille_lost = 0;                     // packets, of the first network
  std::vector<std::string> environment = {};  // NAME=value, beside what ranks need to meet
};

// Skips its tests where there can't be hosts.
class HostRanksTest : public ::testing::Test {
 protected:
  void SetUp() override;

  // In place of those that were started before.
  void start_on_hosts(const HostRanks& wanted);

  // Each rank says so when it has joined.
  void wait_until_running();
  // Cables go down for 20 ms and up again, one after another, at both of their ends and in all networks in turns. After
  // each all are up for a while, unless all ranks have ended.
  void flap(int num_flaps, uint64_t up_ns = 25 * kMillisecond);

  int host_of(int rank) const { return host_of_rank_[size_t(rank)]; }
  std::string outputs() const;

  std::vector<int> host_of_rank_;
  std::unique_ptr<Hosts> hosts_;
  std::unique_ptr<ProcessRanks> ranks_;
  int num_flaps_ = 0;  // of these hosts
};

}  // namespace switchyard::testing
