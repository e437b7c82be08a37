// ChecksumEndpoint: everything that arrives is what was sent, or nothing arrives and the endpoint says why.
#include "net/checksum.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "net/fault.hpp"
#include "net/loop_network.hpp"
#include "net/net_rank.hpp"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRegion = 1;
constexpr uint64_t kBytes = 1 << 16, kSignals = kBytes - 64;
constexpr uint64_t kNumEntries = LedgerLayout::kNumEntries;

// Two ranks in one thread: checksums over faults, if there are any, over a loop. Nothing moves but by a call.
class Pair {
 public:
  explicit Pair(const std::optional<FaultPlan>& plan = {}) {
    for (int rank = 0; rank < 2; ++rank) {
      auto loop = std::make_unique<LoopNetwork::Endpoint>(network_, rank);
      loops[size_t(rank)] = loop.get();
      std::unique_ptr<NetEndpoint> inner = std::move(loop);
      if (plan) inner = std::make_unique<FaultEndpoint>(std::move(inner), *plan, rank, 2, /*ordered_puts=*/false);
      faults[size_t(rank)] = find_faults(inner.get());
      net[size_t(rank)] =
          ChecksumEndpoint::create(std::move(inner), host_runtime(), rank, 2, Deadline::never()).value();
      memory[size_t(rank)].resize(kBytes);
      EXPECT_TRUE(
          net[size_t(rank)]->register_region(kRegion, memory[size_t(rank)].data(), kBytes, Deadline::never()).ok());
    }
  }
  static NetPut put_of(uint64_t offset, uint64_t num_bytes, uint64_t signal = 0, int peer = 1) {
    return {peer, kRegion, offset, kRegion, offset, num_bytes, kRegion, kSignals, signal};
  }
  uint64_t signal(int rank = 1) const { return *reinterpret_cast<const uint64_t*>(&memory[size_t(rank)][kSignals]); }
  std::string error(int rank = 1) const { return net[size_t(rank)]->error().message(); }
  void progress() {
    for (const auto& endpoint : net) endpoint->progress();
  }

  // Something that rank 0 does behind the back of its endpoint: an entry as it likes, and one ring of the doorbell.
  void forge(LedgerEntry entry, bool sign = true, uint64_t rings = 1) {
    const LedgerLayout layout{2};
    if (sign) entry.entry_hash = hash_entry(entry, 0, 1);
    constexpr uint32_t kScratch = 99;
    std::vector<uint8_t> scratch(sizeof(entry));
    std::memcpy(scratch.data(), &entry, sizeof(entry));
    EXPECT_TRUE(loops[0]->register_region(kScratch, scratch.data(), scratch.size(), Deadline::never()).ok());
    EXPECT_EQ(loops[0]->put({1, LedgerLayout::kRingsRegion, layout.incoming(0, entry.sequence), kScratch, 0,
                             sizeof(entry), LedgerLayout::kWordsRegion, layout.doorbell(0), rings}),
              NetPost::kPosted);
    loops[0]->deregister_region(kScratch);
    net[1]->progress();
  }

 private:
  LoopNetwork network_;

 public:
  std::array<std::vector<uint8_t>, 2> memory;
  std::array<LoopNetwork::Endpoint*, 2> loops;
  std::array<FaultEndpoint*, 2> faults;
  std::array<std::unique_ptr<NetEndpoint>, 2> net;
};

TEST(Checksum, ASignalComesWhenTheTargetHasLookedAtTheData) {
  Pair pair;
  pair.memory[0][100] = 42;
  EXPECT_EQ(pair.net[0]->put(pair.put_of(100, 1, 7)), NetPost::kPosted);
  EXPECT_EQ(pair.signal(), 0u);
  pair.net[1]->progress();
  EXPECT_EQ(pair.signal(), 7u);
  EXPECT_EQ(pair.memory[1][100], 42);
  EXPECT_EQ(pair.net[0]->put_value(pair.put_of(8, 8, 1), 0x1122334455667788), NetPost::kPosted);
  EXPECT_EQ(pair.net[0]->put(pair.put_of(0, 0, 2)), NetPost::kPosted);
  pair.net[1]->progress();
  EXPECT_EQ(pair.signal(), 10u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(&pair.memory[1][8]), 0x1122334455667788u);
}

