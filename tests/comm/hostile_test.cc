// The bootstrap under attack: everything a stranger may do to a listening coordinator, in bulk and beside start-ups.
// What one stranger alone can try is in bootstrap_fault_test.cc.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "boot_support.hpp"
#include "comm/handshake.hpp"
#include "support/port_scanner.hpp"

namespace switchyard::test {
namespace {

using switchyard::testing::PortScanner;

void send_anyway(const Fd& fd, std::span<const std::byte> bytes) {
  (void)send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);  // it may be dropped already
}

std::vector<std::byte> join_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::vector<std::byte> both(a.begin(), a.end());
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

std::vector<std::byte> greeting(uint32_t rank, uint32_t num_ranks) {
  HandshakeHello hello;
  fill_random(hello.nonce);
  hello.rank = rank;
  hello.num_ranks = num_ranks;
  const auto payload = hello.encode();
  return join_bytes(encode_frame_header({FrameType::kHello, uint32_t(payload.size()), 0, 0}), payload);
}

std::vector<std::byte> wrong_magic() {
  auto header = encode_frame_header({FrameType::kHello, 40, 0, 0});
  header[0] ^= std::byte(1);
  return {header.begin(), header.end()};
}

// One of each kind of attack that needs no answer, then over again.
void attack(const Fd& fd, int kind) {
  const FrameHeaderBytes header = encode_frame_header({FrameType::kHello, 40, 0, 0});
  switch (kind % 7) {
    case 0: break;  // silence
    case 1: return send_anyway(fd, wrong_magic());
    case 2: return send_anyway(fd, std::span(header).first(16));
    case 3: return send_anyway(fd, encode_frame_header({FrameType::kHello, 0xffffffff, 0, 0}));
    case 4: return send_anyway(fd, greeting(0, 4));  // takes a challenge and never answers
    case 5: {                                        // answers with what it can't know
      const std::vector<std::byte> guess(32);
      const auto proof = join_bytes(encode_frame_header({FrameType::kProof, 32, 1, 0}), guess);
      return send_anyway(fd, join_bytes(greeting(1, 4), proof));
    }
    default: return send_anyway(fd, bytes_of("GET / HTTP/1.1\r\nHost: switchyard.example\r\n\r\n"));
  }
}

// A coordinator alone in a process, so that its memory is nobody else's.
class CoordinatorProcess {
 public:
  // REQUIRES: this process has one thread.
  CoordinatorProcess() {
    int id_pipe[2];
    EXPECT_EQ(pipe2(id_pipe, O_CLOEXEC), 0);
    const Fd id_in(id_pipe[0]), id_out(id_pipe[1]);
    pid_ = fork();
    if (pid_ == 0) live(id_out.get());
    EXPECT_EQ(read(id_in.get(), static_cast<void*>(&id_), sizeof id_), ssize_t(sizeof id_));
  }
  ~CoordinatorProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  const UniqueId& id() const { return id_; }

  // Memory of its own; pages of programs and libraries don't count.
  size_t own_kib() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("RssAnon:")) return std::strtoull(line.c_str() + 8, nullptr, 10);
    }
    ADD_FAILURE() << "the coordinator's process is gone";
    return 0;
  }

 private:
  [[noreturn]] static void live(int id_fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto coordinator = Coordinator::start();
    if (!coordinator.ok()) _exit(1);
    const UniqueId id = coordinator.value()->id();
    if (write(id_fd, static_cast<const void*>(&id), sizeof id) != ssize_t(sizeof id)) _exit(2);
    for (;;) pause();
  }
  pid_t pid_ = -1;
  UniqueId id_;
};

