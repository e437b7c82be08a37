// Abort from another thread at any moment: it returns at once, every call of every rank ends, nothing leaks and nothing
// crashes. Ranks are threads first, then processes.
#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <thread>

#include "faults/life.hpp"
#include "net/net.hpp"
#include "platform/host/memory.hpp"
#include "platform/host/wait.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRanks = 3;
constexpr uint64_t kAbortNs = kSecond;    // the promise for abort() itself
constexpr uint64_t kEndNs = 5 * kSecond;  // for what was under way, on machines that have other things to do

LifeOptions options_for(uint64_t draw) {
  LifeOptions options;
  options.masks = draw & 1;
  options.windows = draw & 2;
  options.layout = draw & 4 ? oracle::Layout::kExpertMajor : oracle::Layout::kRankMajor;
  options.algorithm = draw & 8 ? Algorithm::kHighThroughput : Algorithm::kLowLatency;
  options.drops = draw & 16;
  // So long that nothing but the abort can end a wait in time.
  options.timeout_ns = options.comm_timeout_ns = 60 * kSecond;
  return options;
}

// A communicator that another thread may abort while it is offered.
class AbortTarget {
 public:
  void offer(Communicator* comm) {
    const std::lock_guard lock(mutex_);
    comm_ = comm;
    was_offered_ = true;
  }
  void withdraw() {
    const std::lock_guard lock(mutex_);
    comm_ = nullptr;
  }
  bool was_offered() {
    const std::lock_guard lock(mutex_);
    return was_offered_;
  }
  // How long it took.
  uint64_t abort() {
    const std::lock_guard lock(mutex_);  // so that the communicator stays meanwhile
    const uint64_t begin_ns = now_ns();
    if (comm_ != nullptr) comm_->abort("the test wants it");
    return now_ns() - begin_ns;
  }

 private:
  std::mutex mutex_;
  Communicator* comm_ = nullptr;
  bool was_offered_ = false;
};

// Splits, makes groups and windows, dispatches, combines and gives back, until something fails. With windows that happens
// in operations only.
Status live_until_aborted(Life& life, bool windows, AbortTarget& target) {
  SWITCHYARD_TRY(life.connect());
  if (!windows) target.offer(life.comm());
  for (;;) {
    SWITCHYARD_TRY(life.settle());
    if (windows) target.offer(life.comm());
    for (int round = 0; windows || round < 3; ++round) {
      SWITCHYARD_TRY(life.round_trip(/*varied=*/round % 2 != 0));
      if (!life.wrong().empty()) return Status::internal(life.wrong());
    }
    life.unsettle();
  }
}

// One rank's part; somebody's abort must end it. Empty, or what is wrong.
std::string live_and_abort(const LifeOptions& options, const UniqueId& id, int rank, bool aborts, uint64_t delay_ns) {
  Life life(options, id, rank);
  AbortTarget target;
  std::string fault;
  std::thread aborter;
  if (aborts) {
    aborter = std::thread([&] {
      wait_until([&] { return target.was_offered(); }, Deadline::after_ns(30 * kSecond));
      wait_until([] { return false; }, Deadline::after_ns(delay_ns));  // the moment itself
      const uint64_t took_ns = target.abort();
      if (took_ns > kAbortNs) fault = text("abort() took ", took_ns / kMillisecond, " ms");
    });
  }
  const Status status = live_until_aborted(life, options.windows, target);
  target.withdraw();
  if (aborter.joinable()) aborter.join();
  life.leave();
  if (fault.empty() && !life.wrong().empty()) fault = life.wrong();
  // The aborting rank may be through before its own thread aborts only if another failed first; nobody does. Between nodes the
  // connection of a rank that has left because of the abort may end before word of it comes.
  const auto says = [&](const char* words) { return status.message().find(words) != std::string::npos; };
  const bool was_left = options.two_nodes && (says("can't be reached over the network") || says("the network lost rank"));
  if (fault.empty() && !was_left && !says("abort")) {
    fault = text("rank ", rank, " ended otherwise: ", status.to_string());
  }
  return fault;
}

TEST(AbortTest, EndsEverythingAtOnceWhereRanksAreThreads) {
  std::mt19937_64 engine(7);
  const int num_rounds = soaking() ? 2000 : 200;
  const size_t bytes_before = DeviceMemory::instance().num_bytes_allocated();
  int fds_before = 0;
  for (int round = 0; round < num_rounds && !HasFailure(); ++round) {
    // The first round may open what stays open, such as a log.
    if (round == 1) fds_before = num_open_fds();
    const LifeOptions options = options_for(engine());
    const int aborting_rank = int(engine() % kNumRanks);
    const uint64_t delay_ns = engine() % (20 * kMillisecond);
    auto coordinator = Coordinator::start();
    ASSERT_TRUE(coordinator.ok()) << coordinator.status().to_string();
    const uint64_t begin_ns = now_ns();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kNumRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        EXPECT_EQ(live_and_abort(options, coordinator.value()->id(), rank, rank == aborting_rank, delay_ns), "")
            << "round " << round;
      });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_LT(now_ns() - begin_ns, kEndNs + delay_ns) << "round " << round;
  }
  EXPECT_EQ(num_open_fds(), fds_before);
  EXPECT_EQ(DeviceMemory::instance().num_bytes_allocated(), bytes_before);
}

// Arguments: how many times; one-node or two-nodes, of which the second has the last rank.
std::string abort_again_and_again(const RankProcess& self) {
  const auto meeting = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!meeting.ok()) return meeting.status().to_string();
  std::mt19937_64 engine(11);
  for (int round = 0; round < std::stoi(self.arguments.at(0)); ++round) {
    LifeOptions options = options_for(engine());
    options.two_nodes = self.arguments.at(1) == "two-nodes";
    const int aborting_rank = int(engine() % kNumRanks);
    const uint64_t delay_ns = engine() % (20 * kMillisecond);
    const auto fresh = FreshJob::create(*meeting.value());
    if (!fresh.ok()) return fresh.status().to_string();
    const uint64_t begin_ns = now_ns();
    const std::string fault = live_and_abort(options, fresh->id, self.rank, self.rank == aborting_rank, delay_ns);
    if (!fault.empty()) return text("round ", round, " (", options.name(), "): ", fault);
    if (now_ns() - begin_ns > kEndNs + delay_ns) return text("round ", round, " took too long");
  }
  return "";
}

TEST(AbortTest, EndsEverythingAtOnceWhereRanksAreProcesses) {
  auto ranks = ProcessRanks::start(
      {.num_ranks = kNumRanks, .body = "abort_again_and_again", .arguments = {soaking() ? "500" : "40", "one-node"}});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(250 * kSecond)), "");
}

class AbortBetweenNodesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AbortBetweenNodesTest, EndsEverythingAtOnce) {
  if (!find_net_plugin("ofi").ok()) GTEST_SKIP() << "built without libfabric";
  auto ranks = ProcessRanks::start(
      {.num_ranks = kNumRanks,
       .body = "abort_again_and_again",
       .arguments = {soaking() ? "200" : "10", "two-nodes"},
       .environment = [&](int rank) {
         return std::vector<std::string>{text("SWITCHYARD_NODE_ID=", rank == kNumRanks - 1), "SWITCHYARD_NET=ofi",
                                         text("SWITCHYARD_GIN=", GetParam())};
       }});
  ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(250 * kSecond)), "");
}

INSTANTIATE_TEST_SUITE_P(Gin, AbortBetweenNodesTest, ::testing::Values("direct", "proxy"));

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"abort_again_and_again", abort_again_and_again}});
}
