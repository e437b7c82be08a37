// Ranks on machines of their own, joined by cables that lose packets, go down and up, or are cut: results are the model's,
// or there is an error in time that says who is missing.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "faults/life.hpp"
#include "hosts/host_ranks.hpp"
#include "net/net_rank.hpp"

namespace switchyard::testing {
namespace {

// Of SWITCHYARD_HEARTBEAT_MS's default. A little more: what is measured ends when this process has heard of it.
constexpr uint64_t kPromiseNs = 3 * kSecond + kSecond / 4;
constexpr int kNumRoundsPerCheck = 4;
constexpr int kFirstRounds = 9;  // when all connections are made and used

// ---- what a rank does ----

std::atomic<bool> told_to_end{false};

std::string told(const Status& status) {
  printf("told: %s\n", status.to_string().c_str());
  fflush(stdout);
  return "";
}

// Bytes that left this host so far, by interface.
void print_traffic() {
  std::ifstream devices("/proc/self/net/dev");  // of this network namespace, whoever mounted /proc
  for (std::string line; std::getline(devices, line);) {
    char name[32];
    unsigned long long sent = 0;
    if (sscanf(line.c_str(), " %31[^:]: %*u %*u %*u %*u %*u %*u %*u %*u %llu", name, &sent) == 2) {
      printf("%s sent %llu\n", name, sent);
    }
  }
}

// Round trips until rank 0 gets SIGUSR1; every few rounds all agree on whether that is so. An error ends it as well and is
// none here: the test judges what this rank was told. Results that differ from the model always are.
std::string round_trips(const RankProcess& self) {
  signal(SIGUSR1, [](int) { told_to_end.store(true, std::memory_order_relaxed); });
  Life life(LifeOptions::from_arguments(self.arguments), self.id, self.rank);
  if (const Status joined = life.join(); !joined.ok()) return told(joined);
  for (int round = 0;; ++round) {
    if (round == kFirstRounds) {
      puts("running");
      fflush(stdout);
    }
    const Status status = life.round_trip(/*varied=*/round % 2 != 0);
    if (!life.wrong().empty()) return "wrong bytes: " + life.wrong();
    if (!status.ok()) return told(status);
    if (round % kNumRoundsPerCheck != 0) continue;
    const auto ending = life.comm()->exchange(uint32_t(told_to_end.load(std::memory_order_relaxed)));
    if (!ending.ok()) return told(ending.status());
    if (ending.value()[0] == 0) continue;
    printf("did %d rounds\n", round + 1);
    print_traffic();
    return "";
  }
}

// Puts with signals from rank 0 to rank 1, as fast as it goes.
std::string stream_of_puts(const RankProcess& self) {
  constexpr uint64_t kNumPuts = 96, kBytes = 256u << 10;
  Life life(LifeOptions::from_arguments(self.arguments), self.id, self.rank);
  if (const Status connected = life.connect(); !connected.ok()) return connected.to_string();
  NetRank net(*life.comm());
  if (const Status met = net.comm.barrier(); !met.ok()) return met.to_string();
  const uint64_t begin_ns = now_ns();
  if (self.rank == 0) {
    for (uint64_t i = 0; i < kNumPuts; ++i) {
      if (net.put(net.put_of(0, 0, kBytes, 0)) != NetPost::kPosted) return net.net.error().to_string();
    }
    if (net.flush() != NetPost::kPosted) return net.net.error().to_string();
  } else {
    if (!net.wait_signal(0, kNumPuts)) return "the data did not come";
    printf("took in %.1f MB/s\n", double(kNumPuts * kBytes) * 1000 / double(now_ns() - begin_ns));
  }
  print_traffic();
  const Status met = net.comm.barrier();
  return met.ok() ? "" : met.to_string();
}

// One large put, and a barrier, after which it is there however slow the cable is.
std::string put_and_meet(const RankProcess& self) {
  constexpr uint64_t kBytes = 6u << 20;
  Life life(LifeOptions::from_arguments(self.arguments), self.id, self.rank);
  if (const Status connected = life.connect(); !connected.ok()) return connected.to_string();
  NetRank net(*life.comm(), 2 * kBytes);
  std::fill_n(net.data(), 2 * kBytes, uint8_t(1 + self.rank));
  if (const Status met = net.comm.barrier(); !met.ok()) return met.to_string();
  const uint64_t begin_ns = now_ns();
  if (self.rank == 0 && net.put(net.put_of(kBytes, 0, kBytes)) != NetPost::kPosted) return net.net.error().to_string();
  if (const Status met = net.comm.barrier(); !met.ok()) return met.to_string();
  printf("met after %.1f s\n", double(now_ns() - begin_ns) / kSecond);
  const auto num_right = std::count(net.data() + kBytes, net.data() + 2 * kBytes, uint8_t(1));
  return uint64_t(num_right) == kBytes ? "" : text(num_right, " bytes are right");
}

// One large put after another; rank 0 writes over its bytes as soon as the counter says that it may.
std::string put_and_reuse(const RankProcess& self) {
  constexpr uint64_t kBytes = 16u << 20;  // more than sockets take in by themselves
  Life life(LifeOptions::from_arguments(self.arguments), self.id, self.rank);
  if (const Status connected = life.connect(); !connected.ok()) return connected.to_string();
  NetRank net(*life.comm(), 2 * kBytes);
  uint64_t counter = 0;
  for (uint64_t round = 1; round <= 4; ++round) {
    if (self.rank == 0) {
      std::fill_n(net.data(), kBytes, uint8_t(round));
      NetPut put = net.put_of(kBytes, 0, kBytes, 0);
      put.counter = &counter;
      if (net.put(put) != NetPost::kPosted) return net.net.error().to_string();
      const auto counted = [&] {
        net.net.progress();
        return std::atomic_ref(counter).load(std::memory_order_acquire) == round;
      };
      if (wait_until(counted, Deadline::after_ns(30 * kSecond)) != WaitResult::kReady) return "the counter does not grow";
      std::fill_n(net.data(), kBytes, uint8_t{0xee});
    } else {
      if (!net.wait_signal(0, round)) return "the data did not come";
      const auto num_right = std::count(net.data() + kBytes, net.data() + 2 * kBytes, uint8_t(round));
      if (uint64_t(num_right) != kBytes) return text("round ", round, ": ", num_right, " bytes are right");
    }
    if (const Status met = net.comm.barrier(); !met.ok()) return met.to_string();
  }
  return "";
}

// Meets the others at a barrier to which the last rank does not come.
std::string wait_for_the_last(const RankProcess& self) {
  Life life(LifeOptions::from_arguments(self.arguments), self.id, self.rank);
  if (const Status joined = life.join(); !joined.ok()) return told(joined);
  puts("running");
  fflush(stdout);
  if (self.rank == self.num_ranks - 1) {
    for (;;) pause();
  }
  return told(life.comm()->barrier());
}

// ---- starting them ----

struct Plan {
  int num_hosts = 2;
  int ranks_per_host = 1;
  bool proxy = false;
  int hidden = 72;
  const char* body = "round_trips";
  const char* net = "ofi";
  int num_networks = 1;         // a rail each
  bool names_interfaces = true;
  std::vector<int> mbit = {};  // of each cable, by network; of the others: as fast as they go
};

class HostsTest : public HostRanksTest {
 protected:
  void start(const Plan& plan) {
    plan_ = plan;
    LifeOptions options;
    options.num_ranks = plan.num_hosts * plan.ranks_per_host;
    options.victim = options.num_ranks - 1;
    options.timeout_ns = 60 * kSecond;  // so that a wait that only ends with those is found out
    options.comm_timeout_ns = 60 * kSecond;
    options.hidden = plan.hidden;
    HostRanks wanted{.body = plan.body, .arguments = options.to_arguments(), .proxy = plan.proxy, .net = plan.net,
                     .num_networks = plan.num_networks, .names_interfaces = plan.names_interfaces, .mbit = plan.mbit};
    for (int rank = 0; rank < options.num_ranks; ++rank) wanted.host_of_rank.push_back(rank / plan.ranks_per_host);
    start_on_hosts(wanted);
  }

