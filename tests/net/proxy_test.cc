// The proxy's rings: what producers post reaches the network whole, once and in order, whatever its shape; and what
// happens when the ring is full, the network is busy, lost, or does not take an operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "net/proxy.hpp"
#include "recorder.hpp"
#include "switchyard/device/net.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRanks = 4;
constexpr uint64_t kSecondNs = 1'000'000'000;

class ProxyTest : public ::testing::Test {
 protected:
  ProxyTest() {
    auto made = Proxy::create(host_runtime(), network_, kNumRanks);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    proxy_ = std::move(made).value();
    static constexpr NetCalls kCalls = {nullptr, nullptr, nullptr,
                                        [](void* target) { return static_cast<Proxy*>(target)->progress(); },
                                        [](void*, int) { return true; }};
    path_ = {proxy_.get(), &kCalls, proxy_->rings(), Proxy::kNumBulkRings, 30 * kSecondNs, &abort_};
  }

  std::vector<Recorder::Posted> drained() {
    Delivery delivery;
    while (!proxy_->drain(delivery)) std::this_thread::yield();
    return network_.posted();
  }
  static NetPut put_of(int peer, uint64_t num_bytes) { return {peer, 7, 100, 9, 200, num_bytes, 0, 0, 0, nullptr}; }

  const HostPlatform p_{};
  uint32_t abort_ = 0;
  Recorder network_;
  std::unique_ptr<Proxy> proxy_;
  NetPath path_;
};

void expect_equal(const NetPut& got, const NetPut& want) {
  EXPECT_EQ(got.peer, want.peer);
  EXPECT_EQ(got.num_bytes, want.num_bytes);
  EXPECT_EQ(got.to_region, want.to_region);
  EXPECT_EQ(got.to_offset, want.to_offset);
  EXPECT_EQ(got.from_region, want.from_region);
  EXPECT_EQ(got.from_offset, want.from_offset);
  EXPECT_EQ(got.signal_value, want.signal_value);
  if (want.signal_value != 0) {
    EXPECT_EQ(got.signal_region, want.signal_region);
    EXPECT_EQ(got.signal_offset, want.signal_offset);
  }
  EXPECT_EQ(got.counter, want.counter);
}

TEST_F(ProxyTest, EveryShapeOfAPutArrivesAsItWasPosted) {
  uint64_t counter = 0;
  std::vector<NetPut> puts;
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{16383}, uint64_t{16384}, ~uint64_t{0}}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{65535} * 8, uint64_t{65536} * 8, uint64_t{1} << 50}) {
      for (uint64_t* wanted : {static_cast<uint64_t*>(nullptr), &counter}) {
        puts.push_back({3, 65535, ~uint64_t{0} - 5000, 65534, uint64_t{1} << 60, 4096, 65533, offset, value, wanted});
      }
    }
  }
  for (const NetPut& put : puts) ASSERT_TRUE(net_put(p_, path_, 1, put));
  const auto posted = drained();
  ASSERT_EQ(posted.size(), puts.size());
  for (size_t i = 0; i < puts.size(); ++i) expect_equal(posted[i].put, puts[i]);
}