TEST(Checksum, EntriesAreUsedAgainWhenTheTargetHasTakenThem) {
  Pair pair;
  uint64_t sum = 0;
  for (int round = 0; round < 5; ++round) {
    uint64_t num_taken = 0;
    while (pair.net[0]->put(pair.put_of(num_taken * 16, 16, 1)) == NetPost::kPosted) ++num_taken;
    EXPECT_GT(num_taken, kNumEntries - LedgerLayout::kCreditBatch);
    EXPECT_LE(num_taken, kNumEntries);
    EXPECT_TRUE(pair.net[0]->error().ok()) << pair.error(0);
    EXPECT_EQ(pair.signal(), sum);
    pair.net[1]->progress();
    EXPECT_EQ(pair.signal(), sum += num_taken);
  }
}

// Who takes no more returns no entries.
TEST(Checksum, AFullLedgerIsNotWaitedForWhereThePeerIsGone) {
  const auto fill = [](Pair& pair) {
    int num_taken = 0;
    while (pair.net[0]->put(pair.put_of(0, 16, 1)) == NetPost::kPosted) ++num_taken;
    EXPECT_EQ(num_taken, int(kNumEntries));
  };
  Pair lost, given_up, left;
  fill(lost);
  lost.loops[0]->lost_peer = 1;
  EXPECT_EQ(lost.net[0]->put(lost.put_of(0, 16, 1)), NetPost::kFailed);
  fill(given_up);
  given_up.net[0]->give_up(1, "it is gone");
  EXPECT_EQ(given_up.net[0]->put(given_up.put_of(0, 16, 1)), NetPost::kFailed);
  fill(left);
  left.net[0]->forget(1);
  uint64_t num_reusable = 0;
  NetPut put = left.put_of(0, 8, 1);
  put.counter = &num_reusable;
  EXPECT_EQ(left.net[0]->put(put), NetPost::kPosted);
  EXPECT_EQ(left.net[0]->put_value(put, 7), NetPost::kPosted);
  EXPECT_EQ(num_reusable, 2u);
}

// Whatever the network below makes of it.
TEST(Checksum, WhoIsGivenUpIsNotUsableAndItIsSaidWhy) {
  Pair pair;
  EXPECT_TRUE(pair.net[0]->usable(1));
  EXPECT_TRUE(pair.net[0]->why_lost(1).ok());
  pair.net[0]->give_up(1, "its process died");
  EXPECT_FALSE(pair.net[0]->usable(1));
  EXPECT_EQ(pair.net[0]->why_lost(1).message(), "rank 0: the network lost rank 1: its process died");
  EXPECT_EQ(pair.net[0]->put(pair.put_of(0, 16, 1)), NetPost::kFailed);
}

TEST(Checksum, WhoHasLeftAndDiesThenHasOnlyLeft) {
  Pair pair;
  pair.net[0]->forget(1);
  pair.net[0]->give_up(1, "its process died");
  EXPECT_TRUE(pair.net[0]->usable(1));
  EXPECT_EQ(pair.net[0]->put(pair.put_of(0, 16, 1)), NetPost::kPosted);
}

// Between a payload and its entry, before either, and when entries are returned.
TEST(Checksum, NothingIsLostOrDoneTwiceWhenTheNetworkHasNoRoom) {
  constexpr uint64_t kNumPuts = 5000;
  for (const int busy_every : {2, 3, 5}) {
    Pair pair;
    pair.loops[0]->busy_every = pair.loops[1]->busy_every = busy_every;
    uint64_t num_posted = 0;
    const auto all_arrived = [&] {
      pair.progress();
      while (num_posted < kNumPuts &&
             pair.net[0]->put(pair.put_of(num_posted % 1000 * 32, 32, num_posted + 1)) == NetPost::kPosted) {
        ++num_posted;
      }
      return pair.signal() == kNumPuts * (kNumPuts + 1) / 2;
    };
    // Nobody else is needed for it, so there is nothing to wait for.
    for (uint64_t num_steps = 0; !all_arrived(); ++num_steps) {
      ASSERT_LT(num_steps, 10 * kNumPuts) << pair.signal() << pair.error(0) << pair.error(1);
    }
    EXPECT_EQ(pair.net[0]->flush(), NetPost::kPosted);
  }
}