  // Lets them go on for a while, then to an end. False: somebody was told of an error, or worse.
  bool rest_and_end(uint64_t ns) {
    ranks_->wait_for_output(0, "told: ", Deadline::after_ns(ns));
    ranks_->send(0, SIGUSR1);
    return all_did_rounds();
  }

  // Everybody ends within the time, in good order, whatever they were told; wrong bytes are a failure of the process.
  bool all_did_rounds() {
    EXPECT_EQ(ranks_->wait(Deadline::after_ns(60 * kSecond)), "");
    bool all = true;
    for (int rank = 0; rank < ranks_->size(); ++rank) all &= num_rounds(rank) > 0;
    return all;
  }

  int num_rounds(int rank) const { return int(number_after(rank, "did ")); }

  // 0: that rank did not print it.
  double number_after(int rank, const std::string& words) const {
    const size_t at = ranks_->output(rank).find(words);
    return at == std::string::npos ? 0 : atof(ranks_->output(rank).c_str() + at + words.size());
  }

  // What that rank was told, without what it logged.
  std::string news(int rank) const {
    const std::string& output = ranks_->output(rank);
    const size_t at = output.find("told: ");
    return at == std::string::npos ? "" : output.substr(at, output.find('\n', at) - at);
  }

  void expect_told(int rank, Deadline deadline) {
    EXPECT_TRUE(ranks_->wait_for_output(rank, "told: ", deadline)) << "rank " << rank << ":\n" << ranks_->output(rank);
  }

