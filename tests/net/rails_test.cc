// Several rails: both carry data, ranks that have different ones are refused, and a peer that a rail no longer reaches
// is lost. What an endpoint promises over two rails is tried by the suites of endpoints, kernels and dispatch
// (CMakeLists.txt).
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <random>

#include "net/net_rank.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr uint64_t kTimeoutNs = 20 * kSecond;
constexpr uint64_t kLargeBytes = 1u << 20;

auto join(const RankProcess& process) {
  return Communicator::create(process.id, process.rank, process.num_ranks,
                              {.timeout_ns = kTimeoutNs, .node_id = process.rank, .net = "ofi"});
}

// Connections of this process over which so many bytes went out and were acknowledged, or came in.
std::vector<int> busy_connections(uint64_t least_bytes, bool inbound = false) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    tcp_info info{};
    socklen_t num_bytes = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &num_bytes) != 0) continue;
    if ((inbound ? info.tcpi_bytes_received : info.tcpi_bytes_acked) >= least_bytes) found.push_back(fd);
  }
  return found;
}

// Rank 0 puts 16 MiB at rank 1, which waits for all of it.
std::string put_much(NetRank& self) {
  constexpr uint64_t kPuts = 16;
  if (self.comm.rank() == 1) return self.wait_signal(0, kPuts) ? "" : "the data did not come";
  for (uint64_t i = 0; i < kPuts; ++i) {
    if (self.put(self.put_of(0, 0, kDataBytes, 0)) != NetPost::kPosted) return self.net.error().to_string();
  }
  return self.flush() == NetPost::kPosted ? "" : self.net.error().to_string();
}

std::string share_data(const RankProcess& process) {
  const auto comm = join(process);
  if (!comm.ok()) return comm.status().to_string();
  NetRank self(*comm.value());
  if (const std::string wrong = put_much(self); !wrong.empty()) return wrong;
  if (process.rank == 0) std::printf("%zu busy connections\n", busy_connections(4 * kLargeBytes).size());
  const Status met = self.comm.barrier();
  return met.ok() ? "" : met.to_string();
}

// One of the rails that carry data ends under rank 0's hands; the coordinator and the other rails do not.
std::string lose_rail(const RankProcess& process) {
  const auto comm = join(process);
  if (!comm.ok()) return comm.status().to_string();
  NetRank self(*comm.value());
  if (const std::string wrong = put_much(self); !wrong.empty()) return wrong;
  if (const Status met = self.comm.barrier(); !met.ok()) return met.to_string();
  if (process.rank == 0) {
    // Under a put each time: a connection that ends while nothing is under way is made anew, and nothing is lost.
    const auto refused = [&] {
      const NetPost result = self.net.put(self.put_of(0, 0, kDataBytes, 0));
      const std::vector<int> rails = busy_connections(kLargeBytes);
      if (!rails.empty()) shutdown(rails.back(), SHUT_RDWR);
      self.net.progress();
      return result == NetPost::kFailed;
    };
    if (wait_until(refused, Deadline::after_ns(kTimeoutNs)) != WaitResult::kReady) return "puts go on";
    if (self.net.usable(1)) return "rank 1 is taken for usable";
    NetPut signal = self.put_of(0, 0, 0, 1);
    signal.context = kNoContext;
    if (self.net.put(signal) != NetPost::kFailed) return "signals go on over the rail that is left";
    std::printf("%s\n", self.net.error().to_string().c_str());
  }
  const Status met = self.comm.barrier();  // the host's: that way is another
  return met.ok() ? "" : met.to_string();
}

// As when a connection is reset: both ends learn that it ended, and what was not read is gone.
void tear(int fd) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return;
  dup2(ends[0], fd);
  close(ends[0]);
  close(ends[1]);
}

