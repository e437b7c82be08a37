// Who is not of the job and reaches a port of its libfabric: a rank of another job, say, whose peer had that port before.
// Nothing that it sends counts, nothing that it writes or reads is there, and the job goes on.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/env.hpp"
#include "net/net_rank.hpp"
#include "net/ofi_wire.hpp"
#include "net/sockets.hpp"
#include "support/port_scanner.hpp"

namespace switchyard::testing {
namespace {

// Speaks what the ranks' libfabric speaks, and knows of them only a port.
class Stranger {
 public:
  explicit Stranger(uint16_t port) : fabric_(OfiFabric::open("ofi", choose_interfaces(true).value()[0]).value()) {
    OfiFabric::Name name{};
    const sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    std::memcpy(name.data(), &address, sizeof address);
    peer_ = fabric_.add_peer(name).value();
  }

  // Each has an end, whatever it is. True: it went well, as far as this side knows.
  bool send(const void* message, size_t num_bytes) {
    return finish([&] { return fi_send(fabric_.endpoint.get(), message, num_bytes, nullptr, peer_, &context_); });
  }
  bool send_with_data(const void* message, size_t num_bytes, const CompletionData& data) {
    return finish([&] {
      return fi_senddata(fabric_.endpoint.get(), message, num_bytes, nullptr, data.pack(), peer_, &context_);
    });
  }
  bool write(uint64_t key, const CompletionData& data) {
    return finish([&] {
      return fi_writedata(fabric_.endpoint.get(), &word_, sizeof word_, nullptr, data.pack(), peer_, 0, key, &context_);
    });
  }
  bool read(uint64_t key) {
    return finish([&] { return fi_read(fabric_.endpoint.get(), &word_, sizeof word_, nullptr, peer_, 0, key, &context_); });
  }
  uint64_t word() const { return word_; }