TEST_F(ProxyTest, AValueTravelsInItsDescriptor) {
  NetPut put = put_of(2, 8);
  put.from_region = 0;
  put.signal_value = 3;
  put.signal_region = 5;
  put.signal_offset = 64;
  ASSERT_TRUE(net_put_value(p_, path_, 0, put, 0xfeed'beef'1234'5678));
  const auto posted = drained();
  ASSERT_EQ(posted.size(), 1u);
  EXPECT_TRUE(posted[0].is_value);
  EXPECT_EQ(posted[0].value, 0xfeed'beef'1234'5678);
  EXPECT_EQ(posted[0].put.signal_value, 3u);
}

TEST_F(ProxyTest, WhatCannotBeDescribedIsRefused) {
  NetPut put = put_of(0, 8);
  put.to_region = 65536;
  EXPECT_FALSE(net_put(p_, path_, 0, put));
  put = put_of(32768, 8);
  EXPECT_FALSE(net_put(p_, path_, 0, put));
  EXPECT_TRUE(net_put(p_, path_, 0, put_of(0, 8))) << "the ring works on";
  EXPECT_EQ(drained().size(), 1u);
}

TEST_F(ProxyTest, ManyProducersKeepTheirOrderOverManyLaps) {
  constexpr int kProducers = 3;
  constexpr uint64_t kPuts = 20'000;  // some twenty laps each
  std::vector<std::thread> producers;
  for (int producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&, producer] {
      const HostPlatform p;  // a thread's own
      for (uint64_t i = 0; i < kPuts; ++i) {
        NetPut put = put_of(producer, 8);
        put.to_offset = i;
        put.from_offset = i * 3;
        if (i % 3 == 0) put.signal_value = 100'000 + i;  // takes two slots
        ASSERT_TRUE(net_put(p, path_, 0, put));
      }
    });
  }
  for (std::thread& producer : producers) producer.join();
  std::vector<uint64_t> next(kProducers, 0);
  for (const Recorder::Posted& posted : drained()) {
    const uint64_t i = next[size_t(posted.put.peer)]++;
    ASSERT_EQ(posted.put.to_offset, i);
    ASSERT_EQ(posted.put.from_offset, i * 3);
    ASSERT_EQ(posted.put.signal_value, i % 3 == 0 ? 100'000 + i : 0);
  }
  for (const uint64_t count : next) EXPECT_EQ(count, kPuts);
}

TEST_F(ProxyTest, BulkGoesInPiecesWithinTheCreditAndItsSignalWithTheLast) {
  NetPut put = put_of(1, 3 * Proxy::kPieceBytes + 5);
  put.signal_value = 1;
  network_.bytes_in_flight_ = Proxy::kCreditBytes;
  ASSERT_TRUE(net_put(p_, path_, 0, put));
  proxy_->progress();
  EXPECT_TRUE(network_.posted().empty()) << "the credit is used up";
  ASSERT_TRUE(net_signal(p_, path_, {2, 0, 0, 0, 0, 0, 1, 0, 1, nullptr}));
  while (network_.posted().empty()) proxy_->progress();
  EXPECT_EQ(network_.posted()[0].put.peer, 2) << "the reserved ring does not wait for credit";
  network_.bytes_in_flight_ = 0;
  const auto posted = drained();
  ASSERT_GE(posted.size(), 5u);
  uint64_t offset = 0;
  for (size_t i = 1; i < posted.size(); ++i) {
    EXPECT_EQ(posted[i].put.to_offset, 100 + offset);
    EXPECT_EQ(posted[i].put.from_offset, 200 + offset);
    const bool last = i + 1 == posted.size();
    EXPECT_EQ(posted[i].put.signal_value, last ? 1u : 0u);
    // Half pieces for a while after the signal above.
    const uint64_t num_bytes = posted[i].put.num_bytes;
    EXPECT_TRUE(last || num_bytes == Proxy::kPieceBytes || num_bytes == Proxy::kPieceBytes / 2) << num_bytes;
    offset += posted[i].put.num_bytes;
  }
  EXPECT_EQ(offset, put.num_bytes);
}

TEST_F(ProxyTest, PiecesAreSmallerWhileSignalsCome) {
  const auto largest_piece = [&] {
    const size_t num_before = drained().size();
    EXPECT_TRUE(net_put(p_, path_, 0, put_of(1, 2 * Proxy::kPieceBytes)));
    const auto posted = drained();
    uint64_t largest = 0;
    for (size_t i = num_before; i < posted.size(); ++i) largest = std::max(largest, posted[i].put.num_bytes);
    return largest;
  };
  EXPECT_EQ(largest_piece(), Proxy::kPieceBytes);
  // The one or the other may be too late, on a machine that does something else in between.
  bool were_smaller = false;
  for (int i = 0; i < 100 && !were_smaller; ++i) {
    ASSERT_TRUE(net_signal(p_, path_, {2, 0, 0, 0, 0, 0, 1, 0, 1, nullptr}));
    were_smaller = largest_piece() == Proxy::kPieceBytes / 2;
  }
  EXPECT_TRUE(were_smaller);
  std::this_thread::sleep_for(std::chrono::nanoseconds(2 * Proxy::kSignalsNs));
  EXPECT_EQ(largest_piece(), Proxy::kPieceBytes) << "no more signals came";
}

// While the network has no room puts gather in the ring; then they are posted together, as far as they can be.
class ProxyChainTest : public ProxyTest {
 protected:
  std::vector<size_t> chains_of(const std::vector<NetPut>& puts) {
    network_.forget_all();
    network_.busy_ = true;
    for (const NetPut& put : puts) EXPECT_TRUE(net_put(p_, path_, 0, put));
    network_.busy_ = false;
    const auto posted = drained();
    EXPECT_EQ(posted.size(), puts.size());
    for (size_t i = 0; i < std::min(posted.size(), puts.size()); ++i) expect_equal(posted[i].put, puts[i]);
    return network_.chains();
  }
  void expect_chains(const std::vector<NetPut>& puts, const std::vector<size_t>& sizes) {
    std::vector<size_t> seen;
    // A worker that looked at the ring before the last put was there may have been held up in the middle.
    for (int i = 0; i < 10 && seen != sizes; ++i) seen = chains_of(puts);
    EXPECT_EQ(seen, sizes);
  }
};

TEST_F(ProxyChainTest, PutsToOnePeerGoTogether) {
  expect_chains({put_of(1, 8), put_of(1, 64), put_of(2, 8), put_of(1, 8), put_of(1, 8), put_of(1, 8)}, {2, 1, 3});
}

TEST_F(ProxyChainTest, APutOfTwoDescriptorsBeginsAChain) {
  uint64_t counter = 0;
  NetPut counted = put_of(1, 8);
  counted.counter = &counter;
  expect_chains({put_of(1, 8), counted, put_of(1, 8)}, {1, 2});
}

TEST_F(ProxyChainTest, ChainsKeepToTheCredit) {
  expect_chains({put_of(1, Proxy::kPieceBytes / 2), put_of(1, Proxy::kPieceBytes / 2), put_of(1, 8)}, {2, 1});
  network_.bytes_in_flight_ = Proxy::kCreditBytes - 64;
  expect_chains({put_of(1, 48), put_of(1, 48), put_of(1, 8), put_of(1, 8)}, {1, 3});
}

TEST_F(ProxyChainTest, TheRestOfAChainFollowsWhenThereIsRoom) {
  std::vector<NetPut> puts;
  for (uint64_t i = 0; i < 100; ++i) {
    puts.push_back(put_of(1, 8));
    puts.back().to_offset = i;
  }
  network_.busy_ = true;
  for (const NetPut& put : puts) ASSERT_TRUE(net_put(p_, path_, 0, put));
  network_.busy_after_ = 5;
  network_.busy_ = false;
  while (!network_.busy_) proxy_->progress();
  EXPECT_EQ(network_.posted().size(), 5u);
  network_.busy_after_ = -1;
  network_.busy_ = false;
  const auto posted = drained();
  ASSERT_EQ(posted.size(), puts.size());
  for (size_t i = 0; i < puts.size(); ++i) expect_equal(posted[i].put, puts[i]);
  const std::vector<size_t> chains = network_.chains();
  EXPECT_GE(std::count(chains.begin(), chains.end(), 32u), 2) << "a turn each";
}

TEST_F(ProxyChainTest, AChainEndsWithTheFirstThatCannotBe) {
  NetPut impossible = put_of(1, 8);
  impossible.from_region = 11;
  network_.refused_region_ = 11;
  network_.busy_ = true;
  for (const NetPut& put : {put_of(1, 8), put_of(1, 8), impossible, put_of(1, 8)})
    ASSERT_TRUE(net_put(p_, path_, 0, put));
  network_.busy_ = false;
  EXPECT_EQ(drained().size(), 2u);
  EXPECT_FALSE(net_put(p_, path_, 0, put_of(1, 8))) << "its ring has failed";
}

TEST_F(ProxyTest, ASignalWaitsForTheDataOfItsContextOnly) {
  network_.busy_ = true;
  ASSERT_TRUE(net_put(p_, path_, 0, put_of(1, 8)));
  NetPut signal{1, 0, 0, 0, 0, 0, 3, 8, 1, nullptr};
  ASSERT_TRUE(net_put(p_, path_, 0, signal));  // behind the data
  signal.signal_offset = 16;
  ASSERT_TRUE(net_put(p_, path_, 1, signal));  // of a context that has none
  EXPECT_TRUE(path_.ring(1).is_drained(p_)) << "it is in the reserved ring";
  network_.busy_ = false;
  std::vector<uint64_t> order;
  for (const Recorder::Posted& posted : drained()) order.push_back(posted.put.signal_value == 0 ? 0 : posted.put.signal_offset);
  ASSERT_EQ(order.size(), 3u);
  EXPECT_LT(std::find(order.begin(), order.end(), 0) - order.begin(), std::find(order.begin(), order.end(), 8) - order.begin());
}

TEST_F(ProxyTest, AFullRingMakesProducersWaitAndEndsByTheirTimeLimit) {
  path_.timeout_ns = kSecondNs / 5;
  network_.busy_ = true;
  uint64_t num_posted = 0;
  while (net_put(p_, path_, 0, put_of(1, 8))) ASSERT_LT(++num_posted, 5000u);
  EXPECT_GE(num_posted, 1024u);
  EXPECT_FALSE(net_put(p_, path_, 0, put_of(1, 8))) << "a ring with a hole is over";
  EXPECT_TRUE(net_put(p_, path_, 1, put_of(1, 8))) << "others are not";
  network_.busy_ = false;
}

TEST_F(ProxyTest, FlushWaitsForTheNetwork) {
  network_.flushed_ = false;
  ASSERT_TRUE(net_put(p_, path_, 0, put_of(1, 8)));
  path_.timeout_ns = kSecondNs / 5;
  EXPECT_FALSE(net_flush(p_, path_, 0)) << "ends by the time limit";
  path_.timeout_ns = 30 * kSecondNs;
  network_.flushed_ = true;
  EXPECT_TRUE(net_flush(p_, path_, 0));
}

TEST_F(ProxyTest, WhatGoesToALostPeerIsDroppedAndOthersGoOn) {
  network_.lost_peer_ = 1;
  ASSERT_TRUE(net_put(p_, path_, 0, put_of(1, 8)));
  ASSERT_TRUE(net_put(p_, path_, 0, put_of(2, 8)));
  const auto posted = drained();
  ASSERT_EQ(posted.size(), 1u);
  EXPECT_EQ(posted[0].put.peer, 2);
}

TEST_F(ProxyTest, AnOperationThatCannotBeFailsItsRing) {
  network_.refused_region_ = 9;
  ASSERT_TRUE(net_put(p_, path_, 0, put_of(1, 8)));
  drained();
  EXPECT_FALSE(net_put(p_, path_, 0, put_of(1, 8)));
  EXPECT_FALSE(net_flush(p_, path_, 0));
  NetPut peerless = put_of(kNumRanks, 8);
  ASSERT_TRUE(net_put(p_, path_, 1, peerless));
  drained();
  EXPECT_FALSE(net_put(p_, path_, 1, put_of(1, 8))) << "a rank that does not exist";
  EXPECT_LT(network_.last_asked_, kNumRanks);
}

}  // namespace
}  // namespace switchyard::testing
