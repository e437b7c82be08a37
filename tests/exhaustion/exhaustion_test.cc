// Out of descriptors, out of memory, interrupted: at every system call of a job's life, one after the other. Whatever
// the rank it hits then says, nobody crashes or hangs, no descriptor is lost, and the next job works.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "base/log.hpp"
#include "call_faults.hpp"
#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "comm/file_store.hpp"
#include "platform/host/stream.hpp"

namespace switchyard::testing {
namespace {

// A life takes milliseconds. Ranks that are hit, or wait for one that is, often can't know before their time is up.
constexpr uint64_t kStruckTimeoutNs = 500 * kMillisecond;
constexpr uint64_t kTimeoutNs = 30 * kSecond;
constexpr uint64_t kPatienceNs = 10 * kSecond;  // several calls of a life may run into their time limits
constexpr size_t kWindowBytes = 64 << 10;

size_t num_open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  size_t count = 0;
  while (folder && readdir(folder.get()) != nullptr) count++;
  return count;
}

// What a life of one rank is told, and what came of it. Travels over the pair's control socket.
struct Order {
  CallFault fault;
  int on_rank = -1;  // none: a life without faults
  char net[8] = {};  // between two nodes; none: one node
  bool stop = false;
};
struct Report {
  int code = 0;
  size_t files_before = 0, files_after = 0;
  uint64_t took_ns = 0;
  std::array<uint64_t, kNumCalls> num_calls{};
  char message[512] = {};
};
struct IdMessage {
  int ok = 0;
  UniqueId id;
};

// readv() and writev() are not among the calls that fail.
template <class T>
bool tell(int socket, const T& value) {
  iovec part{const_cast<T*>(&value), sizeof value};
  return writev(socket, &part, 1) == ssize_t(sizeof value);
}
template <class T>
bool hear(int socket, T& value) {
  iovec part{static_cast<void*>(&value), sizeof value};
  return readv(socket, &part, 1) == ssize_t(sizeof value);
}

Status use(Communicator& comm) {
  SWITCHYARD_ASSIGN(void* memory, comm.runtime().allocate(kWindowBytes));
  const std::shared_ptr<void> owner(memory, [&](void* p) { (void)comm.runtime().free(p); });
  SWITCHYARD_ASSIGN(Window * window, comm.register_window(memory, kWindowBytes));
  SWITCHYARD_TRY(comm.barrier());
  Status status = [&]() -> Status {
    SWITCHYARD_ASSIGN(const std::unique_ptr<Communicator> child, comm.split(0, comm.rank()));
    SWITCHYARD_ASSIGN(const std::unique_ptr<Stream> stream, Stream::create());
    SWITCHYARD_TRY(stream->synchronize(comm.deadline()));
    return child->barrier();
  }();
  SWITCHYARD_TRY(comm.deregister_window(window));
  return status;
}

Status live(int rank, const Order& order, int control) {
  std::unique_ptr<Coordinator> coordinator;
  IdMessage meeting{};
  if (rank == 0) {
    auto started = Coordinator::start();
    if (started.ok()) {
      coordinator = std::move(*started);
      meeting = {1, coordinator->id()};
    }
    if (!tell(control, meeting)) return Status::internal("the other process is gone");
    SWITCHYARD_TRY(started.status());
  } else {
    if (!hear(control, meeting)) return Status::internal("the other process is gone");
    if (meeting.ok == 0) return Status::remote("rank 0 has no coordinator");
  }
  Communicator::Options options;
  const bool must_work = order.on_rank < 0 || order.fault.error == EINTR;
  options.timeout_ns = must_work ? kTimeoutNs : kStruckTimeoutNs;
  if (order.net[0] != '\0') {
    options.node_id = rank;
    options.net = order.net;
  }
  SWITCHYARD_ASSIGN(const std::unique_ptr<Communicator> comm, Communicator::create(meeting.id, rank, 2, options));
  return use(*comm);
}

// A life that never ends is ended by SIGALRM, with words of what it was.
constexpr unsigned kMaxSeconds = 60;
CallFault g_under_way;

void report_stuck(int) {
  char words[128];
  const int length = std::snprintf(words, sizeof words, "a process is stuck: call %d%s of %s failed with error %d\n",
                                   int(g_under_way.nth), g_under_way.from_then_on ? " and later" : "",
                                   name_of(g_under_way.call), g_under_way.error);
  iovec part{words, size_t(length)};
  (void)!writev(STDERR_FILENO, &part, 1);
  _exit(1);
}

Report carry_out(const Order& order, int rank, int control) {
  Report report;
  report.files_before = num_open_files();
  const uint64_t begin_ns = now_ns();
  g_under_way = order.fault;
  alarm(kMaxSeconds);
  arm(order.on_rank == rank ? order.fault : CallFault{});
  const Status status = live(rank, order, control);
  report.num_calls = disarm();
  alarm(0);
  report.took_ns = now_ns() - begin_ns;
  report.files_after = num_open_files();
  report.code = int(status.code());
  std::snprintf(report.message, sizeof report.message, "%s", status.ok() ? "" : status.message().c_str());
  return report;
}

// This process is rank 0, a child of it rank 1; both live life after life.
class Pair {
 public:
  // REQUIRES: this process has one thread.
  Pair() {
    signal(SIGALRM, report_stuck);
    set_log_sink([](LogLevel, const char*) {});  // what lives say counts, not the thousands of warnings on the way
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    const Fd theirs(sockets[1]);
    control_.reset(sockets[0]);
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      control_.reset();
      be_rank_1(theirs.get());
    }
    // Whoever of the two hangs ends the test, not the machine's patience.
    const timeval limit{2 * kMaxSeconds, 0};
    setsockopt(control_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Pair() {
    set_log_sink(nullptr);
    Order last;
    last.stop = true;
    tell(control_.get(), last);
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank 1 crashed";
  }

  // False: rank 1 crashed or hangs.
  bool live_once(const Order& order, std::array<Report, 2>& reports) {
    if (!tell(control_.get(), order)) return false;
    reports[0] = carry_out(order, 0, control_.get());
    return hear(control_.get(), reports[1]);
  }

 private:
  [[noreturn]] static void be_rank_1(int control) {
    for (Order order; hear(control, order) && !order.stop;) {
      if (!tell(control, carry_out(order, 1, control))) _exit(3);
    }
    _exit(0);
  }
  Fd control_;
  pid_t child_ = -1;
};

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

// The fault, then a life without. False: it makes no sense to go on.
bool survives(Pair& pair, const Order& order) {
  std::array<Report, 2> reports;
  if (!pair.live_once(order, reports)) {
    ADD_FAILURE() << words_for(order) << ": rank 1 crashed or hangs";
    return false;
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    const Report& report = reports[rank];
    EXPECT_TRUE(report.code == 0 || report.message[0] != '\0')
        << words_for(order) << ": rank " << rank << " says nothing";
    EXPECT_TRUE(report.code == 0 || order.fault.error != EINTR) << words_for(order) << ": " << report.message;
    EXPECT_EQ(report.files_before, report.files_after) << words_for(order) << ": rank " << rank << " lost descriptors";
    EXPECT_LT(report.took_ns, kPatienceNs) << words_for(order) << ": rank " << rank << " was stuck: " << report.message;
    if (std::getenv("SWITCHYARD_EXHAUSTION_VERBOSE") != nullptr) {
      std::fprintf(stderr, "%s: rank %zu, %d ms: %s\n", words_for(order).c_str(), rank,
                   int(report.took_ns / kMillisecond), report.code == 0 ? "ok" : report.message);
    }
  }
  Order clean;
  std::memcpy(clean.net, order.net, sizeof clean.net);
  if (!pair.live_once(clean, reports)) {
    ADD_FAILURE() << words_for(order) << ": the next job crashed or hangs";
    return false;
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(reports[rank].code, 0) << words_for(order) << ": the next job failed: " << reports[rank].message;
  }
  return !::testing::Test::HasFailure();
}

// Of calls that are made in loops every `stride`-th, unless SWITCHYARD_EXHAUSTION_ALL is set (`make soak`).
void strike_everywhere(const char* net, uint64_t stride) {
  const bool all = std::getenv("SWITCHYARD_EXHAUSTION_ALL") != nullptr;
  Pair pair;
  Order order;
  std::snprintf(order.net, sizeof order.net, "%s", net);
  std::array<Report, 2> clean;
  for (int i = 0; i < 2; ++i) {  // the first life opens what stays open, such as the source of random bytes
    ASSERT_TRUE(pair.live_once(order, clean));
    for (const Report& report : clean) ASSERT_EQ(report.code, 0) << report.message;
  }
  size_t num_cases = 0;
  std::map<Call, uint64_t> num_sites;
  for (const auto& [call, errors] : errors_of_calls()) {
    for (order.on_rank = 0; order.on_rank < 2; ++order.on_rank) {
      const uint64_t num_calls = clean[size_t(order.on_rank)].num_calls[size_t(call)];
      const bool in_loops = num_calls > 16;
      num_sites[call] += num_calls;
      for (const int error : errors) {
        for (uint64_t nth = 1; nth <= num_calls; nth += in_loops && !all ? stride : 1) {
          // Whoever runs out of something often stays out of it.
          for (const bool from_then_on : {false, true}) {
            const bool telling = nth == 1 || all || (!in_loops && stride == 1);
            if (from_then_on && (error == EINTR || !telling)) continue;
            order.fault = {call, nth, error, from_then_on};
            if (!survives(pair, order)) return;
            ++num_cases;
          }
        }
      }
    }
  }
  std::string sites;
  for (const auto& [call, count] : num_sites) sites += text(" ", name_of(call), ":", count);
  std::printf("%zu faults; calls of a life:%s\n", num_cases, sites.c_str());
}

TEST(Exhaustion, NoCallOfAJobOnOneNodeTakesMoreThanTheJobWithIt) { strike_everywhere("", 1); }

TEST(Exhaustion, NoCallOfAJobOnTwoNodesTakesMoreThanTheJobWithIt) { strike_everywhere("mem", 7); }

TEST(Exhaustion, NoCallOfAJobOverLibfabricTakesMoreThanTheJobWithIt) {
  if (!find_net_plugin("ofi").ok()) GTEST_SKIP() << "built without libfabric";
  strike_everywhere("ofi", 25);
}

TEST(Exhaustion, AStoreFileIsWholeOrNotThereWhateverCallFails) {
  ASSERT_TRUE(crypto_ready().ok());
  char name[] = "/tmp/switchyard_test_XXXXXX";
  const std::string folder = mkdtemp(name);
  TcpEndpoint endpoint;
  endpoint.address[0] = std::byte(127);
  endpoint.port = 1;
  const UniqueId id = UniqueId::make(endpoint, {});
  const size_t files_before = num_open_files();
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
  EXPECT_EQ(num_open_files(), files_before);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace switchyard::testing
