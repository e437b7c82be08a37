// The device API on the host platform: barriers, puts with signals, multimem, over one node and several pretended ones.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "platform/host/wait.hpp"
#include "support/thread_ranks.hpp"
#include "switchyard/device/barrier.hpp"
#include "switchyard/device/gin.hpp"
#include "switchyard/device/multimem.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::testing {
namespace {

struct Nodes {
  const char* name;
  std::vector<int> of_rank;
  const char* net = "mem";
  const char* gin = "direct";
};

class DeviceApi : public ::testing::TestWithParam<Nodes> {
 protected:
  int num_ranks() const { return int(GetParam().of_rank.size()); }

  // Symmetric memory of one rank.
  struct Region {
    void* memory;
    WindowView view;
  };
  static Region make_region(Communicator& comm, size_t num_bytes) {
    void* memory = comm.runtime().allocate(num_bytes).value();
    return {memory, comm.view(*comm.register_window(memory, num_bytes).value())};
  }
};

TEST_P(DeviceApi, AWorldBarrierLetsNobodyThroughEarly) {
  ThreadRanks ranks(num_ranks(), {.net = GetParam().net, .gin = GetParam().gin}, GetParam().of_rank);
  std::atomic<int> num_arrived{0};
  constexpr int kRounds = 200;
  ranks.on_all([&](int rank) {
    auto device = ranks.comm(rank).create_device_comm({.num_barriers = 2});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    const HostPlatform p;
    Barrier<HostPlatform> barrier(p, *device, 1);
    for (int round = 1; round <= kRounds; ++round) {
      num_arrived.fetch_add(1, std::memory_order_relaxed);
      ASSERT_EQ(barrier.world(), BarrierResult::kOk);
      ASSERT_GE(num_arrived.load(std::memory_order_relaxed), round * num_ranks());
    }
  });
}

TEST_P(DeviceApi, ARailBarrierMeetsAllPartnersAlsoBetweenWorldBarriers) {
  ThreadRanks ranks(num_ranks(), {.net = GetParam().net, .gin = GetParam().gin}, GetParam().of_rank);
  std::vector<std::atomic<int>> rounds(static_cast<size_t>(num_ranks()));
  ranks.on_all([&](int rank) {
    auto device = ranks.comm(rank).create_device_comm({.num_barriers = 1});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    const HostPlatform p;
    Barrier<HostPlatform> barrier(p, *device, 0);
    for (int round = 1; round <= 50; ++round) {
      rounds[size_t(rank)].store(round);
      ASSERT_EQ(barrier.rail(), BarrierResult::kOk);
      for (int node = 0; node < device->num_nodes; ++node) {
        if (node == device->node) continue;
        ASSERT_GE(rounds[size_t(device->rail_peer(node))].load(), round) << "my partner on node " << node;
      }
      if (round % 3 != 0) continue;
      ASSERT_EQ(barrier.world(), BarrierResult::kOk);
    }
  });
}

TEST_P(DeviceApi, ASignalIsSeenAfterTheDataOfItsPut) {
  ThreadRanks ranks(num_ranks(), {.net = GetParam().net, .gin = GetParam().gin}, GetParam().of_rank);
  constexpr size_t kWords = 512;
  constexpr int kRounds = 50;
  const int n = num_ranks();
  ranks.on_all([&](int rank) {
    Communicator& comm = ranks.comm(rank);
    auto device = comm.create_device_comm({.num_contexts = 2, .num_signals = n, .num_counters = 1, .num_barriers = 1});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    const Region inbox = make_region(comm, size_t(n) * kWords * 8);
    const Region source = make_region(comm, kWords * 8);
    const HostPlatform p;
    const Gin<HostPlatform> gin(p, *device, 1);
    Barrier<HostPlatform> barrier(p, *device, 0);
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (size_t i = 0; i < kWords; ++i) source.view.local_as<uint64_t>(0)[i] = round * 1000 + uint64_t(rank);
      for (int peer = 0; peer < n; ++peer) {
        ASSERT_EQ(gin.put(CoopThread{}, peer, inbox.view, uint64_t(rank) * kWords * 8, source.view, 0, kWords * 8,
                          SignalAdd{rank}, CounterAdd{0}),
                  GinStatus::kOk);
      }
      ASSERT_EQ(gin.flush(), GinStatus::kOk);
      ASSERT_EQ(gin.read_counter(0), round * uint64_t(n));
      for (int peer = 0; peer < n; ++peer) {
        ASSERT_EQ(gin.wait_signal(peer, round), GinStatus::kOk);
        const uint64_t* got = inbox.view.local_as<uint64_t>(size_t(peer) * kWords * 8);
        for (size_t i = 0; i < kWords; ++i) ASSERT_EQ(got[i], round * 1000 + uint64_t(peer));
      }
      ASSERT_EQ(barrier.world(), BarrierResult::kOk);
    }
  });
}

