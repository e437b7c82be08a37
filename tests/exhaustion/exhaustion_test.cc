// Out of descriptors, out of memory, interrupted: at every system call of a job's life, and wherever it asks for
// memory, one after the other. Whatever the rank it hits then says, nobody crashes or hangs, nothing is lost, and the
// next job works.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "call_faults.hpp"
#include "comm/coordinator.hpp"
#include "comm/file_store.hpp"
#include "net/net.hpp"
#include "pair.hpp"
#include "resources.hpp"

namespace switchyard::testing {
namespace {

constexpr uint64_t kPatienceNs = 10 * kSecond;  // several calls of a life may run into their time limits

bool everything() { return std::getenv("SWITCHYARD_EXHAUSTION_ALL") != nullptr; }

// What each call can fail with that is about resources or signals.
const std::map<Call, std::vector<int>>& errors_of_calls() {
  static const std::map<Call, std::vector<int>> errors = {
      {Call::kSocket, {EMFILE, ENOMEM}},
      {Call::kBind, {ENOMEM}},
      {Call::kListen, {EADDRINUSE}},
      {Call::kConnect, {EINTR, ENOMEM}},
      {Call::kAccept4, {EMFILE, ENOMEM, EINTR}},
      {Call::kGetsockname, {ENOBUFS}},
      {Call::kGetsockopt, {ENOMEM}},
      {Call::kSend, {EINTR, ENOMEM}},
      {Call::kSendmsg, {EINTR, ENOMEM}},
      {Call::kRecv, {EINTR, ENOMEM}},
      {Call::kRecvmsg, {EINTR, ENOMEM}},
      {Call::kPoll, {EINTR, ENOMEM}},
      {Call::kOpen, {EMFILE, ENOMEM}},
      {Call::kRead, {EINTR, ENOMEM}},
      {Call::kWrite, {EINTR, ENOMEM}},
      {Call::kFstat, {ENOMEM}},
      {Call::kFcntl, {EMFILE, ENOMEM}},
      {Call::kEventfd, {EMFILE, ENOMEM}},
      {Call::kMemfdCreate, {EMFILE, ENOMEM}},
      {Call::kFtruncate, {ENOSPC, EINTR}},
      {Call::kMmap, {ENOMEM}},
      {Call::kPidfdOpen, {EMFILE, ENOMEM}},
      {Call::kGetifaddrs, {EMFILE, ENOMEM}},
      {Call::kPthreadCreate, {EAGAIN}},
  };
  return errors;
}

std::string words_for(const Order& order) {
  return text("call ", order.fault.nth, order.fault.from_then_on ? " and later" : "", " of ", name_of(order.fault.call),
              " fails with ", strerrorname_np(order.fault.error), " at rank ", order.on_rank);
}

// Of blocks of memory what is kept once is not lost, so those may be asked for apart.
void check_report(const Order& order, size_t rank, const Report& report, bool may_keep_blocks) {
  EXPECT_TRUE(report.code == 0 || report.message[0] != '\0')
      << words_for(order) << ": rank " << rank << " says nothing";
  EXPECT_TRUE(report.code == 0 || order.fault.error != EINTR) << words_for(order) << ": " << report.message;
  EXPECT_EQ(std::strstr(report.message, "WRONG RESULT"), nullptr) << words_for(order) << ": " << report.message;
  Resources allowed = report.before;
  if (may_keep_blocks) allowed.num_blocks = std::max(allowed.num_blocks, report.after.num_blocks);
  EXPECT_FALSE(report.after.exceeds(allowed))
      << words_for(order) << ": rank " << rank << " had " << report.before.to_string() << " and was left with "
      << report.after.to_string() << " after: " << report.message;
  EXPECT_LT(report.took_ns, kPatienceNs) << words_for(order) << ": rank " << rank << " was stuck: " << report.message;
  if (std::getenv("SWITCHYARD_EXHAUSTION_VERBOSE") != nullptr) {
    std::fprintf(stderr, "%s: rank %zu, %d ms: %s\n", words_for(order).c_str(), rank,
                 int(report.took_ns / kMillisecond), report.code == 0 ? "ok" : report.message);
  }
}

// A life that keeps memory, such as a failpoint's name, is lived again: what is kept once is not lost. False: rank 1
// crashed or hangs.
bool live_struck(Pair& pair, const Order& order) {
  constexpr int kMaxLives = 3;
  std::array<Report, 2> reports;
  for (int i = 1; i <= kMaxLives; ++i) {
    if (!pair.live_once(order, reports)) return false;
    const auto kept = [](const Report& report) { return report.after.num_blocks > report.before.num_blocks; };
    const bool again = i < kMaxLives && (kept(reports[0]) || kept(reports[1]));
    for (size_t rank = 0; rank < 2; ++rank) check_report(order, rank, reports[rank], /*may_keep_blocks=*/again);
    if (!again) break;
  }
  return true;
}

// A life that went well but for a socket that libfabric lost is lived again: a stranger had come to its port, some other
// job's rank whose peer had that port before. What this library loses it loses every time.
bool live_without_fault(Pair& pair, const Life& life, std::array<Report, 2>& reports) {
  for (int i = 0; i < 3; ++i) {
    if (!pair.live_once({.life = life}, reports)) return false;
    const auto lost_a_socket = [](const Report& report) {
      return report.after.num_libfabric_sockets > report.before.num_libfabric_sockets;
    };
    const bool went_well = std::all_of(reports.begin(), reports.end(), [](const Report& report) {
      return report.code == 0 && !report.after.exceeds(report.before);
    });
    if (!went_well || std::none_of(reports.begin(), reports.end(), lost_a_socket)) return true;
  }
  return true;
}

// The fault, then a life without. False: it makes no sense to go on.
bool survives(Pair& pair, const Order& order) {
  if (!live_struck(pair, order)) {
    ADD_FAILURE() << words_for(order) << ": rank 1 crashed or hangs";
    return false;
  }
  std::array<Report, 2> reports;
  if (!live_without_fault(pair, order.life, reports)) {
    ADD_FAILURE() << words_for(order) << ": the next job crashed or hangs";
    return false;
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    const Report& report = reports[rank];
    EXPECT_EQ(report.code, 0) << words_for(order) << ": the next job failed: " << report.message;
    EXPECT_LE(report.after.num_libfabric_sockets, report.before.num_libfabric_sockets)
        << words_for(order) << ": then rank " << rank << " lost a socket of libfabric's in a job without faults";
    EXPECT_FALSE(report.after.exceeds(report.before))
        << words_for(order) << ": then rank " << rank << " had " << report.before.to_string() << " and was left with "
        << report.after.to_string() << " after a job without faults";
  }
  return !::testing::Test::HasFailure();
}

// Which faults of a life strike unless SWITCHYARD_EXHAUSTION_ALL is set (`make soak`), where all do.
struct Choice {
  uint64_t stride = 1;  // of calls that are made in loops every stride-th
  uint64_t every = 1;   // of the faults that are left then, every so-many-th
};

std::vector<Order> faults_of_calls(const Life& life, const std::array<Report, 2>& clean, const Choice& choice) {
  std::vector<Order> faults;
  Order order{.life = life};
  for (const auto& [call, errors] : errors_of_calls()) {
    for (order.on_rank = 0; order.on_rank < 2; ++order.on_rank) {
      const uint64_t num_calls = clean[size_t(order.on_rank)].num_calls[size_t(call)];
      const bool in_loops = num_calls > 16;
      for (const int error : errors) {
        for (uint64_t nth = 1; nth <= num_calls; nth += in_loops && !everything() ? choice.stride : 1) {
          // Whoever runs out of something often stays out of it.
          for (const bool from_then_on : {false, true}) {
            const bool telling = nth == 1 || everything() || (!in_loops && choice.stride == 1);
            if (from_then_on && (error == EINTR || !telling)) continue;
            order.fault = {call, nth, error, from_then_on};
            faults.push_back(order);
          }
        }
      }
    }
  }
  return faults;
}

std::vector<Order> faults_of_memory(const Life& life, const std::array<Report, 2>& clean, const Choice& choice) {
  std::vector<Order> faults;
  Order order{.life = life};
  for (order.on_rank = 0; order.on_rank < 2; ++order.on_rank) {
    const uint64_t num_calls = clean[size_t(order.on_rank)].num_calls[size_t(Call::kNew)];
    for (uint64_t nth = 1; nth <= num_calls; nth += everything() ? 1 : choice.stride) {
      for (const bool from_then_on : {false, true}) {
        order.fault = {Call::kNew, nth, ENOMEM, from_then_on};
        faults.push_back(order);
      }
    }
  }
  return faults;
}

using Faults = std::vector<Order>(const Life& life, const std::array<Report, 2>& clean, const Choice& choice);

void strike_everywhere(const Life& life, Faults& faults_of, const Choice& choice) {
  if (life.net[0] != '\0' && !find_net_plugin(life.net).ok()) GTEST_SKIP() << "built without libfabric";
  Pair pair;
  std::array<Report, 2> clean;
  for (int i = 0; i < 2; ++i) {  // the first life opens what stays open, such as the source of random bytes
    ASSERT_TRUE(pair.live_once({.life = life}, clean));
    for (const Report& report : clean) ASSERT_EQ(report.code, 0) << report.message;
  }
  size_t num_cases = 0;
  const std::vector<Order> faults = faults_of(life, clean, choice);
  for (size_t i = 0; i < faults.size(); i += everything() ? 1 : choice.every, ++num_cases) {
    if (!survives(pair, faults[i])) return;
  }
  std::string sites;
  for (size_t call = 0; call < kNumCalls; ++call) {
    const uint64_t count = clean[0].num_calls[call] + clean[1].num_calls[call];
    if (count > 0) sites += text(" ", name_of(Call(call)), ":", count);
  }
  std::printf("%zu faults; calls of a life:%s\n", num_cases, sites.c_str());
}

TEST(Exhaustion, NoCallOfAJobOnOneNodeTakesMoreThanTheJobWithIt) {
  strike_everywhere({}, faults_of_calls, {.stride = 1});
}

TEST(Exhaustion, NoCallOfAJobOnTwoNodesTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "mem"}, faults_of_calls, {.stride = 7});
}