  // All but `except` were told in time and then ended; -1: all.
  void expect_told_by_now(Deadline deadline, uint64_t since_ns, int except) {
    for (int rank = 0; rank < ranks_->size(); ++rank) {
      if (rank != except) expect_told(rank, deadline);
    }
    RecordProperty("told_after_ms", std::to_string((now_ns() - since_ns) / kMillisecond));
    for (int rank = 0; rank < ranks_->size(); ++rank) {
      if (rank == except) continue;
      EXPECT_TRUE(ranks_->wait_for_exit(rank, Deadline::after_ns(20 * kSecond))) << "rank " << rank << " hangs:\n" << outputs();
      if (ranks_->running(rank)) continue;
      EXPECT_EQ(ranks_->exit(rank)->exit_code, 0) << ranks_->exit(rank)->reason << outputs();
    }
  }

  void endure_flaps(const Plan& plan, int num_flaps);
  void cut(int host, Hosts::End end, int network = 0);

  Plan plan_;
};

// ---- plain ----

using Shape = std::tuple<int, int, bool>;
class HostsPlainTest : public HostsTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(HostsPlainTest, RoundTripsMatchTheModel) {
  const auto [num_hosts, ranks_per_host, proxy] = GetParam();
  start({.num_hosts = num_hosts, .ranks_per_host = ranks_per_host, .proxy = proxy, .hidden = 1024});
  wait_until_running();
  EXPECT_TRUE(rest_and_end(kSecond / 2)) << outputs();
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    EXPECT_NE(ranks_->output(rank).find(text("interface eth0, address ", Hosts::address(host_of(rank)))), std::string::npos)
        << ranks_->output(rank);
  }
  RecordProperty("rounds", num_rounds(0));
}

INSTANTIATE_TEST_SUITE_P(All, HostsPlainTest,
                         ::testing::Values(Shape{2, 1, false}, Shape{2, 2, true}, Shape{4, 1, true}, Shape{4, 2, false}));

TEST_F(HostsTest, MemoryDoesNotReachAnotherHostAndSaysSo) {
  start({.net = "mem"});
  EXPECT_EQ(ranks_->wait(Deadline::after_ns(30 * kSecond)), "");
  for (int rank = 0; rank < 2; ++rank) EXPECT_NE(news(rank).find("joins ranks of one machine"), std::string::npos) << news(rank);
}

TEST_F(HostsTest, InterfacesThatAreOneDeviceToAProviderAreRefusedByName) {
  start({.net = "ofi:shm", .num_networks = 2});
  EXPECT_EQ(ranks_->wait(Deadline::after_ns(30 * kSecond)), "");
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_NE(news(rank).find("eth0 and eth1 (SWITCHYARD_INTERFACE) are one device"), std::string::npos) << news(rank);
}

TEST_F(HostsTest, WhoNamesNoInterfaceWhereThereAreSeveralIsToldWhichOneIsTaken) {
  start({.num_networks = 2, .names_interfaces = false});
  wait_until_running();
  EXPECT_TRUE(rest_and_end(0)) << outputs();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(ranks_->output(rank).find("names no interface, and several are up (lo, eth0, eth1): eth0 (address "), std::string::npos)
        << ranks_->output(rank);
  }
}