TEST(Checksum, ADamagedPutIsNamedAndEndsTheEndpointWithoutASignal) {
  Pair pair;
  EXPECT_EQ(pair.net[0]->put(pair.put_of(64, 1000, 1)), NetPost::kPosted);
  pair.memory[1][64 + 999] ^= 0x80;
  EXPECT_EQ(pair.net[0]->put(pair.put_of(0, 0, 1)), NetPost::kPosted);
  pair.net[1]->progress();
  EXPECT_EQ(pair.signal(), 0u) << "neither its own nor a later one";
  EXPECT_EQ(
      pair.error(),
      "rank 1: 1000 bytes that rank 0 put into region 1 at offset 64 are damaged (checksum); the network corrupts "
      "data");
  EXPECT_EQ(pair.net[1]->put(pair.put_of(0, 8, 1, 0)), NetPost::kFailed);
  EXPECT_EQ(pair.net[1]->put_value(pair.put_of(0, 8, 1, 0), 1), NetPost::kFailed);
  EXPECT_EQ(pair.net[1]->flush(), NetPost::kFailed);
}

TEST(Checksum, WhatPeersWriteIntoTheLedgerIsNotTrusted) {
  const LedgerEntry good{.sequence = 0,
                         .to_offset = 0,
                         .num_bytes = 0,
                         .payload_hash = 0,
                         .signal_offset = kSignals,
                         .signal_value = 5,
                         .to_region = kRegion,
                         .signal_region = kRegion,
                         .entry_hash = 0};
  struct Lie {
    const char* error;
    std::function<void(LedgerEntry&)> tell;
  };
  const Lie lies[] = {
      {"outside of it", [](LedgerEntry& e) { e.num_bytes = 8, e.to_region = 77; }},
      {"outside of it", [](LedgerEntry& e) { e.num_bytes = 8, e.to_region = LedgerLayout::kWordsRegion; }},
      {"outside of it", [](LedgerEntry& e) { e.num_bytes = kBytes + 1; }},
      {"outside of it", [](LedgerEntry& e) { e.num_bytes = ~uint64_t{0}, e.to_offset = 16; }},
      {"outside of it", [](LedgerEntry& e) { e.num_bytes = 16, e.to_offset = ~uint64_t{0} - 7; }},
      {"damaged", [](LedgerEntry& e) { e.num_bytes = 16, e.payload_hash = 1; }},
      {"signals offset", [](LedgerEntry& e) { e.signal_region = 77; }},
      {"signals offset", [](LedgerEntry& e) { e.signal_region = LedgerLayout::kRingsRegion; }},
      {"signals offset", [](LedgerEntry& e) { e.signal_offset = kBytes; }},
      {"signals offset", [](LedgerEntry& e) { e.signal_offset = kBytes - 4; }},
      {"signals offset", [](LedgerEntry& e) { e.signal_offset = kSignals + 1; }},
      {"signals offset", [](LedgerEntry& e) { e.signal_offset = ~uint64_t{0} - 7; }},
      {"put number 0 is damaged", [](LedgerEntry& e) { e.sequence = 1; }},
      {"put number 0 is damaged", [](LedgerEntry& e) { e.sequence = kNumEntries; }},
  };
  for (const Lie& lie : lies) {
    Pair pair;
    LedgerEntry entry = good;
    lie.tell(entry);
    pair.forge(entry);
    EXPECT_THAT(pair.error(), HasSubstr(lie.error));
    EXPECT_EQ(pair.signal(), 0u);
    EXPECT_EQ(pair.net[1]->put(pair.put_of(0, 8, 1, 0)), NetPost::kFailed);
  }
  Pair honest;
  honest.forge(good);
  EXPECT_EQ(honest.error(), "");
  EXPECT_EQ(honest.signal(), 5u);

  Pair unsigned_entry;
  unsigned_entry.forge(good, /*sign=*/false);
  EXPECT_THAT(unsigned_entry.error(), HasSubstr("put number 0 is damaged"));
  EXPECT_EQ(unsigned_entry.signal(), 0u);

  for (const uint64_t rings : {kNumEntries + 1, ~uint64_t{0}}) {
    Pair many;
    many.forge(good, true, rings);
    EXPECT_THAT(many.error(), HasSubstr("more than can be underway"));
    EXPECT_EQ(many.signal(), 0u);
  }
}

TEST(Checksum, AnswersForMoreThanWasSentAreNotTrusted) {
  Pair pair;
  const LedgerLayout layout{2};
  EXPECT_EQ(pair.loops[1]->put({0, 0, 0, 0, 0, 0, LedgerLayout::kWordsRegion, layout.taken(1), 1}), NetPost::kPosted);
  EXPECT_EQ(pair.net[0]->put(pair.put_of(0, 8, 1)), NetPost::kFailed);
  EXPECT_THAT(pair.error(0), HasSubstr("has taken 1 puts, but only 0 were sent"));
}