 private:
  template <class Post>
  bool finish(Post post) {
    bool is_posted = false, is_done = false, went_well = false;
    const auto step = [&] {
      if (!is_posted) {
        const auto error = post();
        is_posted = error == 0;
        if (error != 0 && error != -FI_EAGAIN) is_done = true;
      }
      fi_cq_data_entry entry{};
      const auto count = fi_cq_read(fabric_.completions.get(), &entry, 1);
      fi_cq_err_entry failure{};
      if (count == -FI_EAVAIL) fi_cq_readerr(fabric_.completions.get(), &failure, 0);
      is_done |= count == 1 || count == -FI_EAVAIL;
      went_well = count == 1;
      return is_done;
    };
    EXPECT_EQ(wait_until(step, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
    return went_well;
  }

  OfiFabric fabric_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  fi_context2 context_{};
  uint64_t word_ = 0x0123456789abcdef;
};

// What strangers do to both ranks of a job, given a port of it; then the ranks exchange data.
void disturb(const std::function<void(uint16_t)>& deed) {
  ThreadRanks ranks(2, {.net = "ofi"}, {0, 1});
  PartWithPorts part(ranks);
  ASSERT_EQ(part.ports.size(), 2 * std::max<size_t>(1, env().interfaces.size()));
  ranks.on_all([&](int rank) {
    NetRank self(*part.comms[size_t(rank)]);
    std::memset(self.data(), 1 + rank, kDataBytes);
    ASSERT_TRUE(self.comm.barrier().ok());
    if (rank == 0) {
      for (const uint16_t port : part.ports) deed(port);
    }
    ASSERT_TRUE(self.comm.barrier().ok());
    for (size_t i = 0; i < kDataBytes; ++i) ASSERT_EQ(self.data()[i], 1 + rank) << "a stranger wrote at " << i;
    for (size_t i = 0; i < kNumSignals; ++i) ASSERT_EQ(self.signal(int(i)), 0u) << "a stranger signalled";
    ASSERT_TRUE(self.comm.barrier().ok());
    // Signals of both kinds: with a write, and as messages.
    ASSERT_EQ(self.put(self.put_of(kDataBytes / 2, 0, kDataBytes / 2, 2)), NetPost::kPosted);
    ASSERT_EQ(self.put(self.put_of(0, 0, 0, 3, 1 << 20)), NetPost::kPosted);
    ASSERT_TRUE(self.wait_signal(3, 1 << 20)) << self.net.error().to_string();
    EXPECT_EQ(self.signal(2), 1u);
    for (size_t i = kDataBytes / 2; i < kDataBytes; ++i) ASSERT_EQ(self.data()[i], 2 - rank);
    ASSERT_EQ(self.flush(), NetPost::kPosted);
    EXPECT_TRUE(self.net.error().ok()) << self.net.error().to_string();
    ASSERT_TRUE(self.comm.barrier().ok());
  });
}

constexpr int kNumReceives = 256;  // of an endpoint
constexpr int kMany = 2 * kNumReceives;

TEST(Stranger, SignalsThatItSendsAreNone) {
  disturb([](uint16_t port) {
    Stranger stranger(port);
    for (int i = 0; i < kMany; ++i) {
      const SignalMessage message{uint32_t(i % 2), uint32_t(i / 2), 1 + uint32_t(i % 4), 0, 8, 5};
      ASSERT_TRUE(stranger.send(&message, sizeof message));
    }
  });
}

TEST(Stranger, AMessageThatBringsDataIsNoWrite) {
  disturb([](uint16_t port) {
    Stranger stranger(port);
    const SignalMessage message{};
    for (int i = 0; i < kMany; ++i) {
      const CompletionData data{uint32_t(i % 2), uint32_t(i / 2), 1 + uint32_t(i), 7};
      ASSERT_TRUE(stranger.send_with_data(&message, sizeof message, data));
    }
  });
}

TEST(Stranger, MessagesOfAnyLengthDoNoHarm) {
  disturb([](uint16_t port) {
    Stranger stranger(port);
    const std::vector<char> message(70000, 'x');
    for (const size_t num_bytes : {size_t{0}, size_t{1}, size_t{31}}) {
      for (int i = 0; i < kMany; ++i) ASSERT_TRUE(stranger.send(message.data(), num_bytes));
    }
    // One that is too long ends its connection, and the receive that it came into.
    for (int i = 0; i < kNumReceives + 10; ++i) {
      Stranger another(port);
      another.send(message.data(), i % 2 == 0 ? 33 : message.size());
    }
  });
}

TEST(Stranger, MemoryIsNotFoundByTryingSmallNumbers) {
  disturb([](uint16_t port) {
    Stranger stranger(port);
    for (uint64_t key = 0; key < 64; ++key) {
      stranger.write(key, {0, 0, kNoWord, 0});  // where it ends is seen in the memory
      EXPECT_FALSE(stranger.read(key)) << key;
    }
    EXPECT_EQ(stranger.word(), 0x0123456789abcdef);
  });
}

// Of the coordinator and of libfabric, from the moment that they are there.
TEST(Stranger, AHundredOfAHundredJobsFormAndWorkWhileNmapScansAllTheirPorts) {
  if (!PortScanner::installed()) GTEST_SKIP() << "nmap is not installed (scripts/setup.sh installs it)";
  const PortScanner scanner(listening_ports);
  for (int i = 0; i < 100; ++i) {
    ThreadRanks ranks(2, {.net = "ofi", .gin = i % 2 == 0 ? "direct" : "proxy"}, {0, 1});
    const uint64_t last_before = scanner.num_begun();
    ranks.on_all([&](int rank) {
      NetRank self(ranks.comm(rank));
      std::memset(self.data(), 1 + rank, kDataBytes);
      ASSERT_TRUE(self.comm.barrier().ok());
      // Until a scan of this job's ports has come to its end.
      for (uint64_t round = 1;; ++round) {
        ASSERT_EQ(self.put(self.put_of(kDataBytes / 2, 0, kDataBytes / 2, 2)), NetPost::kPosted);
        ASSERT_TRUE(self.wait_signal(2, round)) << "job " << i << ": " << self.net.error().to_string();
        for (size_t k = kDataBytes / 2; k < kDataBytes; ++k) ASSERT_EQ(self.data()[k], 2 - rank);
        const auto is_scanned = self.comm.exchange(uint32_t(scanner.num_ended() > last_before));
        ASSERT_TRUE(is_scanned.ok()) << is_scanned.status().to_string();
        if (is_scanned.value()[0] != 0) break;
      }
      ASSERT_EQ(self.flush(), NetPost::kPosted);
      ASSERT_TRUE(self.comm.barrier().ok());
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace switchyard::testing
