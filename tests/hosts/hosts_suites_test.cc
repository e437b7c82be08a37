// Whole suites with ranks on machines of their own: the matrices and random cases of both algorithms against the
// oracle, and the collectives against plain loops. What a run leaves out of a list, SWITCHYARD_FAULTS_SOAK=1 runs.
//
//   SWITCHYARD_TEST_CASE   of each list only the case of this number, which a failure names
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/env.hpp"
#include "coll/coll_rank.hpp"
#include "ep/ht_matrix.hpp"
#include "ep/ht_random.hpp"
#include "ep/ll_matrix.hpp"
#include "ep/ll_random.hpp"
#include "faults/life.hpp"
#include "hosts/host_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr size_t kNumRandomCases = 300;

// All types and operations; a long vector, of many pieces, of the types of models only.
std::vector<CollRound> collective_rounds() {
  std::vector<CollRound> rounds;
  for (const DType dtype : kReducible) {
    for (const coll::ReduceOp op : kOps) {
      for (const size_t count : {1, 777}) rounds.push_back({count, dtype, op});
    }
  }
  for (const DType dtype : {DType::kBfloat16, DType::kFloat32}) rounds.push_back({30'001, dtype, coll::ReduceOp::kSum});
  return rounds;
}

// ---- what a rank does ----

// Every step-th case of a list, from the first on.
struct Share {
  size_t first = 0, step = 1;
  size_t size_of(size_t num_cases) const { return first < num_cases ? (num_cases - 1 - first) / step + 1 : 0; }
};

// Arguments: the share, then the host of each rank.
Share share_of(const RankProcess& self) { return {std::stoul(self.arguments.at(0)), std::stoul(self.arguments.at(1))}; }
std::vector<int> hosts_of(const RankProcess& self) {
  std::vector<int> hosts;
  for (int rank = 0; rank < self.num_ranks; ++rank) hosts.push_back(std::stoi(self.arguments.at(2 + size_t(rank))));
  return hosts;
}

// Nodes are the hosts: without SWITCHYARD_NODE_ID ranks find out themselves.
std::string nodes_fault(const RankProcess& self, const Communicator& comm) {
  for (int rank = 0; rank < self.num_ranks; ++rank) {
    const int node = comm.topology().node_of(rank), host = hosts_of(self)[size_t(rank)];
    if (node != host) return text("rank ", rank, " is on host ", host, " but node ", node);
  }
  return "";
}

template <class Case, class Run>
std::string run_share(const RankProcess& self, Communicator& comm, const std::vector<Case>& cases, const Run& run) {
  if (const std::string fault = nodes_fault(self, comm); !fault.empty()) return fault;
  const Share share = share_of(self);
  size_t num_passed = 0;
  for (size_t idx = share.first; idx < cases.size(); idx += share.step) {
    std::string fault = run(cases[idx]);
    // Nobody begins the next case where somebody failed in this one.
    if (fault.empty()) {
      if (const Status met = comm.barrier(); !met.ok()) fault = met.to_string();
    }
    if (!fault.empty()) return text("case ", idx, " (", cases[idx].name(), "): ", fault);
    ++num_passed;
  }
  printf("passed %zu of %zu cases\n", num_passed, cases.size());
  return "";
}

// run(comm, stream, case): one rank's part of it.
template <class Case, class Run>
std::string run_ep_share(const RankProcess& self, const std::vector<Case>& cases, const Run& run) {
  const auto comm = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!comm.ok()) return comm.status().to_string();
  // It ends before the communicator does: after a failure the group is still there, and the stream may look at its
  // windows.
  const auto stream = Stream::create();
  if (!stream.ok()) return stream.status().to_string();
  return run_share(self, *comm.value(), cases,
                   [&](const Case& c) { return run(*comm.value(), StreamRef{stream.value().get()}, c); });
}

std::string ll_matrix_cases(const RankProcess& self) {
  return run_ep_share(self, ll_matrix::cases_for(self.num_ranks),
                      [](Communicator& comm, StreamRef stream, const auto& c) {
                        return run_ll_case(comm, stream, c.scenario(), c.mode);
                      });
}

std::string ll_random_cases(const RankProcess& self) {
  return run_ep_share(self, ll_random::cases_for(self.num_ranks, kNumRandomCases),
                      [](Communicator& comm, StreamRef stream, const auto& c) {
                        return run_ll_case(comm, stream, c.scenario(), c.mode_of(comm.rank()));
                      });
}

std::string ht_matrix_cases(const RankProcess& self) {
  return run_ep_share(self, ht_matrix::cases_for(self.num_ranks, hosts_of(self)),
                      [](Communicator& comm, StreamRef stream, const auto& c) {
                        return run_ht_case(comm, stream, c.scenario(), c.mode);
                      });
}

std::string ht_random_cases(const RankProcess& self) {
  return run_ep_share(self, ht_random::cases_for(self.num_ranks, hosts_of(self), kNumRandomCases),
                      [](Communicator& comm, StreamRef stream, const auto& c) {
                        return run_ht_case(comm, stream, c.scenario(), c.mode);
                      });
}

std::string collectives(const RankProcess& self) {
  auto rank = CollRank::join(self, {});
  if (!rank.ok()) return rank.status().to_string();
  return run_share(self, rank->comm(), collective_rounds(),
                   [&](const CollRound& round) { return rank->run_and_check(round, hosts_of(self)); });
}

// ---- starting them ----

struct Suite {
  const char* body;
  size_t (*num_cases)(const std::vector<int>& host_of_rank);
  // Of a plain run. Prime to the lengths of what the lists go through, so that every value comes up.
  size_t step;
};
const Suite kSuites[] = {
    {"ll_matrix", [](const std::vector<int>& hosts) { return ll_matrix::cases_for(int(hosts.size())).size(); }, 17},
    {"ht_matrix", [](const std::vector<int>& hosts) { return ht_matrix::cases_for(int(hosts.size()), hosts).size(); },
     11},
    {"ll_random", [](const std::vector<int>&) { return kNumRandomCases; }, 17},
    {"ht_random", [](const std::vector<int>&) { return kNumRandomCases; }, 17},
    {"collectives", [](const std::vector<int>&) { return collective_rounds().size(); }, 7}};

struct Placement {
  const char* name;
  std::vector<int> host_of_rank;
};
const Placement kPlacements[] = {{"two_of_one", {0, 1}},
                                 {"two_of_two", {0, 0, 1, 1}},
                                 {"four_of_one", {0, 1, 2, 3}},
                                 {"four_of_two", {0, 0, 1, 1, 2, 2, 3, 3}},
                                 {"two_and_one", {0, 0, 1}}};

struct Plan {
  Suite suite;
  Placement placement;
  bool proxy;
  Share share;
};
void PrintTo(const Plan& plan, std::ostream* out) {
  *out << "from case " << plan.share.first << " on in steps of " << plan.share.step
       << (plan.proxy ? ", proxy" : ", direct");
}

// Which of direct and proxy a plain run leaves out differs between neighbours, and so do the cases.
std::vector<Plan> plans() {
  const char* wanted = getenv("SWITCHYARD_TEST_CASE");
  const auto only = parse_number(wanted ? wanted : "", 0, 100'000);
  std::vector<Plan> plans;
  size_t idx = 0;
  for (const Suite& suite : kSuites) {
    for (const Placement& placement : kPlacements) {
      ++idx;
      for (const bool proxy : {false, true}) {
        if (!soaking() && !only && proxy != (idx % 2 != 0)) continue;
        Share share{idx % suite.step, suite.step};
        if (soaking()) share = {0, 1};
        if (only) share = {size_t(*only), 1'000'000};
        plans.push_back({suite, placement, proxy, share});
      }
    }
  }
  return plans;
}

class HostsSuites : public HostRanksTest, public ::testing::WithParamInterface<Plan> {};

TEST_P(HostsSuites, EveryCaseGivesWhatItsModelSays) {
  const auto& [suite, placement, proxy, share] = GetParam();
  const size_t num_cases = suite.num_cases(placement.host_of_rank), num_planned = share.size_of(num_cases);
  ASSERT_GT(num_planned, 0u) << "there are " << num_cases << " cases";
  std::vector<std::string> arguments{std::to_string(share.first), std::to_string(share.step)};
  for (const int host : placement.host_of_rank) arguments.push_back(std::to_string(host));
  start_on_hosts({.host_of_rank = placement.host_of_rank, .body = suite.body, .arguments = arguments, .proxy = proxy});
  ASSERT_EQ(ranks_->wait(Deadline::after_ns((soaking() ? 900 : 120) * kSecond)), "");
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    for (const std::string& printed : {text("passed ", num_planned, " of ", num_cases, " cases\n"),
                                       text("interface eth0, address ", Hosts::address(host_of(rank)))}) {
      EXPECT_NE(ranks_->output(rank).find(printed), std::string::npos) << printed << ranks_->output(rank);
    }
  }
  printf("%zu of %zu cases on %d ranks\n", num_planned, num_cases, ranks_->size());
  RecordProperty("cases", int(num_planned));
}

INSTANTIATE_TEST_SUITE_P(All, HostsSuites, ::testing::ValuesIn(plans()), [](const auto& instance) {
  const Plan& plan = instance.param;
  return text(plan.suite.body, "_", plan.placement.name, plan.proxy ? "_proxy" : "_direct");
});

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv,
                            {{"ll_matrix", ll_matrix_cases},
                             {"ht_matrix", ht_matrix_cases},
                             {"ll_random", ll_random_cases},
                             {"ht_random", ht_random_cases},
                             {"collectives", collectives}});
}