TEST(Checksum, WhatIsLeftForARegionThatIsGoneIsNobodysConcern) {
  Pair pair;
  std::vector<uint8_t> more[2] = {std::vector<uint8_t>(64), std::vector<uint8_t>(64)};
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(pair.net[size_t(rank)]->register_region(2, more[rank].data(), 64, Deadline::never()).ok());
  }
  EXPECT_EQ(pair.net[0]->put({1, 2, 0, 2, 0, 32, 2, 40, 1}), NetPost::kPosted);
  EXPECT_EQ(pair.net[0]->put(pair.put_of(0, 8, 3)), NetPost::kPosted);
  pair.net[1]->deregister_region(2);
  more[1].assign(64, 0xff);  // the memory is somebody else's now
  pair.net[1]->progress();
  EXPECT_EQ(pair.error(), "");
  EXPECT_EQ(pair.signal(), 3u);
  EXPECT_EQ(more[1], std::vector<uint8_t>(64, 0xff));
}

// One life: puts with signals to a rank that compares, until the network was found out or all have arrived.
struct LifeResult {
  uint64_t num_damaged = 0, num_found = 0, num_intact = 0;
  std::string wrong;
};

LifeResult live(uint64_t seed, const FaultPlan& plan) {
  std::mt19937_64 engine(seed);
  Pair pair(plan);
  LifeResult result;
  constexpr uint64_t kNumPuts = 60, kPlace = 1000;
  for (uint8_t& byte : pair.memory[0]) byte = uint8_t(engine());
  uint64_t sizes[kNumPuts];
  uint64_t num_seen = 0;
  // A signal of 1 a put, in order: as many puts as the signal says are in place.
  const auto look = [&] {
    pair.progress();
    if (pair.signal() > kNumPuts) result.wrong = "more signals than puts";
    for (; num_seen < std::min(pair.signal(), kNumPuts); ++num_seen) {
      const uint64_t offset = num_seen * kPlace;
      if (std::memcmp(&pair.memory[0][offset], &pair.memory[1][offset], sizes[num_seen]) != 0) {
        result.wrong = text("put ", num_seen, " of ", sizes[num_seen], " bytes arrived wrong");
      }
    }
  };
  for (uint64_t i = 0; i < kNumPuts && result.wrong.empty(); ++i) {
    sizes[i] = engine() % 4 == 0 ? 0 : 1 + engine() % (kPlace - 1);
    NetPost posted = NetPost::kBusy;
    while (posted == NetPost::kBusy) {
      posted = pair.net[0]->put(pair.put_of(i * kPlace, sizes[i], 1));
      if (posted == NetPost::kBusy) pair.progress();
    }
    if (engine() % 4 == 0) look();
    if (posted == NetPost::kFailed || !pair.net[1]->error().ok()) break;
  }
  look();
  const FaultEndpoint& faults = *pair.faults[0];
  result.num_damaged = faults.count(Fault::kDrop) + faults.count(Fault::kTruncate) + faults.count(Fault::kFlip) +
                       faults.count(Fault::kDuplicate);
  result.num_found = !pair.net[1]->error().ok();
  result.num_intact = num_seen;
  if (result.num_damaged == 0 && result.num_found) result.wrong = "a false alarm: " + pair.error();
  if (result.num_damaged == 0 && num_seen != kNumPuts) result.wrong = text("only ", num_seen, " arrived");
  return result;
}

TEST(Checksum, EveryFlipIsFound) {
  uint64_t num_lives = 0, num_found = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const LifeResult life = live(seed, {.seed = seed, .flip = 0.05, .cut = {}});
    ASSERT_EQ(life.wrong, "") << "seed " << seed;
    num_lives += life.num_damaged > 0;
    num_found += life.num_found;
  }
  EXPECT_GT(num_lives, 1900u);
  EXPECT_EQ(num_found, num_lives);
}

