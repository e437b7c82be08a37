// Connections that end under libfabric, which makes them anew and tells nobody: what was lost with one is an error at
// both ends, soon, and for whoever waits; where nothing was lost it is said, and all goes on.
#include <gtest/gtest.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "base/failpoint.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "coll/collectives.hpp"
#include "net/net_rank.hpp"
#include "net/ways.hpp"
#include "net/sockets.hpp"
#include "switchyard/device/barrier.hpp"
#include "switchyard/device/gin.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::testing {
namespace {

constexpr int kLastSignal = int(kNumSignals) - 1;

// What a kernel does to a connection that it gives up: both ends have an error, and what this end held is gone. 0, or
// why not.
int end_connection(int fd) {
  struct {
    nlmsghdr header{};
    inet_diag_req_v2 request{};
  } message;
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DESTROY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  message.request.sdiag_family = AF_INET;
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = ~0u;
  inet_diag_sockid& id = message.request.id;
  sockaddr_in near{}, far{};
  socklen_t size = sizeof near;
  getsockname(fd, reinterpret_cast<sockaddr*>(&near), &size);
  getpeername(fd, reinterpret_cast<sockaddr*>(&far), &size);
  id.idiag_sport = near.sin_port;
  id.idiag_dport = far.sin_port;
  id.idiag_src[0] = near.sin_addr.s_addr;
  id.idiag_dst[0] = far.sin_addr.s_addr;
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const Fd link(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (send(link.get(), &message, sizeof message, 0) != ssize_t(sizeof message)) return errno;
  struct {
    nlmsghdr header{};
    nlmsgerr error{};
    char rest[256];
  } answer;
  if (recv(link.get(), &answer, sizeof answer, 0) < 0) return errno;
  return -answer.error.error;
}

// Empty, or why no connection can be ended here.
std::string why_not() {
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      caller(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), place, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), place, &size) != 0 || connect(caller.get(), place, size) != 0) {
    return "no connection on loopback";
  }
  const int error = end_connection(caller.get());
  return error == 0 ? ""
                    : text(
                          "this kernel does not (CONFIG_INET_DIAG_DESTROY), or this user may not (CAP_NET_ADMIN), end "
                          "connections: ",
                          strerror(error));
}

// What a connection becomes whose other end has forgotten it: that is told with the next packet, and what came here
// unread is gone.
int forget_connection(int fd) {
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  // Past the thread sanitizer, which takes it for a use that would have to be in turn with that of another thread.
  return syscall(SYS_connect, fd, &nowhere, sizeof nowhere) == 0 ? 0 : errno;
}

// At which end a connection goes, with what its kernel holds: bytes that were not sent yet, or not read yet.
enum class End { kSource, kTarget };

// Ends the connections whose kernel holds such bytes; how many.
int end_loaded(const std::set<uint16_t>& ports, End end) {
  int num_ended = 0;
  for (const int fd : connections_to(ports)) {
    int num_bytes = 0;
    if (ioctl(fd, end == End::kSource ? SIOCOUTQ : FIONREAD, &num_bytes) != 0 || num_bytes == 0) continue;
    num_ended += (end == End::kSource ? end_connection(fd) : forget_connection(fd)) == 0;
  }
  return num_ended;
}