TEST(Exhaustion, NoCallOfAJobOverLibfabricTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "ofi"}, faults_of_calls, {.stride = 25});
}

TEST(Exhaustion, NoCallOfRoundTripsOnOneNodeTakesMoreThanTheJobWithIt) {
  strike_everywhere({.round_trips = true, .spare_joining = true}, faults_of_calls, {.every = 17});
}

TEST(Exhaustion, NoCallOfRoundTripsOnTwoNodesTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "mem", .round_trips = true, .spare_joining = true}, faults_of_calls, {.every = 41});
}

TEST(Exhaustion, NoCallOfRoundTripsOverLibfabricTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "ofi", .round_trips = true, .spare_joining = true}, faults_of_calls,
                    {.stride = 97, .every = 29});
}

TEST(Exhaustion, NoCallOfAJobWithTheProxyTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "ofi", .gin = "proxy", .round_trips = true}, faults_of_calls, {.stride = 97, .every = 29});
}

TEST(Exhaustion, NoCallOfAJobWithChecksumsTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "ofi", .checksums = true, .round_trips = true}, faults_of_calls,
                    {.stride = 97, .every = 29});
}

TEST(Exhaustion, NoMemoryThatAJobOnOneNodeLacksTakesMoreThanTheJobWithIt) {
  strike_everywhere({.round_trips = true}, faults_of_memory, {.stride = 41});
}