// Passes bytes between a rank and the coordinator, and remembers what the rank said.
class Eavesdropper {
 public:
  explicit Eavesdropper(const UniqueId& id) : there_(raw_connection(id)) {
    TcpEndpoint endpoint = *interface_endpoint("lo");
    auto listener = listen_at(endpoint);
    EXPECT_TRUE(listener.ok());
    listener_ = std::move(*listener);
    id_ = UniqueId::make(endpoint, id.secret());
    thread_ = std::thread([this] { relay(); });
  }
  ~Eavesdropper() {
    if (thread_.joinable()) thread_.join();
  }
  const UniqueId& id() const { return id_; }  // leads here instead of there
  // REQUIRES: the rank has hung up.
  std::vector<std::byte> heard() {
    thread_.join();
    return heard_;
  }

 private:
  void relay() {
    if (!wait_for_events(listener_.get(), POLLIN, in_seconds(30))) return;
    TcpEndpoint from;
    const Fd here = accept_from(listener_, from);
    std::array<std::byte, 4096> buffer;
    for (;;) {
      pollfd entries[2] = {{here.get(), POLLIN, 0}, {there_.get(), POLLIN, 0}};
      if (poll(entries, 2, 30'000) <= 0) return;
      for (const int side : {0, 1}) {
        if (entries[side].revents == 0) continue;
        const ssize_t num_read = recv(entries[side].fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (num_read <= 0) return;
        const auto bytes = std::span(buffer).first(size_t(num_read));
        if (side == 0) heard_.insert(heard_.end(), bytes.begin(), bytes.end());
        send_raw(side == 0 ? there_ : here, bytes);
      }
    }
  }
  Fd there_, listener_;
  UniqueId id_;
  std::vector<std::byte> heard_;
  std::thread thread_;
};

TEST(HostileBootstrap, WrongMagicIsDroppedAtOnce) {
  const auto coordinator = start_coordinator();
  const Fd stranger = raw_connection(coordinator->id());
  send_raw(stranger, wrong_magic());
  EXPECT_TRUE(hung_up(stranger, in_seconds(2)));
  EXPECT_TRUE(eventually([&] { return coordinator->counters().num_dropped_peers == 1; }));
}

TEST(HostileBootstrap, OneByteASecondIsDroppedAfterFiveSeconds) {
  const auto coordinator = start_coordinator();
  const Fd slow = raw_connection(coordinator->id());
  const auto bytes = greeting(0, 2);
  const uint64_t begin_ns = now_ns();
  for (size_t i = 0; i < 10 && !hung_up(slow, Deadline::after_ns(kSecond)); i++) {
    send_anyway(slow, std::span(bytes).subspan(i, 1));
  }
  EXPECT_GT(now_ns() - begin_ns, 4 * kSecond);
  EXPECT_LT(now_ns() - begin_ns, 7 * kSecond);
  EXPECT_TRUE(eventually([&] { return coordinator->counters().num_dropped_peers == 1; }));
}

TEST(HostileBootstrap, RecordedHandshakeOfAMemberOpensNothing) {
  const auto coordinator = start_coordinator();
  Eavesdropper eavesdropper(coordinator->id());
  std::thread member([&] {
    const auto bootstrap = Bootstrap::connect(eavesdropper.id(), 1, 2, in_seconds(30));
    EXPECT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
  });
  const auto bootstrap = Bootstrap::connect(coordinator->id(), 0, 2, in_seconds(30));
  EXPECT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
  member.join();
  const auto recorded = eavesdropper.heard();
  ASSERT_GT(recorded.size(), 2 * kFrameHeaderBytes + 72) << "greeting, proof and more";

  const Fd replay = raw_connection(coordinator->id());
  send_raw(replay, recorded);
  EXPECT_TRUE(hung_up(replay, in_seconds(2)));
  EXPECT_TRUE(eventually([&] { return coordinator->counters().num_dropped_peers == 1; }));
  EXPECT_EQ(coordinator->counters().num_refused, 0u) << "who is refused has proven to be a member";
}

TEST(HostileBootstrap, IPv4WildcardInTheClothesOfIPv6IsRefused) {
  auto everywhere = resolve_endpoint("::ffff:0.0.0.0", 0);
  ASSERT_TRUE(everywhere.ok());
  EXPECT_FALSE(listen_at(*everywhere).ok());
  TcpEndpoint raw{IpFamily::kV6, {}, 0};
  raw.address[10] = raw.address[11] = std::byte(0xff);
  EXPECT_TRUE(raw.is_wildcard());
  EXPECT_FALSE(listen_at(raw).ok());
  const auto loopback = resolve_endpoint("::ffff:127.0.0.1", 1);
  ASSERT_TRUE(loopback.ok());
  EXPECT_EQ(loopback->to_string(), "127.0.0.1:1");
}

// Half of the ranks are in when the strangers come, the other half stands behind them in the kernel's queue.
TEST(HostileBootstrap, FormsBehindAThousandStrangersInLessThanAMebibyte) {
  constexpr int kStrangers = 1000;
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 2 * kStrangers) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * kStrangers);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  if (limit.rlim_cur < kStrangers + 100) GTEST_SKIP() << "only " << limit.rlim_cur << " files may be open";
  const CoordinatorProcess process;
  const size_t before_kib = process.own_kib();
  size_t peak_kib = before_kib;

  const auto join = [&](int rank) {
    const auto bootstrap = Bootstrap::connect(process.id(), rank, 4, in_seconds(30));
    EXPECT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
  };
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) ranks.emplace_back(join, rank);
  std::vector<Fd> strangers;
  for (int i = 0; i < kStrangers; i++) {
    strangers.push_back(raw_connection(process.id()));
    attack(strangers.back(), i);
    if (i % 16 == 0) peak_kib = std::max(peak_kib, process.own_kib());
  }
  const uint64_t begin_ns = now_ns();
  for (const int rank : {2, 3}) ranks.emplace_back(join, rank);
  for (std::thread& rank : ranks) rank.join();
  const uint64_t took_ns = now_ns() - begin_ns;
  peak_kib = std::max(peak_kib, process.own_kib());
  EXPECT_LT(took_ns, 4 * kSecond);
  EXPECT_LT(peak_kib - before_kib, 1024u);
  RecordProperty("formed_after_ms", int(took_ns / kMillisecond));
  RecordProperty("grown_kib", int(peak_kib - before_kib));
  std::printf("formed %d ms after the last of %d strangers; the coordinator grew by %zu KiB\n",
              int(took_ns / kMillisecond), kStrangers, peak_kib - before_kib);
}

