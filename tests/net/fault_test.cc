// What FaultEndpoint does to posts: each kind of fault, its seed, its limits, and how it is asked for.
#include "net/fault.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "net/loop_network.hpp"
#include "net/net_rank.hpp"

namespace switchyard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- plans ----

TEST(FaultPlan, IsReadFromAList) {
  const auto plan = FaultPlan::parse(
      "seed=18446744073709551615,flip=0.01,drop=1,delay=0.05:2ms,duplicate=0,truncate=1e-3,reorder=.5,cut=2,cut=3:"
      "silent,cut=4@100ms,cut=5:silent@5us-2s");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const FaultPlan& p = plan.value();
  EXPECT_EQ(p.seed, ~uint64_t{0});
  EXPECT_EQ(p.flip, 0.01);
  EXPECT_EQ(p.drop, 1);
  EXPECT_EQ(p.delay, 0.05);
  EXPECT_EQ(p.max_delay_ns, 2 * kMillisecond);
  EXPECT_EQ(p.duplicate, 0);
  EXPECT_EQ(p.truncate, 0.001);
  EXPECT_EQ(p.reorder, 0.5);
  ASSERT_EQ(p.cut.size(), 4u);
  EXPECT_EQ(p.cut[0].peer, 2);
  EXPECT_EQ(p.cut[0].how, Cut::kRefuse);
  EXPECT_EQ(p.cut[1].peer, 3);
  EXPECT_EQ(p.cut[1].how, Cut::kSilent);
  EXPECT_EQ(p.cut[1].from_ns, 0u);
  EXPECT_EQ(p.cut[2].how, Cut::kRefuse);
  EXPECT_EQ(p.cut[2].from_ns, 100 * kMillisecond);
  EXPECT_EQ(p.cut[2].until_ns, ~uint64_t{0});
  EXPECT_EQ(p.cut[3].peer, 5);
  EXPECT_EQ(p.cut[3].how, Cut::kSilent);
  EXPECT_EQ(p.cut[3].from_ns, 5'000u);
  EXPECT_EQ(p.cut[3].until_ns, 2 * kSecond);
  EXPECT_EQ(FaultPlan::parse("delay=1:700us").value().max_delay_ns, 700'000u);
  EXPECT_EQ(FaultPlan::parse("delay=1:60s").value().max_delay_ns, 60 * kSecond);
  EXPECT_EQ(FaultPlan::parse("delay=1").value().max_delay_ns, kMillisecond);
}

TEST(FaultPlan, RefusesWhatItDoesNotKnowAndSaysWhichItem) {
  for (const char* bad : {"",
                          "flip",
                          "flip=",
                          "=1",
                          "flop=0.1",
                          "flip=1.1",
                          "flip=-0.1",
                          "flip=nan",
                          "flip=inf",
                          "flip=0.1x",
                          "flip= 0.1",
                          "seed=-1",
                          "seed=18446744073709551616",
                          "delay=0.1:",
                          "delay=0.1:2",
                          "delay=0.1:61s",
                          "delay=0.1:2 ms",
                          "delay=0.1:2m",
                          "cut=",
                          "cut=-1",
                          "cut=1048577",
                          "cut=1:loud",
                          "cut=1@",
                          "cut=1@5",
                          "cut=1@5ms-",
                          "cut=1@5ms-5ms",
                          "cut=1@5ms:silent",
                          "Flip=0.1"}) {
    const auto plan = FaultPlan::parse(bad);
    ASSERT_FALSE(plan.ok()) << bad;
    EXPECT_THAT(plan.status().message(), HasSubstr(text("'", bad, "'")));
  }
  for (const char* list : {"seed=1,flip=2,drop=0", "seed=1,flip=2", "flip=2,,"}) {
    EXPECT_THAT(FaultPlan::parse(list).status().message(), HasSubstr("'flip=2'")) << list;
  }
  EXPECT_THAT(FaultPlan::parse("flip=0.1,").status().message(), HasSubstr("''"));
  EXPECT_THAT(FaultPlan::parse("flip=0.1,flip=0.1").status().message(), HasSubstr("comes twice"));
}

std::string connect_under(const std::string& assignments) {
  const std::string command = text(assignments, " '", CONNECT_PROBE, "' 2>&1");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::string output;
  char buffer[512];
  while (pipe && fgets(buffer, sizeof(buffer), pipe.get())) output += buffer;
  return output;
}

TEST(FaultPlan, OfTheEnvironmentIsUsedOrRefusedByName) {
  EXPECT_THAT(connect_under(""), HasSubstr("faults 0 checksum 0"));
  EXPECT_THAT(connect_under("SWITCHYARD_NET_FAULTS=delay=0.5"), HasSubstr("faults 1 checksum 0"));
  EXPECT_THAT(connect_under("SWITCHYARD_NET_CHECKSUM=1"), HasSubstr("faults 0 checksum 1"));
  EXPECT_THAT(connect_under("SWITCHYARD_NET_CHECKSUM=1 SWITCHYARD_NET_FAULTS=seed=2"),
              HasSubstr("faults 1 checksum 1"));
  EXPECT_THAT(connect_under("SWITCHYARD_NET_FAULTS=flip=7"),
              HasSubstr("SWITCHYARD_NET_FAULTS: network fault 'flip=7'"));
  EXPECT_THAT(connect_under("SWITCHYARD_NET_FAULTS=cut=2"),
              HasSubstr("SWITCHYARD_NET_FAULTS: cut=2, but ranks are 0..1"));
}

TEST(FaultPlan, CutsRanksOfTheJobInWhateverPartOfIt) {
  const FaultPlan plan{.cut = {{.peer = 3, .how = Cut::kRefuse, .from_ns = 2 * kSecond}}};  // all have met by then
  ThreadRanks ranks(4, {.net = "ofi", .net_decorations = {.faults = plan}}, {0, 1, 2, 3});
  ranks.on_all([&](int rank) {
    // 0 and 1 in their order; 3 before 2.
    const auto part = ranks.comm(rank).split(rank / 2, rank < 2 ? rank : -rank);
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    NetEndpoint &whole = *ranks.comm(rank).net(), &net = *part.value()->net();
    const auto is_cut = [&] {
      whole.progress();
      net.progress();
      return !whole.usable(3) && (rank < 2 || !net.usable(0));
    };
    EXPECT_EQ(wait_until(is_cut, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
    EXPECT_TRUE(whole.usable(1));
    EXPECT_TRUE(net.usable(1));
    EXPECT_EQ(net.usable(0), rank < 2);
  });
}

// Where no network is needed a wrong word is an error, too.
TEST(FaultPlan, AndTheWayToTheNetworkAreReadOnOneNodeAsWell) {
  const auto refusal = [](const Communicator::Options& options) {
    const auto comm = Communicator::create(create_unique_id().value(), 0, 1, options);
    return comm.ok() ? "none" : comm.status().message();
  };
  EXPECT_THAT(refusal({.gin = "prxy"}), HasSubstr("the way to the network is 'prxy', allowed are direct and proxy"));
  const FaultPlan plan{.cut = {{.peer = 3, .how = Cut::kRefuse}}};
  EXPECT_THAT(refusal({.net_decorations = {.faults = plan}}), HasSubstr("cut=3, but ranks are 0..0"));
  EXPECT_EQ(refusal({}), "none");
}

// ---- each fault, on a network that says what it is asked for ----

constexpr uint32_t kRegion = 1;
constexpr uint64_t kBytes = 4096, kSignals = 3072;  // signals in the last part

class Faulty {
 public:
  explicit Faulty(const FaultPlan& plan, bool ordered = false, int rank = 0)
      : peer_memory(kBytes),
        memory(kBytes),
        net(make(rank), plan, rank, 3, ordered),
        peers{{{network_, 1}, {network_, 2}}} {
    std::iota(memory.begin(), memory.end(), uint8_t(1));
    EXPECT_TRUE(net.register_region(kRegion, memory.data(), kBytes, Deadline::never()).ok());
    for (auto& peer : peers)
      EXPECT_TRUE(peer.register_region(kRegion, peer_memory.data(), kBytes, Deadline::never()).ok());
    loop->record = true;
  }
  static NetPut put_of(uint64_t offset, uint64_t num_bytes, uint64_t signal = 0, int peer = 1) {
    return {peer, kRegion, offset, kRegion, offset, num_bytes, kRegion, kSignals, signal};
  }
  NetPost put(uint64_t offset, uint64_t num_bytes, uint64_t signal = 0, int peer = 1) {
    return net.put(put_of(offset, num_bytes, signal, peer));
  }
  bool wait_sent(size_t count) {
    return wait_until([&] { return net.progress(), loop->sent.size() >= count; }, Deadline::after_ns(10 * kSecond)) ==
           WaitResult::kReady;
  }
  // Where each one went, and -signal for those that are signals only.
  std::vector<int> order() const {
    std::vector<int> places;
    for (const auto& sent : loop->sent) {
      places.push_back(sent.put.num_bytes > 0 ? int(sent.put.to_offset) : -int(sent.put.signal_value));
    }
    return places;
  }
  uint64_t signal() const { return *reinterpret_cast<const uint64_t*>(&peer_memory[kSignals]); }

 private:
  std::unique_ptr<NetEndpoint> make(int rank) {
    auto endpoint = std::make_unique<LoopNetwork::Endpoint>(network_, rank);
    loop = endpoint.get();
    return endpoint;
  }
  LoopNetwork network_;

 public:
  LoopNetwork::Endpoint* loop;
  std::vector<uint8_t> peer_memory, memory;
  FaultEndpoint net;

 private:
  std::array<LoopNetwork::Endpoint, 2> peers;
};

TEST(Faults, NothingHappensUnderAnEmptyPlan) {
  Faulty f({});
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(f.put(i * 8, 8, 1), NetPost::kPosted);
  EXPECT_EQ(f.loop->sent.size(), 100u);
  EXPECT_EQ(f.net.flush(), NetPost::kPosted);
  EXPECT_EQ(f.net.count_all(), 0u);
  EXPECT_EQ(f.signal(), 100u);
}

TEST(Faults, ADroppedPostIsTakenNeverSentAndNeverFlushed) {
  Faulty f({.drop = 1});
  EXPECT_EQ(f.put(0, 64, 1), NetPost::kPosted);
  EXPECT_EQ(f.net.put_value(f.put_of(0, 8), 7), NetPost::kPosted);
  for (int i = 0; i < 10; ++i) f.net.progress();
  EXPECT_TRUE(f.loop->sent.empty());
  EXPECT_EQ(f.net.flush(), NetPost::kBusy);
  EXPECT_EQ(f.net.count(Fault::kDrop), 2u);
}

TEST(Faults, ADuplicateIsSentTwiceWithItsSignal) {
  Faulty f({.duplicate = 1});
  EXPECT_EQ(f.put(64, 64, 5), NetPost::kPosted);
  EXPECT_THAT(f.order(), ElementsAre(64, 64));
  EXPECT_EQ(f.signal(), 10u);
  EXPECT_EQ(f.net.flush(), NetPost::kPosted);
  EXPECT_EQ(f.net.count(Fault::kDuplicate), 1u);
}

TEST(Faults, ATruncatedPutHasFewerBytesAndItsWholeSignal) {
  Faulty f({.truncate = 1});
  uint64_t num_signalled = 0;
  for (uint64_t num_bytes = 1; num_bytes <= 300; ++num_bytes) {
    f.loop->sent.clear();
    ASSERT_EQ(f.put(0, num_bytes, 2), NetPost::kPosted);
    ASSERT_EQ(f.loop->sent.size(), 1u);
    const LoopNetwork::Sent& sent = f.loop->sent[0];
    EXPECT_LT(sent.put.num_bytes, num_bytes);
    EXPECT_TRUE(std::equal(sent.bytes.begin(), sent.bytes.end(), f.memory.begin()));
    EXPECT_EQ(f.signal(), num_signalled += 2);
  }
  EXPECT_EQ(f.net.count(Fault::kTruncate), 300u);
  ASSERT_EQ(f.put(0, 0, 2), NetPost::kPosted);
  EXPECT_EQ(f.net.count(Fault::kTruncate), 300u) << "a bare signal has nothing to cut away";
}

TEST(Faults, AFlipChangesOneBitOfThePayloadAndNothingElse) {
  Faulty f({.flip = 1});
  uint64_t num_signalled = 0;
  std::array<int, 8> bits{};
  for (uint64_t num_bytes = 1; num_bytes <= 600; ++num_bytes) {
    std::fill(f.peer_memory.begin(), f.peer_memory.begin() + kSignals, 0xee);
    f.loop->sent.clear();
    ASSERT_EQ(f.put(16, num_bytes, 3), NetPost::kPosted);
    EXPECT_EQ(f.loop->sent.back().put.signal_value, 3u) << "behind all of it";
    int num_wrong = 0;
    for (uint64_t i = 0; i < kSignals; ++i) {
      const bool inside = i >= 16 && i < 16 + num_bytes;
      const uint8_t differs = f.peer_memory[i] ^ (inside ? f.memory[i] : 0xee);
      if (differs == 0) continue;
      ASSERT_TRUE(inside);
      num_wrong += std::popcount(differs);
      ++bits[size_t(std::countr_zero(differs))];
    }
    ASSERT_EQ(num_wrong, 1) << num_bytes;
    EXPECT_EQ(f.signal(), num_signalled += 3);
  }
  for (const int bit : bits) EXPECT_GT(bit, 30) << "any bit of a byte";
  for (uint64_t num_bytes = 1; num_bytes <= 8; ++num_bytes) {
    f.loop->sent.clear();
    ASSERT_EQ(f.net.put_value(f.put_of(0, num_bytes), 0x0123456789abcdef), NetPost::kPosted);
    ASSERT_EQ(f.loop->sent.size(), 1u);
    const uint64_t differs = *f.loop->sent[0].value ^ 0x0123456789abcdef;
    EXPECT_EQ(std::popcount(differs), 1);
    EXPECT_LT(std::countr_zero(differs), int(num_bytes * 8));
  }
  EXPECT_EQ(f.net.count(Fault::kFlip), 608u);
}

TEST(Faults, ADelayedPostGoesLaterAndHoldsUpThoseBehindItToItsPeerAlone) {
  Faulty f({.delay = 1, .max_delay_ns = 60 * kSecond});
  EXPECT_EQ(f.put(0, 8), NetPost::kPosted);
  EXPECT_EQ(f.put(8, 8, 1), NetPost::kPosted);
  f.net.progress();
  EXPECT_TRUE(f.loop->sent.empty());
  EXPECT_EQ(f.net.flush(), NetPost::kBusy);
  EXPECT_EQ(f.net.count(Fault::kDelay), 2u);

  Faulty soon({.delay = 1, .max_delay_ns = 3 * kMillisecond});
  std::vector<int> wanted;
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(soon.put(uint64_t(i) * 8, 8, 1), NetPost::kPosted);
    wanted.push_back(i * 8);
  }
  ASSERT_TRUE(soon.wait_sent(40));
  EXPECT_EQ(soon.order(), wanted) << "in order";
  EXPECT_EQ(soon.net.flush(), NetPost::kPosted);
  EXPECT_EQ(soon.signal(), 40u);
}

TEST(Faults, ReorderedPutsChangePlacesButNoSignalOvertakesAnEarlierPut) {
  Faulty f({.reorder = 1, .max_delay_ns = 60 * kSecond});
  EXPECT_EQ(f.put(0, 8), NetPost::kPosted);
  EXPECT_EQ(f.put(8, 8), NetPost::kPosted);
  EXPECT_THAT(f.order(), ElementsAre(8, 0));
  EXPECT_EQ(f.put(16, 8), NetPost::kPosted);
  EXPECT_EQ(f.put(24, 8, 9), NetPost::kPosted);
  EXPECT_THAT(f.order(), ElementsAre(8, 0, 24, 16, -9));
  EXPECT_EQ(f.put(32, 8), NetPost::kPosted);
  EXPECT_EQ(f.put(0, 0, 4), NetPost::kPosted);
  EXPECT_THAT(f.order(), ElementsAre(8, 0, 24, 16, -9, 32, -4));
  EXPECT_EQ(f.net.count(Fault::kReorder), 2u);
  EXPECT_EQ(f.put(40, 8), NetPost::kPosted);
  EXPECT_EQ(f.net.flush(), NetPost::kBusy);
}

TEST(Faults, APutWithNoneToChangePlacesWithGoesAlone) {
  Faulty f({.reorder = 1, .max_delay_ns = kMillisecond});
  EXPECT_EQ(f.put(0, 8), NetPost::kPosted);
  EXPECT_TRUE(f.wait_sent(1));
  EXPECT_EQ(f.net.flush(), NetPost::kPosted);
  EXPECT_EQ(f.net.count_all(), 0u);
}

TEST(Faults, NothingIsReorderedWhereThePluginPromisesOrder) {
  Faulty f({.reorder = 1}, /*ordered=*/true);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(f.put(i * 8, 8), NetPost::kPosted);
  EXPECT_THAT(f.order(), ElementsAre(0, 8, 16, 24));
  EXPECT_EQ(f.net.count_all(), 0u);
}

TEST(Faults, APeerThatIsCutRefusesOrSwallowsUntilItIsRestored) {
  Faulty f({.cut = {{1, Cut::kRefuse}}});
  EXPECT_EQ(f.put(0, 8, 1), NetPost::kFailed);
  EXPECT_THAT(f.net.error().message(), HasSubstr("rank 0: the network to rank 1 was cut"));
  EXPECT_EQ(f.put(0, 8, 1, /*peer=*/2), NetPost::kPosted);
  f.net.cut(1, Cut::kSilent);
  EXPECT_EQ(f.put(0, 8, 1), NetPost::kPosted);
  EXPECT_EQ(f.net.flush(), NetPost::kBusy);
  EXPECT_EQ(f.signal(), 1u) << "of the other peer's put";
  f.net.restore(1);
  EXPECT_TRUE(f.net.error().ok());
  EXPECT_EQ(f.net.flush(), NetPost::kPosted);
  EXPECT_EQ(f.put(0, 8, 1), NetPost::kPosted);
  EXPECT_EQ(f.signal(), 2u);
  EXPECT_EQ(f.net.count(Fault::kCut), 2u);
}

TEST(Faults, CutsAndRestoresByThePlan) {
  Faulty f({.cut = {{1, Cut::kSilent, 0, kSecond}, {2, Cut::kRefuse, kSecond / 10}}});
  EXPECT_EQ(f.put(0, 8, 1), NetPost::kPosted);
  EXPECT_EQ(f.net.flush(), NetPost::kBusy) << "it was swallowed";
  const auto put_until = [&](int peer, NetPost wanted) {
    return wait_until([&] { return f.put(0, 8, 1, peer) == wanted; }, Deadline::after_ns(10 * kSecond));
  };
  EXPECT_EQ(put_until(2, NetPost::kFailed), WaitResult::kReady);
  EXPECT_FALSE(f.net.usable(2));
  const auto restored = [&] {
    f.net.progress();
    return f.net.flush() == NetPost::kPosted;
  };
  EXPECT_EQ(wait_until(restored, Deadline::after_ns(10 * kSecond)), WaitResult::kReady);
  const uint64_t num_signals = f.signal();
  EXPECT_EQ(f.put(0, 8, 1), NetPost::kPosted);
  EXPECT_EQ(f.signal(), num_signals + 1);
}

TEST(Faults, WhatIsTakenWhileTheNetworkHasNoRoomGoesInOrderAndOnce) {
  Faulty f({.duplicate = 0.2, .flip = 0.2});
  f.loop->busy_every = 3;
  uint64_t num_taken = 0;
  const auto all_sent = [&] {
    f.net.progress();
    while (num_taken < 300 && f.put(num_taken % 100 * 8, 8, 1) == NetPost::kPosted) ++num_taken;
    return num_taken == 300 && f.net.flush() == NetPost::kPosted;
  };
  ASSERT_EQ(wait_until(all_sent, Deadline::after_ns(10 * kSecond)), WaitResult::kReady);
  EXPECT_EQ(f.signal(), num_taken + f.net.count(Fault::kDuplicate));
  std::vector<uint64_t> places;
  for (const auto& sent : f.loop->sent) places.push_back(sent.put.to_offset / 8);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  ASSERT_EQ(places.size(), 300u);
  for (uint64_t i = 0; i < 300; ++i) ASSERT_EQ(places[i], i % 100);
}

TEST(Faults, TakesNoMoreThanItCanHold) {
  Faulty f({.delay = 1, .max_delay_ns = 60 * kSecond});
  int num_taken = 0;
  while (num_taken < 1000 && f.put(0, 8) == NetPost::kPosted) ++num_taken;
  EXPECT_EQ(num_taken, 64);
}

TEST(Faults, WhatIsHeldBackGoesWhenItsRegionGoes) {
  Faulty f({.delay = 1, .max_delay_ns = 60 * kSecond});
  EXPECT_EQ(f.put(0, 8), NetPost::kPosted);
  EXPECT_EQ(f.put(8, 8), NetPost::kPosted);
  f.loop->num_busy = 1;  // and one of them finds no room
  f.net.deregister_region(kRegion);
  EXPECT_EQ(f.net.flush(), NetPost::kPosted);
  EXPECT_TRUE(f.net.error().ok());

  Faulty roomy({.delay = 1, .max_delay_ns = 60 * kSecond});
  EXPECT_EQ(roomy.put(0, 8), NetPost::kPosted);
  EXPECT_EQ(roomy.put(8, 8), NetPost::kPosted);
  roomy.net.deregister_region(kRegion);
  EXPECT_THAT(roomy.order(), ElementsAre(0, 8));
}

TEST(Faults, ALostNetworkFailsWhatWasHeldBack) {
  Faulty f({});
  f.loop->num_busy = 2;
  EXPECT_EQ(f.put(0, 8), NetPost::kPosted);
  f.net.progress();
  f.loop->lost = true;
  f.net.progress();
  EXPECT_EQ(f.put(0, 8), NetPost::kFailed);
  EXPECT_EQ(f.net.flush(), NetPost::kFailed);
  EXPECT_FALSE(f.net.error().ok());
}

TEST(Faults, OneLostPeerTakesNobodyElseAlong) {
  Faulty f({.delay = 1, .max_delay_ns = kMillisecond});
  EXPECT_EQ(f.put(0, 8, 1, /*peer=*/2), NetPost::kPosted);
  EXPECT_EQ(f.put(0, 8, 1, /*peer=*/1), NetPost::kPosted);
  f.loop->lost_peer = 2;
  const auto is_sent = [&] {
    f.net.progress();
    return f.net.flush() != NetPost::kBusy;
  };
  ASSERT_EQ(wait_until(is_sent, Deadline::after_ns(10 * kSecond)), WaitResult::kReady);
  EXPECT_EQ(f.signal(), 1u) << "of the other peer's put";
  EXPECT_EQ(f.put(0, 8, 1, /*peer=*/2), NetPost::kFailed);
  EXPECT_TRUE(f.net.usable(1));
  EXPECT_EQ(f.put(0, 8, 1, /*peer=*/1), NetPost::kPosted);
  ASSERT_EQ(wait_until(is_sent, Deadline::after_ns(10 * kSecond)), WaitResult::kReady);
  EXPECT_EQ(f.signal(), 2u);
  EXPECT_EQ(f.net.flush(), NetPost::kPosted);
}

TEST(Faults, NobodyWaitsForWhatWasDroppedOnTheWayToAPeerThatIsGone) {
  for (const bool in_good_order : {true, false}) {
    Faulty f({.drop = 1});
    EXPECT_EQ(f.put(0, 8, 1), NetPost::kPosted);
    EXPECT_EQ(f.net.flush(), NetPost::kBusy);
    in_good_order ? f.net.forget(1) : f.net.give_up(1, "it is gone");
    EXPECT_EQ(f.net.flush(), NetPost::kPosted);
  }
}

// What goes out under a plan in which everything happens that does not depend on the time.
std::vector<LoopNetwork::Sent> history(uint64_t seed, int rank) {
  Faulty f({.seed = seed, .drop = 0.1, .duplicate = 0.1, .truncate = 0.1, .flip = 0.1}, false, rank);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t offset = uint64_t(i) % 50 * 40;
    EXPECT_EQ(f.put(offset, 40, i % 4 == 3, 1 + i % 2), NetPost::kPosted);
  }
  return f.loop->sent;
}

TEST(Faults, ASeedGivesARankTheSameFaultsAgain) {
  const auto same = [](const LoopNetwork::Sent& a, const LoopNetwork::Sent& b) {
    return a.put.peer == b.put.peer && a.put.to_offset == b.put.to_offset && a.bytes == b.bytes &&
           a.put.signal_value == b.put.signal_value;
  };
  const auto equal = [&](const auto& a, const auto& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
  };
  EXPECT_TRUE(equal(history(5, 0), history(5, 0)));
  EXPECT_FALSE(equal(history(5, 0), history(6, 0)));
  EXPECT_FALSE(equal(history(5, 0), history(5, 3)));
}

// ---- over real networks ----

class FaultsOverNet : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, FaultsOverNet, ::testing::Values("mem", "ofi"));

TEST_P(FaultsOverNet, WithoutChecksumsDamageArrivesAndIsCounted) {
  ThreadRanks ranks(2, {.net = GetParam(), .net_decorations = {.faults = FaultPlan{.delay = 0.05, .flip = 0.3}}},
                    {0, 1});
  std::vector<uint64_t> flips(2);
  ranks.on_all([&](int rank) {
    NetRank self(ranks.comm(rank));
    constexpr uint64_t kNumPuts = 500, kPutBytes = 512;
    FaultEndpoint* faults = find_faults(&self.net);
    ASSERT_NE(faults, nullptr);
    if (rank == 0) {
      std::fill(self.data(), self.data() + kNumPuts * kPutBytes, 0x77);
      for (uint64_t i = 0; i < kNumPuts; ++i) {
        ASSERT_EQ(self.put(self.put_of(i * kPutBytes, i * kPutBytes, kPutBytes, 1)), NetPost::kPosted);
      }
      flips[0] = faults->count(Fault::kFlip);
      EXPECT_GT(faults->count(Fault::kDelay), 0u);
    } else {
      ASSERT_TRUE(self.wait_signal(1, kNumPuts));
      for (uint64_t i = 0; i < kNumPuts; ++i) {
        const uint8_t* bytes = self.data() + i * kPutBytes;
        flips[1] += std::count(bytes, bytes + kPutBytes, 0x77) == kPutBytes - 1;
      }
    }
    EXPECT_TRUE(self.comm.barrier().ok());
  });
  EXPECT_GT(flips[0], 100u);
  EXPECT_EQ(flips[0], flips[1]);
}

}  // namespace
}  // namespace switchyard::testing