TEST_P(DeviceApi, ABareSignalReachesItsContextOnly) {
  ThreadRanks ranks(num_ranks(), {.net = GetParam().net, .gin = GetParam().gin}, GetParam().of_rank);
  ranks.on_all([&](int rank) {
    auto device = ranks.comm(rank).create_device_comm({.num_contexts = 2, .num_signals = 2, .num_barriers = 1});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    const HostPlatform p;
    const Gin<HostPlatform> first(p, *device, 0);
    const Gin<HostPlatform> second(p, *device, 1);
    const int next = (rank + 1) % num_ranks();
    ASSERT_EQ(second.signal(next, SignalAdd{1, 5}), GinStatus::kOk);
    ASSERT_EQ(second.wait_signal(1, 5), GinStatus::kOk);
    EXPECT_EQ(first.read_signal(1), 0u);
    EXPECT_EQ(second.read_signal(0), 0u);
    Barrier<HostPlatform> barrier(p, *device, 0);
    ASSERT_EQ(barrier.world(), BarrierResult::kOk);
  });
}

// Bytes that a stuck peer does not take are in flight for ever.
TEST(Waiting, EndsInTimeAlsoWhileTheNetworkIsBusy) {
  constexpr NetCalls kBusy{nullptr, nullptr, nullptr, [](void*) { return true; }, nullptr};
  const HostPlatform platform{};
  int target = 0;
  const NetPath net{.target = &target, .calls = &kBusy};
  uint32_t abort = 0;
  const auto never = [&] { return platform.net_progress(net), false; };
  const uint64_t begin_ns = now_ns();
  EXPECT_FALSE(switchyard::wait_until(platform, never, 20 * kMillisecond, &abort));
  EXPECT_GE(now_ns() - begin_ns, 20 * kMillisecond);
}

INSTANTIATE_TEST_SUITE_P(Topologies, DeviceApi,
                         ::testing::Values(Nodes{"one", {0}}, Nodes{"two_on_one_node", {0, 0}},
                                           Nodes{"eight_on_one_node", {0, 0, 0, 0, 0, 0, 0, 0}},
                                           Nodes{"two_nodes", {0, 0, 1, 1}}, Nodes{"uneven", {0, 0, 0, 1, 2, 2}},
                                           Nodes{"two_nodes_ofi", {0, 0, 1, 1}, "ofi"},
                                           Nodes{"uneven_ofi", {0, 0, 0, 1, 2, 2}, "ofi"},
                                           Nodes{"two_nodes_proxy", {0, 0, 1, 1}, "mem", "proxy"},
                                           Nodes{"two_nodes_ofi_proxy", {0, 0, 1, 1}, "ofi", "proxy"},
                                           Nodes{"uneven_ofi_proxy", {0, 0, 0, 1, 2, 2}, "ofi", "proxy"}),
                         [](const auto& nodes) { return nodes.param.name; });

// Waits end at once, and say why, when what they wait for can't come any more.
TEST(DeviceApiWaits, EndWhenAPeerIsGoneOrTheJobIsAborted) {
  for (const bool aborts : {false, true}) {
    ThreadRanks ranks(2, {.timeout_ns = 60 * kSecond});
    ranks.on_all([&](int rank) {
      auto device = ranks.comm(rank).create_device_comm({.num_signals = 1, .num_barriers = 1});
      ASSERT_TRUE(device.ok()) << device.status().to_string();
      if (rank == 1) {
        wait_until([] { return false; }, Deadline::after_ns(20 * kMillisecond));
        if (aborts) ranks.comm(0).abort("the test wants it");
        else ranks.comm(0).health().mark_gone(1);
        return;
      }
      const HostPlatform p;
      const uint64_t begin_ns = now_ns();
      const Gin<HostPlatform> gin(p, *device, 0);
      EXPECT_EQ(gin.wait_signal(0, 1), aborts ? GinStatus::kAborted : GinStatus::kPeerGone);
      EXPECT_EQ(gin.wait_signal(0, 1, /*from=*/1), aborts ? GinStatus::kAborted : GinStatus::kPeerGone);
      Barrier<HostPlatform> barrier(p, *device, 0);
      EXPECT_EQ(barrier.world(), aborts ? BarrierResult::kAborted : BarrierResult::kPeerGone);
      EXPECT_LT(now_ns() - begin_ns, 20 * kSecond);
    });
  }
}

// The node's first rank meets the other nodes; all ranks of the node must hear how that went, and who was missing.
TEST(DeviceApiWaits, AWorldBarrierFailsForTheWholeNode) {
  for (const bool is_gone : {true, false}) {
    ThreadRanks ranks(4, {.timeout_ns = is_gone ? 60 * kSecond : 3 * kSecond}, {0, 0, 0, 1});
    ranks.on_all([&](int rank) {
      auto device = ranks.comm(rank).create_device_comm({.num_barriers = 1});
      ASSERT_TRUE(device.ok()) << device.status().to_string();
      const HostPlatform p;
      Barrier<HostPlatform> barrier(p, *device, 0);
      EXPECT_EQ(barrier.world(), BarrierResult::kOk);
      if (rank == 3) return;
      if (rank == 0 && is_gone) ranks.comm(0).health().mark_gone(3);
      const BarrierResult result = barrier.world();
      if (is_gone) {
        EXPECT_EQ(result, BarrierResult::kPeerGone) << rank;
        EXPECT_EQ(barrier.missing(), 3) << rank;
      } else {
        EXPECT_EQ(result, BarrierResult::kTimeout) << rank;
      }
    });
  }
}