TEST(HostileBootstrap, AHundredOfAHundredStartUpsFormWhileNmapScans) {
  if (!PortScanner::installed()) GTEST_SKIP() << "nmap is not installed (scripts/setup.sh installs it)";
  constexpr int kStartUps = 100;
  std::atomic<uint16_t> port{0};
  const PortScanner scanner([&] { return std::set<uint16_t>{port.load(std::memory_order_relaxed)}; });
  int num_formed = 0;
  for (int i = 0; i < kStartUps; i++) {
    const auto coordinator = start_coordinator();
    port.store(coordinator->id().endpoint().port, std::memory_order_relaxed);
    std::atomic<int> num_joined{0};
    const auto join = [&](int rank) {
      const auto bootstrap = Bootstrap::connect(coordinator->id(), rank, 2, in_seconds(30));
      EXPECT_TRUE(bootstrap.ok()) << "start-up " << i << ": " << bootstrap.status().to_string();
      if (bootstrap.ok()) num_joined.fetch_add(1, std::memory_order_relaxed);
    };
    std::thread rank_0(join, 0);
    // The job is half formed when the scan comes.
    EXPECT_TRUE(eventually([&] { return coordinator->counters().num_dropped_peers > 0; })) << "no scan came";
    join(1);
    rank_0.join();
    if (num_joined.load(std::memory_order_relaxed) == 2) num_formed++;
  }
  EXPECT_EQ(num_formed, kStartUps);
}

}  // namespace
}  // namespace switchyard::test
