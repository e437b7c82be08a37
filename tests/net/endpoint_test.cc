// What every network plugin promises, tried on each, with decorators and without: two ranks on two pretended nodes, and
// what they put where.
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/failpoint.hpp"
#include "net/net_rank.hpp"
#include "platform/host/memory.hpp"

namespace switchyard::testing {
namespace {

struct Net {
  const char* name;
  const char* net;
  NetDecorations decorations{};
};

// Decorators promise what plugins do. Late and in another order is no fault where a signal comes after its data.
const FaultPlan kLateAndMixed{.seed = 4, .delay = 0.05, .reorder = 0.3, .max_delay_ns = kMillisecond / 2};
const Net kNets[] = {{"mem", "mem"},
                     {"ofi", "ofi"},
                     {"ofi_net", "ofi:net"},
                     {"ofi_shm", "ofi:shm"},  // in any order, and addresses that are not IPv4's
                     {"checksum_mem", "mem", {.checksum = true}},
                     {"checksum_ofi", "ofi", {.checksum = true}},
                     {"late_mixed_ofi", "ofi", {.faults = kLateAndMixed}},
                     {"checksum_late_mixed_ofi", "ofi", {.faults = kLateAndMixed, .checksum = true}}};

class Endpoint : public ::testing::TestWithParam<Net> {
 protected:
  void on_both(const std::function<void(NetRank&)>& body, size_t num_bytes = kDataBytes) {
    ThreadRanks ranks(2, {.net = GetParam().net, .net_decorations = GetParam().decorations}, {0, 1});
    ranks.on_all([&](int rank) {
      NetRank self(ranks.comm(rank), num_bytes);
      body(self);
      // Nobody goes while the other still writes to it.
      const Status met = self.comm.barrier();
      EXPECT_TRUE(met.ok() || !self.net.usable(self.peer())) << met.to_string();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(All, Endpoint, ::testing::ValuesIn(kNets),
                         [](const auto& net) { return std::string(net.param.name); });

TEST_P(Endpoint, ASignalFollowsItsDataWhateverTheSize) {
  on_both([](NetRank& self) {
    const size_t half = kDataBytes / 2;  // mine to send; the other half is what I get
    uint64_t round = 0;
    for (const size_t num_bytes : {size_t{1}, size_t{7}, size_t{64}, size_t{65}, size_t{4096}, size_t{65537}, half}) {
      const auto byte_of = [&](int rank, size_t i) { return uint8_t(i * 13 + num_bytes + size_t(rank) * 101); };
      for (size_t i = 0; i < num_bytes; ++i) self.data()[i] = byte_of(self.comm.rank(), i);
      ASSERT_EQ(self.put(self.put_of(half, 0, num_bytes, 3)), NetPost::kPosted);
      ASSERT_TRUE(self.wait_signal(3, ++round));
      for (size_t i = 0; i < num_bytes; ++i) ASSERT_EQ(self.data()[half + i], byte_of(self.peer(), i)) << num_bytes;
      ASSERT_EQ(self.flush(), NetPost::kPosted);
      ASSERT_TRUE(self.comm.barrier().ok());
    }
  });
}

// Much is on its way when the signal is posted, which is small and could be there before it. Over several rails it takes
// the one or the other, by what small puts are before it.
TEST_P(Endpoint, ASignalFollowsAllEarlierPuts) {
  constexpr uint64_t kRounds = 12, kPuts = 16, kBytes = 512u << 10, kHalf = kPuts * kBytes, kSmall = 64;
  const auto body = [&](NetRank& self) {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      const uint64_t value = round % 4 == 0 ? 1 << 20 : 1;  // large ones travel as messages
      if (self.comm.rank() == 0) {
        std::memset(self.data(), int(round), kHalf);
        for (uint64_t i = 0; i < kPuts; ++i) {
          ASSERT_EQ(self.put(self.put_of(kHalf + i * kBytes, i * kBytes, kBytes)), NetPost::kPosted);
        }
        for (uint64_t i = 0; i < round % 3; ++i) {
          ASSERT_EQ(self.put(self.put_of(2 * kHalf + i * kSmall, i * kSmall, kSmall)), NetPost::kPosted);
        }
        ASSERT_EQ(self.put(self.put_of(0, 0, 0, int(round), value)), NetPost::kPosted);
        ASSERT_EQ(self.flush(), NetPost::kPosted);
      } else {
        ASSERT_TRUE(self.wait_signal(int(round), value));
        const uint8_t* begin = self.data() + kHalf;
        const uint8_t* end = begin + kHalf + round % 3 * kSmall;
        ASSERT_TRUE(std::all_of(begin, end, [&](uint8_t byte) { return byte == round; })) << "round " << round;
      }
      ASSERT_TRUE(self.comm.barrier().ok());
    }
  };
  on_both(body, 2 * kHalf + 2 * kSmall);
}

TEST_P(Endpoint, AChainArrivesLikeItsPutsOneByOne) {
  constexpr uint64_t kPuts = 2000, kBytes = 32, kHalf = kPuts * kBytes;
  const auto body = [&](NetRank& self) {
    for (uint64_t i = 0; i < kHalf; ++i) self.data()[i] = uint8_t(i / kBytes * 7 + i + uint64_t(self.comm.rank()));
    std::vector<NetPut> puts;
    for (uint64_t i = 0; i < kPuts; ++i) {
      // With a signal, also such as travel as messages; without; and signals alone.
      const uint64_t value = i % 5 == 0 ? 1 << 20 : 1;
      puts.push_back(self.put_of(kHalf + i * kBytes, i * kBytes, i % 7 == 3 ? 0 : kBytes, i % 3 == 0 ? 1 : -1, value));
    }
    uint64_t sum = 0;
    for (const NetPut& put : puts) sum += put.signal_value;
    size_t num_posted = 0;
    const auto post_some = [&] {
      const size_t size = std::min<size_t>(1 + num_posted % 40, puts.size() - num_posted);
      NetPost result = NetPost::kPosted;
      num_posted += self.net.put_chain({puts.data() + num_posted, size}, result);
      return result == NetPost::kPosted && num_posted < puts.size() ? NetPost::kBusy : result;
    };
    ASSERT_EQ(self.insist(post_some), NetPost::kPosted);
    ASSERT_EQ(num_posted, kPuts);
    ASSERT_TRUE(self.wait_signal(1, sum));
    for (uint64_t i = 0; i <= (kPuts - 1) / 3 * 3; ++i) {  // up to the last signal
      const bool bare = puts[i].num_bytes == 0;
      for (uint64_t k = i * kBytes; k < (i + 1) * kBytes; ++k) {
        ASSERT_EQ(self.data()[kHalf + k], bare ? 0 : uint8_t(i * 7 + k + uint64_t(self.peer()))) << "put " << i;
      }
    }
    ASSERT_EQ(self.signal(1), sum);
    ASSERT_EQ(self.flush(), NetPost::kPosted);
  };
  on_both(body, 2 * kHalf);
}

TEST_P(Endpoint, AChainEndsWithTheFirstThatIsRefused) {
  on_both([](NetRank& self) {
    std::vector<NetPut> puts;
    for (uint64_t i = 0; i < 5; ++i) puts.push_back(self.put_of(4096 + i * 64, 0, 64, 2));  // a place each, for checksums
    puts[3].to_region = 77;
    size_t num_posted = 0;
    NetPost result = NetPost::kBusy;
    const auto post = [&] {
      num_posted += self.net.put_chain({puts.data() + num_posted, puts.size() - num_posted}, result);
      return result;
    };
    EXPECT_EQ(self.insist(post), NetPost::kFailed);
    EXPECT_EQ(num_posted, 3u);
    EXPECT_TRUE(self.wait_signal(2, 3)) << "those before it are not held back";
    ASSERT_TRUE(self.comm.barrier().ok());
    EXPECT_EQ(self.signal(2), 3u);
  });
}

TEST_P(Endpoint, ACounterGrowsWhenAllOfTheSourceMayBeReused) {
  constexpr uint64_t kRounds = 4, kHalf = 8u << 20;
  const auto body = [&](NetRank& self) {
    uint64_t counter = 0;
    const auto count = [&] { return std::atomic_ref(counter).load(std::memory_order_acquire); };
    for (uint64_t round = 1; round <= kRounds; ++round) {
      if (self.comm.rank() == 0) {
        std::memset(self.data(), int(round), kHalf);
        NetPut put = self.put_of(kHalf, 0, kHalf, 0);
        put.counter = &counter;
        ASSERT_EQ(self.put(put), NetPost::kPosted);
        const auto counted = [&] { return self.net.progress(), count() == round; };
        ASSERT_EQ(wait_until(counted, Deadline::after_ns(30 * kSecond)), WaitResult::kReady);
        std::memset(self.data(), 0xee, kHalf);
      } else {
        ASSERT_TRUE(self.wait_signal(0, round));
        const uint8_t* begin = self.data() + kHalf;
        ASSERT_TRUE(std::all_of(begin, begin + kHalf, [&](uint8_t byte) { return byte == round; }));
      }
      ASSERT_TRUE(self.comm.barrier().ok());
    }
  };
  on_both(body, 2 * kHalf);
}

TEST_P(Endpoint, SignalsOfAnyValueAddUp) {
  on_both([](NetRank& self) {
    uint64_t sum = 0, place = 4096;
    for (const uint64_t value : {uint64_t{1}, uint64_t{65535}, uint64_t{65536}, uint64_t{1} << 40, uint64_t{3}}) {
      sum += value;
      ASSERT_EQ(self.put(self.put_of(99, 0, 0, 5, value)), NetPost::kPosted);         // bare, wherever it says it goes
      ASSERT_EQ(self.put(self.put_of(place += 128, 0, 100, 6, value)), NetPost::kPosted);  // behind data
    }
    EXPECT_TRUE(self.wait_signal(5, sum));
    EXPECT_TRUE(self.wait_signal(6, sum));
    EXPECT_EQ(self.signal(5), sum);
    EXPECT_EQ(self.signal(4), 0u);
  });
}

TEST_P(Endpoint, ValuesTravelWithTheCall) {
  on_both([](NetRank& self) {
    std::memset(self.data(), 0xee, 256);
    ASSERT_TRUE(self.comm.barrier().ok());
    for (uint32_t num_bytes = 1; num_bytes <= 8; ++num_bytes) {
      uint64_t value = 0x0807060504030201;
      const NetPut put = self.put_of(16 * num_bytes, 0, num_bytes, 1);
      ASSERT_EQ(self.insist([&] { return self.net.put_value(put, value); }), NetPost::kPosted);
      value = 0;  // the call has taken it
    }
    ASSERT_TRUE(self.wait_signal(1, 8));
    for (size_t num_bytes = 1; num_bytes <= 8; ++num_bytes) {
      for (size_t i = 0; i < 16; ++i) {
        ASSERT_EQ(self.data()[16 * num_bytes + i], i < num_bytes ? i + 1 : 0xee) << num_bytes;
      }
    }
  });
}

// Far more than can be in flight, to a rank that does not help: its process's progress thread does.
TEST_P(Endpoint, TakesMoreThanItHasRoomFor) {
  on_both([](NetRank& self) {
    constexpr uint64_t kNumPuts = 20'000, kBytes = 32;
    if (self.comm.rank() == 0) {
      for (uint64_t i = 0; i < kNumPuts; ++i) {
        const uint64_t place = i % 1024 * kBytes;
        ASSERT_EQ(self.put(self.put_of(place, place, kBytes, i % 2 ? 2 : -1)), NetPost::kPosted);
      }
      ASSERT_EQ(self.flush(), NetPost::kPosted);
    } else {
      EXPECT_EQ(wait_until([&] { return self.signal(2) == kNumPuts / 2; }, Deadline::after_ns(60 * kSecond)),
                WaitResult::kReady)
          << self.signal(2);
    }
  });
}

// Signals whose values do not fit travel as messages, of which a rank can take only so many until it looks: each keeps
// its place among the writes.
TEST_P(Endpoint, MessagesKeepTheirPlaceAmongWritesHoweverManyWait) {
  on_both([](NetRank& self) {
    constexpr uint64_t kNumPuts = 6'000, kBig = uint64_t{1} << 40;
    if (self.comm.rank() == 0) {
      ASSERT_TRUE(set_failpoint("net.write_arrived", "delay:300@1").ok());
      for (uint64_t i = 0; i < kNumPuts; ++i) {
        const uint64_t value = i % 3 != 0 ? kBig : 1;
        ASSERT_EQ(self.put(self.put_of(i * 64, 0, i % 2 * 64, 2, value)), NetPost::kPosted);
      }
      ASSERT_EQ(self.flush(), NetPost::kPosted);
      clear_failpoints();
    } else {
      const uint64_t sum = kNumPuts / 3 + kNumPuts / 3 * 2 * kBig;
      EXPECT_TRUE(self.wait_signal(2, sum)) << self.net.error().to_string();
      EXPECT_EQ(self.signal(2), sum);
    }
    EXPECT_TRUE(self.net.error().ok()) << self.net.error().to_string();
  });
}

TEST_P(Endpoint, RefusesPlacesThatDoNotExistAndWorksOn) {
  on_both([](NetRank& self) {
    const NetPut good = self.put_of(4096, 0, 64, 0);  // not where the peer reads
    const auto refused = [&](auto change) {
      NetPut put = good;
      change(put);
      return self.net.put(put) == NetPost::kFailed;
    };
    EXPECT_TRUE(refused([](NetPut& put) { put.peer = 2; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.peer = -1; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.to_region = 77; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.from_region = 77; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.to_offset = kDataBytes - 63; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.to_offset = ~uint64_t{0} - 8; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.from_offset = kDataBytes; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.signal_region = 77; }));
    EXPECT_TRUE(refused([](NetPut& put) { put.signal_offset = kNumSignals * 8; }));
    // Large enough to be cut in pieces, of which the first would fit.
    std::memset(self.data(), 0xab, kDataBytes / 2);
    EXPECT_TRUE(refused([](NetPut& put) {
      put.num_bytes = kDataBytes / 2;
      put.to_offset = kDataBytes / 2 + 1;
    }));
    EXPECT_TRUE(self.net.error().ok()) << self.net.error().to_string();
    ASSERT_TRUE(self.comm.barrier().ok());
    EXPECT_EQ(self.signal(0), 0u) << "nothing of a refused put arrives";
    EXPECT_EQ(std::count(self.data() + kDataBytes / 2, self.data() + kDataBytes, 0), int64_t(kDataBytes / 2));
    ASSERT_TRUE(self.comm.barrier().ok());
    EXPECT_EQ(self.put(good), NetPost::kPosted);
    EXPECT_TRUE(self.wait_signal(0, 1));
  });
}

TEST_P(Endpoint, AbortEndsItAtOnce) {
  on_both([](NetRank& self) {
    self.net.abort();
    EXPECT_EQ(self.net.put(self.put_of(0, 0, 64)), NetPost::kFailed);
    EXPECT_EQ(self.net.flush(), NetPost::kFailed);
    EXPECT_NE(self.net.error().message().find("aborted"), std::string::npos);
  });
}

// Who has had enough need not wait for those who still write to it: one write after the other is under way when it goes.
class EndpointGone : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, EndpointGone, ::testing::Values("ofi", "ofi:net"),
                         [](const auto& net) { return std::string(net.param) == "ofi" ? "ofi" : "ofi_net"; });

// Of memory that somebody is writing: a look that is no race, since the kernel takes it.
uint8_t byte_at(uint8_t* place) {
  uint8_t byte = 0;
  const iovec here{&byte, 1}, there{place, 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 ? byte : 0;
}

TEST_P(EndpointGone, AnEndpointMayGoInTheMiddleOfAWriteToIt) {
  constexpr size_t kBytes = 64u << 20;
  ThreadRanks ranks(2, {.net = GetParam()}, {0, 1});
  std::atomic<bool> has_gone = false;
  ranks.on_all([&](int rank) {
    NetRank self(ranks.comm(rank), kBytes);
    std::memset(self.data(), rank == 0 ? 1 : 0, kBytes);
    ASSERT_TRUE(self.comm.barrier().ok());
    const Deadline deadline = Deadline::after_ns(30 * kSecond);
    if (rank == 1) {
      const auto has_begun = [&] { return self.net.progress(), byte_at(self.data()) == 1; };
      EXPECT_EQ(wait_until(has_begun, deadline), WaitResult::kReady);
      ranks.leave(rank);
      has_gone = true;
      return;
    }
    const auto write_on = [&] {
      self.net.put(self.put_of(0, 0, kBytes));  // as far as there is room
      self.net.progress();
      return has_gone.load();
    };
    EXPECT_EQ(wait_until(write_on, deadline), WaitResult::kReady);
    EXPECT_NE(self.flush(), NetPost::kBusy) << "nobody waits for what was on its way to it";
  });
}

// One rank is told that a window can be used, and another that it can't: nothing is written to what that one takes back.
TEST_P(EndpointGone, AWindowThatFailsAtOneRankIsNotWrittenToThere) {
  constexpr size_t kBytes = 4096;
  ThreadRanks ranks(2, {.net = GetParam()}, {0, 1});
  ranks.on_all([&](int rank) {
    set_failpoint_rank(rank);
    NetRank self(ranks.comm(rank));
    ASSERT_TRUE(self.comm.barrier().ok());  // both have their windows
    EXPECT_TRUE(rank != 0 || set_failpoint("window.after_registration", "error#0").ok());
    auto* const memory = static_cast<uint8_t*>(self.comm.runtime().allocate(kBytes).value());
    std::memset(memory, 0, kBytes);
    std::memset(self.data(), 1, kBytes);
    const auto window = self.comm.register_window(memory, kBytes);
    EXPECT_EQ(window.ok(), rank == 1);
    ASSERT_TRUE(self.comm.barrier().ok());  // until it is taken back it may well be written to
    if (rank == 1 && window.ok()) {
      NetPut put = self.put_of(0, 0, kBytes);
      put.to_region = window.value()->id();
      (void)self.put(put);  // it may be refused, now or later
      (void)self.flush();
    }
    ASSERT_TRUE(self.comm.exchange(uint32_t{0}).ok());
    if (rank == 0) {
      for (int i = 0; i < 100; ++i) self.net.progress();
      EXPECT_EQ(std::count(memory, memory + kBytes, 0), int64_t(kBytes));
    }
    ASSERT_TRUE(self.comm.exchange(uint32_t{0}).ok());
    EXPECT_TRUE(self.comm.free_after_network(memory).ok());
  });
  clear_failpoints();
}

TEST_P(EndpointGone, MemoryThatAPeerMayBeWritingToGoesWithTheNetwork) {
  constexpr size_t kBytes = 1u << 20;
  const auto allocated = [] { return DeviceMemory::instance().num_bytes_allocated(); };
  const size_t before = allocated();
  ThreadRanks ranks(2, {.net = GetParam()}, {0, 1});
  const size_t with_networks = allocated();
  ranks.on_all([&](int rank) {
    Communicator& comm = ranks.comm(rank);
    void* const memory = comm.runtime().allocate(kBytes).value();
    Window* const window = comm.register_window(memory, kBytes).value();
    EXPECT_TRUE(comm.barrier().ok());
    EXPECT_TRUE(comm.deregister_window(window).ok());
    EXPECT_TRUE(comm.free_after_network(memory).ok());
  });
  EXPECT_GE(allocated(), with_networks + 2 * kBytes);
  ranks.on_all([&](int rank) { ranks.leave(rank); });
  EXPECT_EQ(allocated(), before);
}

// Two ranks of two nodes that can't come together, each for this reason.
void expect_no_network(const std::array<std::string, 2>& nets, const std::array<std::string, 2>& reasons) {
  const auto id = create_unique_id();
  ASSERT_TRUE(id.ok());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const Communicator::Options options{.timeout_ns = 10 * kSecond, .node_id = rank, .net = nets[size_t(rank)]};
      const auto comm = Communicator::create(id.value(), rank, 2, options);
      ASSERT_FALSE(comm.ok());
      EXPECT_NE(comm.status().message().find(reasons[size_t(rank)]), std::string::npos) << comm.status().to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NetChoice, RefusesByNameWhatDoesNotExistOrIsUnfit) {
  const std::pair<const char*, const char*> reasons[] = {{"carrier-pigeon", "carrier-pigeon"},
                                                         {"mem:fast", "'mem' takes no more than its name"},
                                                         {"ofi:", "names no provider"},
                                                         {"ofi:carrier-pigeon", "'carrier-pigeon'"},
                                                         {"ofi:ofi_rxm", "'ofi_rxm' is no provider"},
                                                         {"ofi:^tcp", "'^tcp' is no provider"},
                                                         {"ofi:sockets", "'sockets' loses signals"},
                                                         {"ofi:udp;ofi_rxd", "'udp;ofi_rxd' loses signals"}};
  for (const auto& [net, reason] : reasons) expect_no_network({net, net}, {reason, reason});
}

TEST(NetChoice, RanksThatChoseDifferentlyAreToldSo) {
  expect_no_network({"mem", "ofi"}, {"rank 0 has network plugin mem and rank 1 has ofi",
                                     "rank 1 has network plugin ofi and rank 0 has mem"});
}

}  // namespace
}  // namespace switchyard::testing