TEST(Exhaustion, NoMemoryThatAJobOnTwoNodesLacksTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "mem", .round_trips = true}, faults_of_memory, {.stride = 181});
}

TEST(Exhaustion, NoMemoryThatAJobWithTheProxyLacksTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "ofi", .gin = "proxy", .round_trips = true}, faults_of_memory, {.stride = 1499});
}

TEST(Exhaustion, NoMemoryThatAJobWithChecksumsLacksTakesMoreThanTheJobWithIt) {
  strike_everywhere({.net = "ofi", .checksums = true, .round_trips = true}, faults_of_memory, {.stride = 1499});
}

TEST(Exhaustion, AStoreFileIsWholeOrNotThereWhateverCallFails) {
  ASSERT_TRUE(crypto_ready().ok());
  char name[] = "/tmp/switchyard_test_XXXXXX";
  const std::string folder = mkdtemp(name);
  TcpEndpoint endpoint;
  endpoint.address[0] = std::byte(127);
  endpoint.port = 1;
  const UniqueId id = UniqueId::make(endpoint, {});
  const Resources before = Resources::now();
  for (const Call call : {Call::kOpen, Call::kWrite, Call::kRename, Call::kRead, Call::kFstat}) {
    for (const int error : {EMFILE, ENOMEM, ENOSPC, EINTR}) {
      arm({call, 1, error, false});
      {
        const auto file = PublishedFile::publish(folder + "/store", std::nullopt, "a job", id);
        const auto found = read_published(folder + "/store", "a job");
        EXPECT_TRUE(file.ok() || !file.status().message().empty());
        EXPECT_TRUE(!found.ok() || !found.value() || *found.value() == id);
        const bool retried = error == EINTR && (call == Call::kWrite || call == Call::kRead);
        EXPECT_TRUE(!retried || (file.ok() && found.ok() && found.value())) << name_of(call);
      }
      disarm();
      EXPECT_TRUE(std::filesystem::is_empty(folder)) << name_of(call) << " left something behind";
    }
  }
  EXPECT_EQ(Resources::now().num_files, before.num_files);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace switchyard::testing