// Rank 1 tears connections, with what it has not read of them, while rank 0 sends small puts whose completions say
// nothing about the target, then a large one that tells when it is there, and a signal that follows them all. The
// provider may connect again by itself.
std::string lose_bytes(const RankProcess& process) {
  constexpr uint64_t kRounds = 300, kSmallPuts = 32, kSmallBytes = 4096;
  const auto comm = join(process);
  if (!comm.ok()) return comm.status().to_string();
  NetRank self(*comm.value());
  std::minstd_rand random(7);
  const auto end = [&](uint64_t round) {
    self.comm.abort("bytes were lost");
    std::printf("ended in round %lu: %s\n", static_cast<unsigned long>(round), self.net.error().to_string().c_str());
    return "";
  };
  const auto is_over = [&] { return !self.net.usable(self.peer()) || self.comm.aborted(); };
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (process.rank == 0) {
      std::memset(self.data(), int(round % 251), kSmallPuts * kSmallBytes);
      for (uint64_t i = 0; i < kSmallPuts; ++i) {
        if (self.put(self.put_of(i * kSmallBytes, i * kSmallBytes, kSmallBytes)) != NetPost::kPosted) return end(round);
      }
      // Time for the provider to notice that a connection ended: then it makes another one for the next put.
      wait_until([&] { return self.net.progress(), false; }, Deadline::after_ns(random() % (20 * kMillisecond)));
      const uint64_t large_at = kDataBytes / 2;
      if (self.put(self.put_of(large_at, large_at, kDataBytes / 2)) != NetPost::kPosted) return end(round);
      if (self.flush() != NetPost::kPosted || is_over()) return end(round);
      if (self.put(self.put_of(0, 0, 0, 0)) != NetPost::kPosted) return end(round);
      const auto answered = [&] { return self.net.progress(), self.signal(1) >= round || is_over(); };
      if (wait_until(answered, Deadline::after_ns(kTimeoutNs)) != WaitResult::kReady) return "nobody noticed";
      if (is_over()) return end(round);
    } else {
      uint64_t patience = round % 4 == 0 ? random() % 256 : ~uint64_t{0};
      const auto came = [&] {
        if (patience-- == 0) {
          for (const int fd : busy_connections(kLargeBytes / 2, true)) tear(fd);
        }
        self.net.progress();
        return self.signal(0) >= round || is_over();
      };
      if (wait_until(came, Deadline::after_ns(kTimeoutNs)) != WaitResult::kReady) return "nobody noticed";
      if (self.signal(0) < round) return end(round);
      const uint8_t* begin = self.data();
      if (!std::all_of(begin, begin + kSmallPuts * kSmallBytes, [&](uint8_t byte) { return byte == round % 251; })) {
        return "wrong bytes";
      }
      if (self.put(self.put_of(0, 0, 0, 1)) != NetPost::kPosted) return end(round);
    }
  }
  return "";
}

std::string only_join(const RankProcess& process) {
  const auto comm = join(process);
  std::printf("%s\n", comm.status().to_string().c_str());
  return "";
}

// What the ranks printed, each with these interfaces.
std::vector<std::string> run(const std::string& body, const std::string& first, const std::string& second) {
  const auto environment = [&](int rank) {
    return std::vector<std::string>{"SWITCHYARD_INTERFACE=" + (rank == 0 ? first : second)};
  };
  auto ranks = ProcessRanks::start({.num_ranks = 2, .body = body, .environment = environment});
  EXPECT_TRUE(ranks.ok()) << ranks.status().to_string();
  if (!ranks.ok()) return {"", ""};
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
  return {ranks.value()->output(0), ranks.value()->output(1)};
}

void expect_in(const std::string& output, const std::string& words) {
  EXPECT_NE(output.find(words), std::string::npos) << "no '" << words << "' in: " << output;
}

TEST(Rails, AllCarryData) {
  expect_in(run("share_data", "lo", "lo")[0], "1 busy connections");
  expect_in(run("share_data", "lo,lo", "lo,lo")[0], "2 busy connections");
  expect_in(run("share_data", "lo,lo,lo", "lo,lo,lo")[0], "3 busy connections");
}

TEST(Rails, AreRefusedWhereRanksHaveDifferentOnes) {
  const auto outputs = run("only_join", "lo,lo", "lo");
  expect_in(outputs[0], "rank 0 has 2 rails and rank 1 has 1; SWITCHYARD_INTERFACE must name equally many");
  expect_in(outputs[1], "rank 1 has 1 rails and rank 0 has 2; SWITCHYARD_INTERFACE must name equally many");
}

TEST(Rails, AreRefusedWhereAnInterfaceIsMissing) {
  for (const std::string& output : run("only_join", "lo,nosuch0", "lo,nosuch0")) expect_in(output, "'nosuch0'");
  for (const std::string& output : run("only_join", "lo,", "lo,")) expect_in(output, "names ''");
}

TEST(Rails, AreRefusedWhereThereAreTooMany) {
  const std::string nine = "lo,lo,lo,lo,lo,lo,lo,lo,lo";
  for (const std::string& output : run("only_join", nine, nine)) expect_in(output, "up to 8");
}

TEST(Rails, OneThatEndsLosesThePeer) {
  expect_in(run("lose_rail", "lo,lo", "lo,lo")[0], "rank 0: the network lost rank 1: data rail ");
  expect_in(run("lose_rail", "lo", "lo")[0], "rank 0: the network lost rank 1: data rail 1 (provider tcp");
}

TEST(Rails, NoSignalComesAheadOfBytesThatAreLost) {
  for (const std::string interfaces : {"lo", "lo,lo"}) {
    for (const std::string& output : run("lose_bytes", interfaces, interfaces)) expect_in(output, "ended in round");
  }
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(
      argc, argv,
      {{"share_data", share_data}, {"lose_rail", lose_rail}, {"lose_bytes", lose_bytes}, {"only_join", only_join}});
}