// ---- cables that go down and up ----

// Each flap meets a job that lives: after one that has ended with an error another goes on.
void HostsTest::endure_flaps(const Plan& plan, int num_flaps) {
  int num_jobs = 0, num_ended = 0, num_all_rounds = 0;
  for (int num_left = num_flaps; num_left > 0 && !HasFailure(); ++num_jobs) {
    start(plan);
    wait_until_running();
    if (HasFatalFailure()) return;
    const auto is_well = [&](int rank) { return ranks_->running(rank) && news(rank).empty(); };
    const auto are_well = [&] {
      for (int rank = 0; rank < ranks_->size(); ++rank) {
        if (!is_well(rank)) return false;
      }
      return true;
    };
    for (; num_left > 0 && are_well(); --num_left) {
      flap(1);
      if (HasFatalFailure()) return;
    }
    const bool all = rest_and_end(kSecond);
    if (all) {
      EXPECT_GT(num_rounds(0), kFirstRounds) << "nothing went on while cables came and went";
    }
    for (int rank = 0; rank < ranks_->size(); ++rank) EXPECT_EQ(all, news(rank).empty()) << outputs();
    for (int rank = 0; rank < ranks_->size() && !all; ++rank) printf("rank %d %s\n", rank, news(rank).c_str());
    num_ended += !all;
    num_all_rounds += num_rounds(0);
  }
  printf("%d flaps: %d jobs, of which %d ended with an error; %d rounds of those that did not\n", num_flaps, num_jobs, num_ended, num_all_rounds);
  // What was on its way when a connection ended is lost, but few of them end so soon.
  EXPECT_LE(num_ended, num_flaps / 20);
}

class HostsFlapTest : public HostsTest, public ::testing::WithParamInterface<Shape> {};

TEST_P(HostsFlapTest, TwoHundredFlapsGiveRightResultsOrAnErrorInTime) {
  const auto [num_hosts, ranks_per_host, proxy] = GetParam();
  endure_flaps({.num_hosts = num_hosts, .ranks_per_host = ranks_per_host, .proxy = proxy, .hidden = 1024}, soaking() ? 1000 : 200);
}

INSTANTIATE_TEST_SUITE_P(All, HostsFlapTest, ::testing::Values(Shape{4, 1, false}, Shape{2, 1, true}));

// ---- cables that lose or slow down ----

using Loss = std::tuple<int, bool>;  // per mille, proxy
class HostsLossTest : public HostsTest, public ::testing::WithParamInterface<Loss> {};

