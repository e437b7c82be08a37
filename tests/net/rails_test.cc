// Several rails: all carry data, ranks use as many as every one of them has, and a peer that a rail no longer reaches is
// lost. What an endpoint promises over two rails is tried by its own suite (CMakeLists.txt), cables that are cut by
// tests/hosts.
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdio>
#include <filesystem>

#include "net/net_rank.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr uint64_t kTimeoutNs = 20 * kSecond;
constexpr uint64_t kTotalBytes = 16u << 20;
constexpr uint64_t kBusyBytes = 2u << 20;

auto join(const RankProcess& process) {
  return Communicator::create(process.id, process.rank, process.num_ranks,
                              {.timeout_ns = kTimeoutNs, .node_id = process.rank, .net = "ofi"});
}

// Connections of this process over which many bytes went out and were acknowledged.
std::vector<int> busy_connections() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    tcp_info info{};
    socklen_t num_bytes = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &num_bytes) != 0) continue;
    if (info.tcpi_bytes_acked >= kBusyBytes) found.push_back(fd);
  }
  return found;
}

// Rank 0 puts 16 MiB at rank 1, which waits for all of it.
std::string put_much(NetRank& self, uint64_t bytes_a_put) {
  const uint64_t num_puts = kTotalBytes / bytes_a_put;
  if (self.comm.rank() == 1) return self.wait_signal(0, num_puts) ? "" : "the data did not come";
  for (uint64_t i = 0; i < num_puts; ++i) {
    if (self.put(self.put_of(0, 0, bytes_a_put, 0)) != NetPost::kPosted) return self.net.error().to_string();
  }
  return self.flush() == NetPost::kPosted ? "" : self.net.error().to_string();
}

// The argument: bytes of a put.
std::string share_data(const RankProcess& process) {
  const auto comm = join(process);
  if (!comm.ok()) return comm.status().to_string();
  const uint64_t bytes_a_put = std::stoull(process.arguments[0]);
  NetRank self(*comm.value(), bytes_a_put);
  if (const std::string wrong = put_much(self, bytes_a_put); !wrong.empty()) return wrong;
  if (process.rank == 0) std::printf("%zu busy connections\n", busy_connections().size());
  const Status met = self.comm.barrier();
  return met.ok() ? "" : met.to_string();
}

// One of the rails ends under rank 0's hands; the coordinator and the other rail do not.
std::string lose_rail(const RankProcess& process) {
  const auto comm = join(process);
  if (!comm.ok()) return comm.status().to_string();
  NetRank self(*comm.value());
  if (const std::string wrong = put_much(self, kDataBytes); !wrong.empty()) return wrong;
  if (const Status met = self.comm.barrier(); !met.ok()) return met.to_string();
  // The barrier of the other may not have returned yet, and would see what comes now.
  if (const auto met = self.comm.exchange(uint32_t{0}); !met.ok()) return met.status().to_string();
  if (process.rank == 0) {
    // Under a put each time: a connection that ends while nothing waits to be sent is made anew.
    const auto refused = [&] {
      const NetPost result = self.net.put(self.put_of(0, 0, kDataBytes, 0));
      if (const std::vector<int> rails = busy_connections(); !rails.empty()) shutdown(rails.back(), SHUT_RDWR);
      self.net.progress();
      return result == NetPost::kFailed;
    };
    if (wait_until(refused, Deadline::after_ns(kTimeoutNs)) != WaitResult::kReady) return "puts go on";
    if (self.net.usable(1)) return "rank 1 is taken for usable";
    for (int i = 0; i < 2; ++i) {
      if (self.net.put(self.put_of(0, 0, 0, 1)) != NetPost::kFailed) return "signals go on over the rail that is left";
    }
    std::printf("%s\n", self.net.error().to_string().c_str());
  }
  // The host's way is another. But a barrier must not say that all that was sent is there.
  if (const auto met = self.comm.exchange(uint32_t{0}); !met.ok()) return met.status().to_string();
  return self.comm.barrier().ok() ? "a barrier says that all is well" : "";
}

std::string only_join(const RankProcess& process) {
  const auto comm = join(process);
  std::printf("%s\n", comm.status().to_string().c_str());
  return "";
}

// What the ranks printed, each with these interfaces.
std::vector<std::string> run(const std::string& body, const std::string& first, const std::string& second,
                             const std::vector<std::string>& arguments = {}) {
  const auto environment = [&](int rank) {
    return std::vector<std::string>{"SWITCHYARD_INTERFACE=" + (rank == 0 ? first : second)};
  };
  auto ranks = ProcessRanks::start({.num_ranks = 2, .body = body, .arguments = arguments, .environment = environment});
  EXPECT_TRUE(ranks.ok()) << ranks.status().to_string();
  if (!ranks.ok()) return {"", ""};
  EXPECT_EQ(ranks.value()->wait(Deadline::after_ns(60 * kSecond)), "");
  return {ranks.value()->output(0), ranks.value()->output(1)};
}

void expect_in(const std::string& output, const std::string& words) {
  EXPECT_NE(output.find(words), std::string::npos) << "no '" << words << "' in: " << output;
}

TEST(Rails, AllCarryDataInManyPutsOrInOne) {
  for (const uint64_t bytes_a_put : {uint64_t{16} << 10, kTotalBytes}) {
    expect_in(run("share_data", "lo", "lo", {text(bytes_a_put)})[0], "1 busy connections");
    expect_in(run("share_data", "lo,lo", "lo,lo", {text(bytes_a_put)})[0], "2 busy connections");
    expect_in(run("share_data", "lo,lo,lo", "lo,lo,lo", {text(bytes_a_put)})[0], "3 busy connections");
  }
}

TEST(Rails, AreAsManyAsEveryRankHas) {
  const auto outputs = run("share_data", "lo,lo,lo", "lo", {"1048576"});
  expect_in(outputs[0], "rank 0: of 3 interfaces (SWITCHYARD_INTERFACE) ofi uses the first 1: rank 1 names no more");
  expect_in(outputs[0], "1 busy connections");
  EXPECT_EQ(outputs[1].find("names no more"), std::string::npos) << outputs[1];
  expect_in(run("share_data", "lo,lo", "lo,lo,lo", {"1048576"})[0], "2 busy connections");
}

TEST(Rails, AreRefusedWhereAnInterfaceIsMissing) {
  for (const std::string& output : run("only_join", "lo,nosuch0", "lo,nosuch0")) expect_in(output, "names 'nosuch0'");
  for (const std::string& output : run("only_join", "lo,", "lo,")) expect_in(output, "names ''");
}

TEST(Rails, OneThatEndsLosesThePeer) {
  const std::string output = run("lose_rail", "lo,lo", "lo,lo")[0];
  expect_in(output, "rank 0: the network lost rank 1: ");
  expect_in(output, " on rail ");
  expect_in(output, " (interface lo)");
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"share_data", share_data}, {"lose_rail", lose_rail}, {"only_join", only_join}});
}
