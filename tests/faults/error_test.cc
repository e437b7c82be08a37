// Failures of the host side: every place that can fail does, on one rank or on all. The call says so, everybody's calls
// end, nothing leaks, and the same processes can start afresh.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/failpoint.hpp"
#include "faults/failpoint_list.hpp"
#include "faults/life.hpp"
#include "net/net.hpp"
#include "platform/host/memory.hpp"
#include "platform/host/wait.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRanks = 3;
constexpr int kAllRanks = -1;

struct Failure {
  const char* place;
  int rank;
  int hit;
  Algorithm algorithm = Algorithm::kLowLatency;

  // Of libfabric's objects: then the last rank is on a node of its own.
  bool two_nodes() const { return std::string_view(place).starts_with("net."); }
  std::string name() const {
    return text(place, "@", hit, rank == kAllRanks ? " on all ranks" : text(" on rank ", rank),
                algorithm == Algorithm::kHighThroughput ? ", high throughput" : "");
  }
};

// Later hits fail with more to clean up: windows beside the first, groups with windows.
std::vector<Failure> all_failures(bool two_nodes) {
  std::vector<Failure> failures;
  for (const FailpointPlace& place : all_failpoints()) {
    if (!place.can_fail || place.starts_with("net.") != two_nodes) continue;
    const bool is_hub = place.starts_with("node_link.hub_");
    // Each algorithm has its own.
    const bool twice = place.starts_with("group.before_payload") || place.starts_with("group.after_payload") ||
                       place.starts_with("ep.before_post");
    const bool again = place.starts_with("window.") || place.starts_with("node_link.") || place.starts_with("ep.") ||
                       place.starts_with("net.region_");
    for (const int rank : {is_hub ? 0 : 1, kAllRanks}) {
      // "All ranks" of a star are its hub, or all but its hub: the rest learns of it.
      for (int hit = 1; hit <= (again ? 2 : 1); ++hit) {
        failures.push_back({place.name, rank, hit});
        if (twice) failures.push_back({place.name, rank, hit, Algorithm::kHighThroughput});
      }
    }
  }
  return failures;
}

struct Footprint {
  int num_fds = num_open_fds();
  size_t num_bytes = DeviceMemory::instance().num_bytes_allocated();
  bool operator==(const Footprint&) const = default;
};

LifeOptions options_for(const Failure& failure) {
  LifeOptions options;
  options.algorithm = failure.algorithm;
  options.masks = std::string_view(failure.place).starts_with("mask.");
  options.two_nodes = failure.two_nodes();
  options.timeout_ns = 300 * kMillisecond;  // what the others wait for an operation that was never posted
  options.comm_timeout_ns = 1500 * kMillisecond;  // and for a rank that left a collective call
  return options;
}

std::string fail_once(Communicator& meeting, const Failure& failure) {
  const auto job = FreshJob::create(meeting);
  if (!job.ok()) return job.status().to_string();
  const std::string filter = failure.rank == kAllRanks ? "" : text("#", failure.rank);
  if (const Status set = set_failpoint(failure.place, text("error@", failure.hit, filter)); !set.ok()) return set.to_string();
  Life life(options_for(failure), job->id, meeting.rank());
  const Status status = life.run();
  life.leave();
  clear_failpoints();
  if (!life.wrong().empty()) return life.wrong();
  const bool hit_here = status.message() == text("failpoint ", failure.place);
  if (failure.rank == meeting.rank() && !hit_here) return "did not fail there but: " + status.to_string();
  return status.ok() ? "the failure of another rank went unnoticed" : "";
}

std::string live_once(Communicator& meeting, const Failure& failure) {
  const auto job = FreshJob::create(meeting);
  if (!job.ok()) return job.status().to_string();
  LifeOptions options = options_for(failure);
  options.timeout_ns = options.comm_timeout_ns = 30 * kSecond;
  options.windows = true;
  Life life(options, job->id, meeting.rank());
  const Status status = life.run();
  return status.ok() ? life.wrong() : status.to_string();
}

// Failures one after another, in the same processes.
std::string fail_and_start_afresh(const RankProcess& self) {
  const auto meeting = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!meeting.ok()) return meeting.status().to_string();
  const std::vector<Failure> failures = all_failures(self.arguments.at(0) == "two-nodes");
  if (const std::string fault = live_once(*meeting.value(), failures.front()); !fault.empty()) return fault;
  const Footprint before;
  for (const Failure& failure : failures) {
    if (const std::string fault = fail_once(*meeting.value(), failure); !fault.empty()) {
      return text(failure.name(), ": ", fault);
    }
    // Threads of the job may still be closing what they had when their owner's call returned.
    if (wait_until([&] { return Footprint() == before; }, Deadline::after_ns(2 * kSecond)) != WaitResult::kReady) {
      const Footprint after;
      return text(failure.name(), ": ", before.num_fds, " descriptors and ", before.num_bytes, " bytes before, ",
                  after.num_fds, " and ", after.num_bytes, " after");
    }
    if (const std::string fault = live_once(*meeting.value(), failure); !fault.empty()) {
      return text("after ", failure.name(), ": ", fault);
    }
  }
  return "";
}

TEST(ErrorTest, EveryHostSideFailureIsReportedLeaksNothingAndLeavesTheProcessFitForAnotherStart) {
  auto ranks = ProcessRanks::start({.num_ranks = kNumRanks, .body = "fail_and_start_afresh", .arguments = {"one-node"}});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(280 * kSecond)), "");
}

TEST(ErrorTest, SoIsEveryFailureOfTheNetworksObjects) {
  if (!find_net_plugin("ofi").ok()) GTEST_SKIP() << "built without libfabric";
  auto ranks = ProcessRanks::start({.num_ranks = kNumRanks, .body = "fail_and_start_afresh", .arguments = {"two-nodes"},
                                    .environment = [](int rank) {
                                      return std::vector<std::string>{text("SWITCHYARD_NODE_ID=", int(rank == kNumRanks - 1)),
                                                                      "SWITCHYARD_NET=ofi"};
                                    }});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(280 * kSecond)), "");
}

// The hub of a node dies while others have connected to it and it has not yet accepted them.
std::string introduce_to_one_who_died(const RankProcess& self) {
  const bool is_hub = self.rank == 0;
  const Status set = is_hub ? set_failpoint("node_link.after_invitation", "delay:20000")
                            : set_failpoint("node_link.after_connect", "delay:600");
  if (!set.ok()) return set.to_string();
  if (is_hub) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      _exit(0);
    }).detach();
  }
  const auto comm = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (comm.ok()) return "made a communicator with a rank that died";
  const Status status = comm.status();
  const bool says_who = status.code() == Code::kRemoteError && status.message().find("rank 0") != std::string::npos;
  return says_who ? "" : status.to_string();
}

TEST(ErrorTest, ADeathBeforeTheIntroductionIsOneOfAnotherRank) {
  auto ranks = ProcessRanks::start({.num_ranks = kNumRanks, .body = "introduce_to_one_who_died"});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
}

TEST(ErrorList, HasEveryPlaceThatCanFail) { 
  EXPECT_GE(all_failures(/*two_nodes=*/false).size(), 58u);
  EXPECT_GE(all_failures(/*two_nodes=*/true).size(), 16u);
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"fail_and_start_afresh", fail_and_start_afresh},
                                        {"introduce_to_one_who_died", introduce_to_one_who_died}});
}
