#include "hosts/suites.hpp"

#include <cstdio>

#include "coll/coll_rank.hpp"
#include "ep/ht_matrix.hpp"
#include "ep/ht_random.hpp"
#include "ep/ll_matrix.hpp"
#include "ep/ll_random.hpp"

namespace switchyard::testing {
namespace {

constexpr size_t kNumRandomCases = 300;
constexpr const char* kFailedAt = "the library failed in case ";

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

void say(const std::string& line) {
  puts(line.c_str());
  fflush(stdout);
}

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

std::string passed_line(size_t num_passed, size_t num_cases) {
  return text("passed ", num_passed, " of ", num_cases, " cases");
}

// An error of the library is told to the test; what is wrong is a fault of this process.
std::string tell(const Verdict& verdict, size_t case_idx, const std::string& name) {
  const std::string what = text(case_idx, " (", name, "): ", verdict);
  if (!verdict.error()) return "wrong in case " + what;
  say(kFailedAt + what);
  return "";
}
std::string tell_joining(const RankProcess& self, const Status& status) {
  return tell(status, share_of(self).first, "joining");
}

template <class Case, class Run>
std::string run_share(const RankProcess& self, Communicator& comm, const std::vector<Case>& cases, const Run& run) {
  if (const std::string fault = nodes_fault(self, comm); !fault.empty()) return fault;
  say("running");
  const Share share = share_of(self);
  for (size_t idx = share.first; idx < cases.size(); idx += share.step) {
    Verdict verdict = run(cases[idx]);
    // Nobody begins the next case where somebody failed in this one.
    if (verdict.right()) verdict = comm.barrier();
    if (!verdict.right()) return tell(verdict, idx, cases[idx].name());
  }
  say(passed_line(share.size_of(cases.size()), cases.size()));
  return "";
}

// run(comm, stream, case): one rank's part of it.
template <class Case, class Run>
std::string run_ep_share(const RankProcess& self, const std::vector<Case>& cases, const Run& run) {
  const auto comm = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!comm.ok()) return tell_joining(self, comm.status());
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
  if (!rank.ok()) return tell_joining(self, rank.status());
  return run_share(self, rank->comm(), collective_rounds(),
                   [&](const CollRound& round) { return rank->run_and_check(round, hosts_of(self)); });
}

}  // namespace

int suites_main(int argc, char** argv) {
  return process_ranks_main(argc, argv,
                            {{"ll_matrix", ll_matrix_cases},
                             {"ht_matrix", ht_matrix_cases},
                             {"ll_random", ll_random_cases},
                             {"ht_random", ht_random_cases},
                             {"collectives", collectives}});
}

// ---- starting them ----

const std::vector<Suite>& all_suites() {
  static const std::vector<Suite> suites{
      {"ll_matrix", [](const std::vector<int>& hosts) { return ll_matrix::cases_for(int(hosts.size())).size(); }, 17},
      {"ht_matrix", [](const std::vector<int>& hosts) { return ht_matrix::cases_for(int(hosts.size()), hosts).size(); },
       11},
      {"ll_random", [](const std::vector<int>&) { return kNumRandomCases; }, 17},
      {"ht_random", [](const std::vector<int>&) { return kNumRandomCases; }, 17},
      {"collectives", [](const std::vector<int>&) { return collective_rounds().size(); }, 7}};
  return suites;
}

const std::vector<Placement>& all_placements() {
  static const std::vector<Placement> placements{{"two_of_one", {0, 1}},
                                                 {"two_of_two", {0, 0, 1, 1}},
                                                 {"four_of_one", {0, 1, 2, 3}},
                                                 {"four_of_two", {0, 0, 1, 1, 2, 2, 3, 3}},
                                                 {"two_and_one", {0, 0, 1}}};
  return placements;
}

void SuitesTest::start_suite(const Suite& suite, const Placement& placement, const Share& share, HostRanks wanted) {
  num_cases_ = suite.num_cases(placement.host_of_rank);
  num_planned_ = share.size_of(num_cases_);
  ASSERT_GT(num_planned_, 0u) << "there are " << num_cases_ << " cases";
  wanted.host_of_rank = placement.host_of_rank;
  wanted.body = suite.body;
  wanted.arguments = {std::to_string(share.first), std::to_string(share.step)};
  for (const int host : placement.host_of_rank) wanted.arguments.push_back(std::to_string(host));
  start_on_hosts(wanted);
}

SuitesTest::Ending SuitesTest::ending_of(int rank) const {
  const std::string& output = ranks_->output(rank);
  Ending ending;
  ending.through = output.find(passed_line(num_planned_, num_cases_) + "\n") != std::string::npos;
  if (const size_t at = output.find(kFailedAt); at != std::string::npos) {
    ending.error = output.substr(at, output.find('\n', at) - at);
    ending.failed_at = std::stoul(ending.error.substr(std::string_view(kFailedAt).size()));
  }
  return ending;
}

}  // namespace switchyard::testing