// SWITCHYARD_NET_DAMAGE: how many posts to damage.
TEST(Checksum, NoWrongByteIsSignalledWhateverTheNetworkDoes) {
  const char* wanted = getenv("SWITCHYARD_NET_DAMAGE");
  const uint64_t num_wanted = wanted ? strtoull(wanted, nullptr, 10) : 5'000;
  uint64_t num_damaged = 0, num_lives = 0, num_found = 0, num_intact = 0;
  for (uint64_t seed = 0; num_damaged < num_wanted; ++seed) {
    const FaultPlan plan{.seed = seed,
                         .drop = 0.02,
                         .duplicate = 0.02,
                         .reorder = 0.1,
                         .truncate = 0.02,
                         .flip = 0.02,
                         .max_delay_ns = 20'000};
    const LifeResult life = live(seed, plan);
    ASSERT_EQ(life.wrong, "") << "seed " << seed;
    num_damaged += life.num_damaged;
    num_found += life.num_found;
    num_intact += life.num_intact;
    ++num_lives;
  }
  printf("%lu damaged posts in %lu lives, found in %lu; %lu puts arrived intact\n", num_damaged, num_lives, num_found,
         num_intact);
  EXPECT_GT(num_found, num_lives / 2);
}

// ---- over real networks ----

class ChecksumOverNet : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ChecksumOverNet, ::testing::Values("mem", "ofi"));

TEST_P(ChecksumOverNet, AFlippedBitIsFoundByWhoeverProgresses) {
  for (uint64_t seed = 0; seed < 8 && !HasFailure(); ++seed) {
    ThreadRanks ranks(
        2, {.net = GetParam(), .net_decorations = {.faults = FaultPlan{.seed = seed, .flip = 1}, .checksum = true}},
        {0, 1});
    ranks.on_all([&](int rank) {
      NetRank self(ranks.comm(rank));
      if (rank == 0) ASSERT_EQ(self.put(self.put_of(0, 0, 5000, 1)), NetPost::kPosted);
      else {
        EXPECT_EQ(wait_until([&] { return !self.net.error().ok(); }, Deadline::after_ns(30 * kSecond)),
                  WaitResult::kReady)
            << "the progress thread looks, too";
        EXPECT_THAT(self.net.error().message(), HasSubstr("damage"));
        EXPECT_EQ(self.signal(1), 0u);
      }
      EXPECT_TRUE(self.comm.exchange(uint32_t{0}).ok());
      const Status met = self.comm.barrier();
      // Over `mem` nobody can be lost but by its process.
      if (rank == 1 || std::string(GetParam()) != "mem") {
        EXPECT_THAT(met.message(), HasSubstr("may be lost")) << "rank " << rank;
      }
    });
  }
}

// Both ways at once, so that entries, their return and the signals of both directions meet.
TEST_P(ChecksumOverNet, TwoRanksThatSendMuchToEachOtherCompareAllOfIt) {
  ThreadRanks ranks(2, {.net = GetParam(), .net_decorations = {.checksum = true}}, {0, 1});
  ranks.on_all([&](int rank) {
    NetRank self(ranks.comm(rank));
    constexpr uint64_t kNumRounds = 30, kNumPuts = 400, kPutBytes = 900, kHalf = kDataBytes / 2;
    for (uint64_t round = 1; round <= kNumRounds; ++round) {
      const auto byte_of = [&](int who, uint64_t i) { return uint8_t(i * 7 + round * 31 + uint64_t(who)); };
      for (uint64_t i = 0; i < kNumPuts * kPutBytes; ++i) self.data()[i] = byte_of(rank, i);
      for (uint64_t i = 0; i < kNumPuts; ++i) {
        ASSERT_EQ(self.put(self.put_of(kHalf + i * kPutBytes, i * kPutBytes, kPutBytes, 2)), NetPost::kPosted);
      }
      ASSERT_TRUE(self.wait_signal(2, round * kNumPuts)) << self.net.error().to_string();
      for (uint64_t i = 0; i < kNumPuts * kPutBytes; ++i) ASSERT_EQ(self.data()[kHalf + i], byte_of(self.peer(), i));
      ASSERT_EQ(self.flush(), NetPost::kPosted);
      ASSERT_TRUE(self.comm.barrier().ok());
    }
    EXPECT_TRUE(self.net.error().ok()) << self.net.error().to_string();
  });
}

TEST(ChecksumChoice, RanksThatDisagreeAreToldSo) {
  const auto id = create_unique_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator::Options options{.timeout_ns = 10 * kSecond, .node_id = rank, .net = "mem"};
      options.net_decorations.checksum = rank == 0;
      const auto comm = Communicator::create(id.value(), rank, 2, options);
      ASSERT_FALSE(comm.ok());
      EXPECT_THAT(comm.status().message(),
                  HasSubstr(text("rank ", rank, " has network checksums ", rank == 0 ? "on" : "off")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace switchyard::testing