// A rank whose time is up in one barrier is not let through the next before all have come.
TEST(DeviceApiWaits, AWorldBarrierThatFailedLeavesNobodyAStepBehind) {
  ThreadRanks ranks(4, {.timeout_ns = 2 * kSecond}, {0, 0, 0, 1});
  std::atomic<bool> last_has_come{false};
  ranks.on_all([&](int rank) {
    auto device = ranks.comm(rank).create_device_comm({.num_barriers = 1});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    const HostPlatform p;
    Barrier<HostPlatform> barrier(p, *device, 0);
    ASSERT_EQ(barrier.world(), BarrierResult::kOk);
    ASSERT_TRUE(ranks.comm(rank).barrier().ok());
    const auto sleep = [](int num_ms) { wait_until([] { return false; }, Deadline::after_ns(uint64_t(num_ms) * kMillisecond)); };
    constexpr int kBeforeFirst[] = {2000, 0, 3200, 2000}, kBeforeSecond[] = {0, 800, 0, 1400};
    sleep(kBeforeFirst[rank]);
    (void)barrier.world();  // for rank 1 the time is up before rank 2 comes, for the others it is not
    sleep(kBeforeSecond[rank]);
    if (rank == 3) last_has_come = true;
    const bool passes = barrier.world() == BarrierResult::kOk;
    EXPECT_TRUE(!passes || last_has_come) << rank;
  });
}

TEST(DeviceApiOneNode, MultimemStoresToAllAndAddsUpInRankOrder) {
  ThreadRanks ranks(4);
  ranks.on_all([&](int rank) {
    Communicator& comm = ranks.comm(rank);
    auto device = comm.create_device_comm({.num_barriers = 1});
    ASSERT_TRUE(device.ok());
    void* memory = comm.runtime().allocate(4096).value();
    const WindowView window = comm.view(*comm.register_window(memory, 4096).value());
    const HostPlatform p;
    Barrier<HostPlatform> barrier(p, *device, 0);
    *window.local_as<float>(0) = float(rank + 1);
    multimem<int>(window, device->lsa, 64).at(size_t(rank)).store(100 + rank);
    ASSERT_EQ(barrier.lsa(), BarrierResult::kOk);
    EXPECT_EQ(multimem<float>(window, device->lsa, 0).load_reduce(), 10.0f);
    for (int peer = 0; peer < 4; ++peer) EXPECT_EQ(window.local_as<int>(64)[peer], 100 + peer);
    // Rows: 2^25 + 1 + 1 - 2^25 is 0 in this order of FP32 additions, and 2 in others.
    constexpr float kValues[] = {0x1p25f, 1.0f, 1.0f, -0x1p25f};
    for (int i = 0; i < 100; ++i) window.local_as<float>(128)[i] = kValues[rank] * float(i);
    ASSERT_EQ(barrier.lsa(), BarrierResult::kOk);
    const char* rows[4];
    const float ones[4] = {1, 1, 1, 1};
    float sums[100];
    multimem_row(window, device->lsa, 128).load_reduce(p, DType::kFloat32, reinterpret_cast<char*>(sums), rows, ones, 100);
    EXPECT_EQ(sums[1], 0.0f);
    EXPECT_EQ(sums[64], 0.0f);
    ASSERT_EQ(barrier.lsa(), BarrierResult::kOk);
  });
}

TEST(DeviceApiOneNode, AWaitForAMissingRankEndsByItsDeadline) {
  ThreadRanks ranks(2, {.timeout_ns = 2 * kSecond});
  ranks.on_all([&](int rank) {
    auto device = ranks.comm(rank).create_device_comm({.num_barriers = 1});
    ASSERT_TRUE(device.ok());
    if (rank == 1) return;  // never comes to the barrier
    const HostPlatform p;
    Barrier<HostPlatform> barrier(p, *device, 0);
    const uint64_t start = now_ns();
    EXPECT_EQ(barrier.world(), BarrierResult::kTimeout);
    EXPECT_EQ(barrier.missing(), 1);
    EXPECT_LT(now_ns() - start, 20 * kSecond);
  });
}

TEST(DeviceApiOneNode, DifferentRequirementsAreRefusedOnEveryRank) {
  ThreadRanks ranks(2);
  ranks.on_all([&](int rank) {
    auto device = ranks.comm(rank).create_device_comm({.num_signals = 1 + rank});
    EXPECT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), Code::kInvalidUsage);
  });
}

}  // namespace
}  // namespace switchyard::testing
