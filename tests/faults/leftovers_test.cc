// Ranks that are killed all at once, at any moment: nothing of theirs is left on the machine.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "faults/life.hpp"
#include "platform/host/wait.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

namespace fs = std::filesystem;
constexpr int kNumRanks = 3;

// Lives over and over, on one communicator after another: whatever is temporary is there at some moment.
std::string live_restlessly(const RankProcess& self) {
  LifeOptions options = LifeOptions::from_arguments(self.arguments);
  const auto meeting = Communicator::create(self.id, self.rank, self.num_ranks, {});
  if (!meeting.ok()) return meeting.status().to_string();
  for (int round = 0; round < 100'000; ++round) {
    const auto fresh = FreshJob::create(*meeting.value());
    if (!fresh.ok()) return fresh.status().to_string();
    options.windows = round % 2 != 0;
    Life life(options, fresh->id, self.rank);
    if (const Status status = life.run(); !status.ok()) return status.to_string();
    if (!life.wrong().empty()) return life.wrong();
    life.leave();
  }
  return "";
}

// Names in a folder that are ours, by what we would call them.
std::set<std::string> our_names_in(const char* folder) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.find("switchyard") != std::string::npos) names.insert(name);
  }
  return names;
}

// Sockets that any live process has open, by inode.
std::set<std::string> sockets_in_use() {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    if (!isdigit(static_cast<unsigned char>(process.path().filename().string()[0]))) continue;
    for (const auto& fd : fs::directory_iterator(process.path() / "fd", ignored)) {
      const std::string target = fs::read_symlink(fd.path(), ignored).string();
      if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
    }
  }
  return inodes;
}

// Abstract sockets with our prefix that belong to nobody. Other tests' sockets belong to somebody.
std::set<std::string> orphaned_sockets() {
  std::set<std::string> orphans;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    if (line.find("@switchyard-") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string inode;
    for (int field = 0; field < 7; ++field) fields >> inode;
    if (!sockets_in_use().contains(inode)) orphans.insert(line);
  }
  return orphans;
}

class Leftovers : public ::testing::Test {
 protected:
  // What was there before, and what other tests put there and take away again, does not count.
  void expect_nothing_left(const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids) EXPECT_EQ(kill(-pid, 0), -1) << "a process of group " << pid << " lives on";
    const auto nothing_new = [&] {
      for (const std::string& name : our_names_in("/dev/shm")) {
        if (!in_memory_before_.contains(name)) return false;
      }
      return fs::is_empty(folder_) && orphaned_sockets().empty();
    };
    if (wait_until(nothing_new, Deadline::after_ns(5 * kSecond)) == WaitResult::kReady) return;
    for (const std::string& name : our_names_in("/dev/shm")) {
      EXPECT_TRUE(in_memory_before_.contains(name)) << "/dev/shm/" << name << " is left";
    }
    for (const auto& entry : fs::directory_iterator(folder_)) ADD_FAILURE() << entry.path() << " is left";
    for (const std::string& socket : orphaned_sockets()) ADD_FAILURE() << "socket " << socket << " is left";
  }

  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "leftovers-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    in_memory_before_ = our_names_in("/dev/shm");
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;  // TMPDIR of the ranks
  std::set<std::string> in_memory_before_;
};

TEST_F(Leftovers, AreNoneAfterAllRanksWereKilledAtAnyMoment) {
  std::mt19937_64 engine(99);
  const int num_rounds = soaking() ? 100 : 20;
  for (int round = 0; round < num_rounds && !HasFailure(); ++round) {
    LifeOptions options;
    options.masks = round % 2 != 0;
    options.algorithm = round / 2 % 2 != 0 ? Algorithm::kHighThroughput : Algorithm::kLowLatency;
    auto started = ProcessRanks::start({.num_ranks = kNumRanks,
                                        .body = "live_restlessly",
                                        .arguments = options.to_arguments(),
                                        .environment = [&](int) {
                                          return std::vector<std::string>{"TMPDIR=" + folder_.string()};
                                        }});
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    ProcessRanks& ranks = *started.value();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < kNumRanks; ++rank) pids.push_back(ranks.pid(rank));
    // The moment itself, not something to wait for.
    ranks.wait_for_exit(0, Deadline::after_ns(engine() % (200 * kMillisecond)));
    for (int rank = 0; rank < kNumRanks; ++rank) {
      ASSERT_TRUE(ranks.running(rank)) << "rank " << rank << " ended by itself: " << ranks.output(rank);
      ranks.send(rank, SIGKILL);
    }
    for (int rank = 0; rank < kNumRanks; ++rank) {
      ASSERT_TRUE(ranks.wait_for_exit(rank, Deadline::after_ns(30 * kSecond)));
    }
    expect_nothing_left(pids);
  }
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"live_restlessly", live_restlessly}});
}