// Of memory that somebody may be writing.
uint8_t byte_at(const uint8_t* place) {
  uint8_t byte = 0;
  const iovec here{&byte, 1}, there{const_cast<uint8_t*>(place), 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 ? byte : 0;
}

// What is open there, by a name that is its own; empty: nothing. Read as a link, which is no use of the descriptor:
// another thread may close it.
std::string opened(int fd) {
  std::error_code none;
  return std::filesystem::read_symlink(text("/proc/self/fd/", fd), none).string();
}

class Reconnect : public ::testing::TestWithParam<NetWay> {
 protected:
  void SetUp() override {
    if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  }
  void TearDown() override { clear_failpoints(); }

  // Both ranks of a part of a job, which have written to each other before.
  void on_both(const std::function<void(NetRank&, const PartWithPorts&)>& body) {
    ThreadRanks ranks(2, GetParam().options(60 * kSecond), {0, 1});
    const PartWithPorts part(ranks);
    ranks.on_all([&](int rank) {
      NetRank self(*part.comms[size_t(rank)]);
      ASSERT_EQ(self.put(self.put_of(0, 0, 64, 0)), NetPost::kPosted);
      ASSERT_TRUE(self.wait_signal(0, 1));
      ASSERT_TRUE(self.comm.barrier().ok());
      body(self, part);
    });
  }

  void lose_writes(End end, uint64_t num_before = 0);
};
INSTANTIATE_TEST_SUITE_P(All, Reconnect, ::testing::ValuesIn(all_ways()), name_of_way);

// What counts on how many writes a put is.
class ReconnectPlain : public Reconnect {};
INSTANTIATE_TEST_SUITE_P(All, ReconnectPlain, ::testing::ValuesIn(plain_ways()), name_of_way);

// Rank 1 is busy with a first write when rank 0 posts others, which are with the kernel then, complete as far as rank 0
// knows, and the last for now.
void Reconnect::lose_writes(End end, uint64_t num_before) {
  constexpr uint64_t kPuts = 8, kHalf = kDataBytes / 2;
  const uint64_t num_bytes = end == End::kSource ? 32u << 10 : 512;  // more than goes at once, or less
  std::atomic<uint8_t*> target = nullptr;
  std::atomic<int> num_ended = -1, num_who_found_out = 0;
  std::atomic<uint64_t> ended_ns = 0;
  on_both([&](NetRank& self, const PartWithPorts& part) {
    auto device = self.comm.create_device_comm({.num_signals = 1, .num_barriers = 1});
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    if (self.comm.rank() == 1) target = self.data() + kHalf;
    ASSERT_TRUE(self.comm.barrier().ok());
    if (self.comm.rank() == 0) {
      std::memset(self.data(), 1, kHalf);
      for (uint64_t i = 0; i < num_before; ++i) ASSERT_EQ(self.put(self.put_of(kHalf + 64, 0, 8, 3)), NetPost::kPosted);
      ASSERT_EQ(self.deliver(), NetPost::kPosted);  // so that nothing follows by itself
    } else {
      ASSERT_TRUE(self.wait_signal(3, num_before));
    }
    ASSERT_TRUE(self.comm.exchange(uint32_t{0}).ok());
    if (self.comm.rank() == 0) {
      ASSERT_TRUE(set_failpoint("net.write_arrived", "delay:60000@1").ok());
      ASSERT_EQ(self.put(self.put_of(kHalf, 0, 1, 1)), NetPost::kPosted);
      const auto is_there = [&] { return byte_at(target) == 1; };
      ASSERT_EQ(wait_until(is_there, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      for (uint64_t i = 1; i <= kPuts; ++i) {
        ASSERT_EQ(self.put(self.put_of(kHalf + i * num_bytes, 0, num_bytes, kLastSignal)), NetPost::kPosted);
      }
      ASSERT_EQ(self.flush(), NetPost::kPosted);
      ended_ns = now_ns();
      num_ended = end_loaded(part.ports, end);
      clear_failpoints();
    }
    const HostPlatform p;
    // Nobody helps but the waits themselves, and the progress thread.
    const Gin<HostPlatform> gin(p, *device, 0);
    EXPECT_EQ(gin.wait_signal(0, 1, self.peer()), GinStatus::kPeerGone);
    RecordProperty(text("rank_", self.comm.rank(), "_knew_after_ms"), int((now_ns() - ended_ns) / kMillisecond));
    EXPECT_LT(now_ns() - ended_ns, promise_ns());
    Barrier<HostPlatform> barrier(p, *device, 0);
    EXPECT_NE(barrier.world(), BarrierResult::kOk);
    EXPECT_LT(now_ns() - ended_ns, promise_ns());
    EXPECT_EQ(num_ended, 1) << "the test ended another connection than it meant to, or none";
    EXPECT_FALSE(self.net.usable(self.peer()));
    EXPECT_NE(self.net.put(self.put_of(0, 0, 64)), NetPost::kPosted);
    // Either may find out, by a number that is missing or by an operation that libfabric still had, and tell the other.
    const std::string error = self.net.error().message();
    EXPECT_NE(error.find(text("lost rank ", self.peer(), ": ")), std::string::npos) << error;
    if (error.find("it says that it does not reach this rank any more: ") == std::string::npos) ++num_who_found_out;
    if (self.comm.rank() == 1) {
      EXPECT_LT(self.signal(kLastSignal), kPuts);
    }
    const Status met = self.comm.barrier();
    EXPECT_NE(met.message().find(text("what it and rank ", self.peer(), " sent each other may be lost")),
              std::string::npos)
        << met.to_string();
  });
  EXPECT_GE(num_who_found_out, 1);
}

TEST_P(Reconnect, WritesThatAreLostAtTheSourceAreAnErrorAtBothEndsAndEndEveryWait) { lose_writes(End::kSource); }
TEST_P(Reconnect, WritesThatAreLostAtTheTargetAreAnErrorAtBothEndsAndEndEveryWait) { lose_writes(End::kTarget); }

// Numbers of writes come again after 16384: whatever the number, the last write is missed. One of these is that of the
// first.
TEST_P(ReconnectPlain, TheLastWritesAreMissedWhateverTheirNumber) {
  for (uint64_t num_before = 16384 - 13; num_before <= 16384 - 11; ++num_before) lose_writes(End::kTarget, num_before);
}

// The source is told late, and goes on writing until the numbers that were lost come again.
TEST_P(ReconnectPlain, NothingCountsThatComesAfterWhatWasLost) {
  constexpr uint64_t kPuts = 8, kHalf = kDataBytes / 2, kBytes = 32u << 10, kMany = 40'000;
  std::atomic<uint8_t*> target = nullptr;
  std::atomic<bool> is_over = false, has_posted_enough = false;
  const auto body = [&](NetRank& self, const PartWithPorts& part) {
    if (self.comm.rank() == 1) target = self.data() + kHalf;
    // No barrier: the other may have lost something before that returns here.
    ASSERT_TRUE(self.comm.exchange(uint32_t{0}).ok());
    if (self.comm.rank() == 0) {
      std::memset(self.data(), 1, kHalf);
      ASSERT_TRUE(set_failpoints("net.write_arrived=delay:60000@1,bootstrap.loss_unsent=delay:1500@1").ok());
      ASSERT_EQ(self.put(self.put_of(kHalf, 0, 1, 1)), NetPost::kPosted);
      const auto is_there = [&] { return byte_at(target) == 1; };
      ASSERT_EQ(wait_until(is_there, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      for (uint64_t i = 1; i <= kPuts; ++i) {
        ASSERT_EQ(self.put(self.put_of(kHalf + i * kBytes, 0, kBytes, kLastSignal)), NetPost::kPosted);
      }
      ASSERT_EQ(self.flush(), NetPost::kPosted);
      const std::vector<int> ends = connections_to(part.ports);
      ASSERT_EQ(end_loaded(part.ports, End::kSource), 1);
      ASSERT_TRUE(set_failpoint("net.write_arrived", "off").ok());
      // Who posts before libfabric has noticed has an error, and nothing else to post.
      const auto is_closed = [&] {
        return self.net.progress(), std::ranges::any_of(ends, [](int fd) { return opened(fd).empty(); });
      };
      ASSERT_EQ(wait_until(is_closed, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      uint64_t num_posted = 0;
      while (num_posted < kMany && self.put(self.put_of(kHalf, 0, 8, 2)) == NetPost::kPosted) ++num_posted;
      RecordProperty("num_posted", int(num_posted));
      has_posted_enough = num_posted > 16384 + kPuts;
      clear_failpoints();
      EXPECT_EQ(wait_until([&] { return !self.net.usable(1); }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      is_over = true;
    } else {
      EXPECT_EQ(wait_until([&] { return is_over.load(); }, Deadline::after_ns(60 * kSecond)), WaitResult::kReady);
      self.net.catch_up();
      EXPECT_EQ(self.signal(2), 0u);
      EXPECT_FALSE(self.net.usable(0));
    }
  };
  // A machine that is slow just then has rank 0 post too few to try it.
  for (int attempt = 0; attempt < 10 && !has_posted_enough && !HasFailure(); ++attempt) {
    is_over = false;
    on_both(body);
  }
  EXPECT_TRUE(has_posted_enough);
}

TEST_P(Reconnect, CollectivesEndAtAllRanksWhenTwoLoseEachOther) {
  ThreadRanks ranks(4, GetParam().options(60 * kSecond), {0, 0, 1, 1});
  const PartWithPorts part(ranks);
  std::atomic<uint64_t> ended_ns = 0;
  std::vector<std::unique_ptr<coll::Collectives>> collectives(4);
  ranks.on_all([&](int rank) {
    auto made = coll::Collectives::create(*part.comms[size_t(rank)], {});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    collectives[size_t(rank)] = std::move(made).value();
    std::vector<float> in(4096, 1.0f), out(in.size());
    Status status;
    for (int round = 0; status.ok() && round < 1'000'000; ++round) {
      // Again and again: where nothing was on its way they go on.
      if (round % 20 == 19 && rank == 0) {
        ended_ns = now_ns();
        for (const int fd : connections_to(part.ports)) end_connection(fd);
      }
      status = collectives[size_t(rank)]->all_reduce(in.data(), out.data(), in.size(), DType::kFloat32,
                                                     coll::ReduceOp::kSum, ranks.stream_ref(rank));
      if (status.ok()) status = ranks.stream(rank).synchronize(Deadline::after_ns(100 * kSecond));
    }
    EXPECT_FALSE(status.ok());
    EXPECT_LT(now_ns() - ended_ns, promise_ns()) << "rank " << rank << ": " << status.to_string();
    EXPECT_NE(status.message().find("network"), std::string::npos) << status.to_string();
  });
  ranks.on_all([&](int rank) { collectives[size_t(rank)].reset(); });
}

std::mutex log_mutex;
std::string logged;

TEST_P(Reconnect, AConnectionThatEndedWhileNothingWasOnItsWayIsMadeAnewAndThatIsSaid) {
  logged.clear();
  set_log_sink([](LogLevel, const char* line) {
    const std::lock_guard lock(log_mutex);
    logged += line;
  });
  const auto body = [&](NetRank& self, const PartWithPorts& part) {
    if (self.comm.rank() == 0) {
      std::vector<int> ends;
      // Of connections that both had begun at once one may still be there.
      const auto is_one = [&] { return ends = connections_to(part.ports), ends.size() == 2; };
      ASSERT_EQ(wait_until(is_one, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      const std::array<std::string, 2> sockets = {opened(ends[0]), opened(ends[1])};
      ASSERT_EQ(end_connection(ends[0]), 0);
      // Until libfabric has noticed, at both ends. Who posts before has an error.
      const auto are_closed = [&] { return opened(ends[0]) != sockets[0] && opened(ends[1]) != sockets[1]; };
      ASSERT_EQ(wait_until(are_closed, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
    }
    ASSERT_TRUE(self.comm.barrier().ok());
    for (uint64_t i = 1; i <= 100; ++i) {
      ASSERT_EQ(self.put(self.put_of(kDataBytes / 2, 0, 64, 1)), NetPost::kPosted) << self.net.error().to_string();
      ASSERT_TRUE(self.wait_signal(1, i)) << self.net.error().to_string();
    }
    ASSERT_EQ(self.flush(), NetPost::kPosted);
    EXPECT_TRUE(self.net.error().ok()) << self.net.error().to_string();
    ASSERT_TRUE(self.comm.barrier().ok());
  };
  on_both(body);
  set_log_sink(nullptr);
  EXPECT_NE(logged.find("a connection has ended and was made anew"), std::string::npos) << logged;
}

// The same work, and nothing happens to connections: nothing is said.
TEST_P(Reconnect, NothingIsSaidOfConnectionsThatLast) {
  for (const char* net : {"ofi", "ofi:net"}) {
    logged.clear();
    set_log_sink([](LogLevel, const char* line) {
      const std::lock_guard lock(log_mutex);
      logged += line;
    });
    {
      ThreadRanks ranks(3, GetParam().options(60 * kSecond, net), {0, 1, 2});
      ranks.on_all([&](int rank) {
        NetRank self(ranks.comm(rank));
        ASSERT_TRUE(self.comm.barrier().ok());
        for (uint64_t i = 1; i <= 20'000; ++i) {
          const uint64_t num_bytes = i % 8 < 2 ? 16u << 10 : 64;
          NetPut put = self.put_of(kDataBytes / 2 + i % 64 * 64, 0, num_bytes, i % 4 < 2 ? 1 : -1);
          put.peer = (rank + 1 + int(i % 2)) % 3;
          ASSERT_EQ(self.put(put), NetPost::kPosted) << net;
        }
        ASSERT_TRUE(self.wait_signal(1, 10'000)) << net << ": " << self.net.error().to_string();
        ASSERT_TRUE(self.comm.barrier().ok());
      });
    }
    set_log_sink(nullptr);
    EXPECT_EQ(logged.substr(0, 1000), "") << net;
  }
}

}  // namespace
}  // namespace switchyard::testing