TEST_P(HostsLossTest, LostPacketsAreNoDeath) {
  const auto [per_mille, proxy] = GetParam();
  start({.num_hosts = 4, .proxy = proxy, .hidden = 1024});
  wait_until_running();
  for (int host = 0; host < hosts_->size(); ++host) {
    const Status lossy = hosts_->lose_packets(host, per_mille);
    ASSERT_TRUE(lossy.ok()) << lossy.to_string();
  }
  const bool all = rest_and_end((soaking() ? 60 : 4) * kSecond);
  RecordProperty("rounds", num_rounds(0));
  // With more of it TCP may give up, and then everybody must know.
  if (per_mille <= 10) {
    EXPECT_TRUE(all) << outputs();
  }
  for (int rank = 0; rank < ranks_->size(); ++rank) EXPECT_EQ(all, news(rank).empty()) << outputs();
  for (int host = 0; host < hosts_->size(); ++host) {
    const auto num_lost = hosts_->num_lost_packets(host);
    ASSERT_TRUE(num_lost.ok()) << num_lost.status().to_string();
    EXPECT_GT(num_lost.value(), 0u) << "host " << host << " had it easy";
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostsLossTest, ::testing::Values(Loss{1, false}, Loss{10, false}, Loss{10, true}, Loss{50, false}));

class HostsRateTest : public HostsTest, public ::testing::WithParamInterface<Loss> {};

TEST_P(HostsRateTest, ASlowNetworkIsNoDeath) {
  const auto [mbit, proxy] = GetParam();
  start({.num_hosts = 4, .proxy = proxy, .hidden = 4096});
  wait_until_running();
  for (int host = 0; host < hosts_->size(); ++host) {
    const Status slow = hosts_->limit_rate(host, mbit);
    ASSERT_TRUE(slow.ok()) << slow.to_string();
  }
  EXPECT_TRUE(rest_and_end((soaking() ? 60 : 3) * kSecond)) << outputs();
  RecordProperty("rounds", num_rounds(0));
}

INSTANTIATE_TEST_SUITE_P(All, HostsRateTest, ::testing::Values(Loss{10, false}, Loss{100, true}));

TEST_F(HostsTest, ABarrierWaitsForWhatASlowNetworkBrings) {
  start({.body = "put_and_meet", .mbit = {10}});
  EXPECT_EQ(ranks_->wait(Deadline::after_ns(60 * kSecond)), "") << outputs();
  for (int rank = 0; rank < 2; ++rank) EXPECT_GT(number_after(rank, "met after "), 3.5) << "the cable was not that slow";
}

// ---- the end of a cable, and of a process ----

void HostsTest::cut(int host, Hosts::End end, int network) {
  wait_until_running();
  const Status down = hosts_->set_link(host, end, false, network);
  ASSERT_TRUE(down.ok()) << down.to_string();
  const uint64_t cut_ns = now_ns();
  // Where the last rank only sleeps nobody tells it anything.
  const bool last_sleeps = std::string(plan_.body) == "wait_for_the_last";
  expect_told_by_now(Deadline::after_ns(kPromiseNs), cut_ns, last_sleeps ? ranks_->size() - 1 : -1);
}

struct Cut {
  int num_hosts, host;
  Hosts::End end;
  bool proxy;
};
void PrintTo(const Cut& c, std::ostream* out) {
  *out << "host " << c.host << " of " << c.num_hosts << (c.end == Hosts::End::kHost ? ", its interface" : ", at the switch")
       << (c.proxy ? ", proxy" : "");
}
class HostsCutTest : public HostsTest, public ::testing::WithParamInterface<Cut> {};

TEST_P(HostsCutTest, ACableThatIsCutIsNoticedAtBothEndsWithinThreeHeartbeats) {
  const Cut& c = GetParam();
  start({.num_hosts = c.num_hosts, .proxy = c.proxy, .hidden = 1024});
  cut(c.host, c.end);
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    if (c.host == 0 || rank == c.host) {
      // Who loses rank 0's host loses the coordinator; rank 0 loses everybody.
      const std::string expected = rank == 0 ? "does not answer any more" : "lost the coordinator";
      EXPECT_NE(news(rank).find(expected), std::string::npos) << news(rank);
    } else {
      EXPECT_TRUE(names_rank(news(rank), c.host)) << news(rank);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostsCutTest,
                         ::testing::Values(Cut{2, 1, Hosts::End::kSwitch, false}, Cut{4, 2, Hosts::End::kHost, true},
                                           Cut{4, 3, Hosts::End::kSwitch, false}, Cut{4, 0, Hosts::End::kSwitch, true}));

TEST_F(HostsTest, ACutCableEndsACollectiveCall) {
  start({.num_hosts = 3, .body = "wait_for_the_last"});
  cut(2, Hosts::End::kSwitch);
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(names_rank(news(rank), 2)) << news(rank);
}

TEST_F(HostsTest, TheCutOffHostOfTheCoordinatorEndsACollectiveCallOfAllOthers) {
  start({.num_hosts = 3, .body = "wait_for_the_last"});
  cut(0, Hosts::End::kHost);
  EXPECT_TRUE(names_rank(news(0), 1) || names_rank(news(0), 2)) << news(0);
  EXPECT_NE(news(1).find("lost the coordinator"), std::string::npos) << news(1);
}

// ---- several networks ----

using Rails = std::tuple<int, int, bool>;  // hosts, ranks a host, proxy
class HostsRailsTest : public HostsTest, public ::testing::WithParamInterface<Rails> {};

TEST_P(HostsRailsTest, RoundTripsMatchTheModelAndEveryNetworkCarriesRows) {
  const auto [num_hosts, ranks_per_host, proxy] = GetParam();
  start({.num_hosts = num_hosts, .ranks_per_host = ranks_per_host, .proxy = proxy, .hidden = 4096, .num_networks = 2});
  wait_until_running();
  EXPECT_TRUE(rest_and_end(kSecond / 2)) << outputs();
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const double first = number_after(rank, "eth0 sent "), second = number_after(rank, "eth1 sent ");
    EXPECT_GT(second, 0.4 * (first + second)) << ranks_->output(rank);
    EXPECT_LT(second, 0.6 * (first + second)) << ranks_->output(rank);
  }
  RecordProperty("rounds", num_rounds(0));
}

INSTANTIATE_TEST_SUITE_P(All, HostsRailsTest, ::testing::Values(Rails{2, 1, false}, Rails{3, 2, true}));

TEST_F(HostsTest, FlapsOfTwoNetworksGiveRightResultsOrAnErrorInTime) {
  endure_flaps({.num_hosts = 3, .hidden = 1024, .num_networks = 2}, soaking() ? 1000 : 100);
}

TEST_F(HostsTest, TwoNetworksTakeTwiceAsMuchAsOne) {
  constexpr int kMbit = 100;
  double mb_per_s[2] = {};
  // The best of a few: a machine that is busy with other things keeps cables idle, but none ever carries more than it can.
  for (int attempt = 0; attempt < 5 && mb_per_s[1] < 1.7 * kMbit / 8; ++attempt) {
    for (int num_networks = 1; num_networks <= 2; ++num_networks) {
      start({.body = "stream_of_puts", .num_networks = num_networks, .mbit = std::vector<int>(size_t(num_networks), kMbit)});
      EXPECT_EQ(ranks_->wait(Deadline::after_ns(60 * kSecond)), "") << outputs();
      mb_per_s[num_networks - 1] = std::max(mb_per_s[num_networks - 1], number_after(1, "took in "));
    }
  }
  EXPECT_GT(mb_per_s[0], 0.8 * kMbit / 8);
  EXPECT_LT(mb_per_s[0], 1.1 * kMbit / 8);
  EXPECT_GT(mb_per_s[1], 1.7 * kMbit / 8);
  EXPECT_LT(mb_per_s[1], 2.2 * kMbit / 8);
  RecordProperty("mb_per_s_on_one", std::to_string(mb_per_s[0]));
  RecordProperty("mb_per_s_on_two", std::to_string(mb_per_s[1]));
}

TEST_F(HostsTest, SignalsAndCountersWaitForTheSlowerOfTwoNetworks) {
  for (const std::vector<int>& mbit : {std::vector<int>{200}, std::vector<int>{10000, 200}}) {
    start({.body = "put_and_reuse", .num_networks = 2, .mbit = mbit});
    EXPECT_EQ(ranks_->wait(Deadline::after_ns(60 * kSecond)), "") << outputs();
  }
}

// Heartbeats travel over the first network and go on.
class HostsRailCutTest : public HostsTest, public ::testing::WithParamInterface<Cut> {};

TEST_P(HostsRailCutTest, ACutCableOfTheSecondNetworkIsNoticedByAll) {
  const Cut& c = GetParam();
  start({.num_hosts = c.num_hosts, .proxy = c.proxy, .hidden = 1024, .num_networks = 2});
  cut(c.host, c.end, 1);
  EXPECT_NE(news(c.host).find("interface eth1"), std::string::npos) << news(c.host);
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    if (rank != c.host) {
      EXPECT_TRUE(names_rank(news(rank), c.host)) << news(rank);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostsRailCutTest,
                         ::testing::Values(Cut{2, 1, Hosts::End::kSwitch, false}, Cut{3, 1, Hosts::End::kHost, true}));

class HostsKillTest : public HostsTest, public ::testing::WithParamInterface<Loss> {};

TEST_P(HostsKillTest, ARankThatIsKilledIsNoticedOnOtherHostsWithinThreeHeartbeats) {
  const auto [victim, proxy] = GetParam();
  start({.num_hosts = 4, .proxy = proxy, .hidden = 1024});
  wait_until_running();
  ranks_->send(victim, SIGKILL);
  expect_told_by_now(Deadline::after_ns(3 * kSecond), now_ns(), victim);
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    if (rank == victim) continue;
    EXPECT_TRUE(names_rank(news(rank), victim)) << news(rank);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostsKillTest, ::testing::Values(Loss{0, false}, Loss{3, true}));

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"round_trips", round_trips},
                                         {"stream_of_puts", stream_of_puts},
                                         {"put_and_reuse", put_and_reuse},
                                         {"put_and_meet", put_and_meet},
                                         {"wait_for_the_last", wait_for_the_last}});
}
