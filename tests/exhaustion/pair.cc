#include "pair.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/guarded.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "platform/host/stream.hpp"
#include "round_trips.hpp"

namespace switchyard::testing {
namespace {

// A life takes milliseconds. Ranks that are hit, or wait for one that is, often can't know before their time is up.
constexpr uint64_t kStruckTimeoutNs = 500 * kMillisecond;
constexpr uint64_t kTimeoutNs = 30 * kSecond;
constexpr size_t kWindowBytes = 64 << 10;

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

Status use(Communicator& comm, const Life& life, uint64_t timeout_ns) {
  SWITCHYARD_ASSIGN(void* memory, comm.runtime().allocate(kWindowBytes));
  bool is_done_with = false;  // the network, with it
  const auto give_back = [&](void* p) { (void)comm.release(p, is_done_with); };
  const std::unique_ptr<void, decltype(give_back)> owner(memory, give_back);
  SWITCHYARD_ASSIGN(Window * window, comm.register_window(memory, kWindowBytes));
  SWITCHYARD_TRY(comm.barrier());
  Status status = [&]() -> Status {
    SWITCHYARD_ASSIGN(const std::unique_ptr<Communicator> child, comm.split(0, comm.rank()));
    SWITCHYARD_ASSIGN(const std::unique_ptr<Stream> stream, Stream::create());
    SWITCHYARD_TRY(stream->synchronize(comm.deadline()));
    if (life.round_trips) SWITCHYARD_TRY(make_round_trips(*child, {stream.get()}, timeout_ns));
    return child->barrier();
  }();
  const Status gone = comm.deregister_window(window);
  is_done_with = gone.ok();
  return gone.ok() ? status : gone;
}

Status live(int rank, const Order& order, int control) {
  const CallFault fault = order.on_rank == rank ? order.fault : CallFault{};
  if (!order.life.spare_joining) arm(fault);
  std::unique_ptr<Coordinator> coordinator;
  IdMessage meeting{};
  if (rank == 0) {
    const Status started = guarded([&]() -> Status {
      SWITCHYARD_ASSIGN(coordinator, Coordinator::start());
      meeting = {1, coordinator->id()};
      return {};
    });
    if (!tell(control, meeting)) return Status::internal("the other process is gone");
    SWITCHYARD_TRY(started);
  } else {
    if (!hear(control, meeting)) return Status::internal("the other process is gone");
    if (meeting.ok == 0) return Status::remote("rank 0 has no coordinator");
  }
  Communicator::Options options;
  const bool must_work = order.on_rank < 0 || order.fault.error == EINTR;
  options.timeout_ns = must_work ? kTimeoutNs : kStruckTimeoutNs;
  if (order.life.net[0] != '\0') {
    options.node_id = rank;
    options.net = order.life.net;
    options.gin = order.life.gin;
    options.net_decorations.checksum = order.life.checksums;
  }
  SWITCHYARD_ASSIGN(const std::unique_ptr<Communicator> comm, Communicator::create(meeting.id, rank, 2, options));
  if (order.life.spare_joining) arm(fault);
  return use(*comm, order.life, options.timeout_ns);
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
  report.before = Resources::now();
  const uint64_t begin_ns = now_ns();
  g_under_way = order.fault;
  alarm(kMaxSeconds);
  {
    const Status status = guarded([&] { return live(rank, order, control); });  // as the C API does
    report.num_calls = disarm();
    alarm(0);
    report.took_ns = now_ns() - begin_ns;
    report.code = int(status.code());
    std::snprintf(report.message, sizeof report.message, "%s", status.ok() ? "" : status.message().c_str());
  }
  report.after = report.before.later();
  return report;
}

[[noreturn]] void be_rank_1(int control) {
  for (Order order; hear(control, order) && !order.stop;) {
    if (!tell(control, carry_out(order, 1, control))) _exit(3);
  }
  _exit(0);
}

}  // namespace

Pair::Pair() {
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

Pair::~Pair() {
  set_log_sink(nullptr);
  Order last;
  last.stop = true;
  tell(control_.get(), last);
  int status = 0;
  EXPECT_EQ(waitpid(child_, &status, 0), child_);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank 1 crashed";
}

bool Pair::live_once(const Order& order, std::array<Report, 2>& reports) {
  if (!tell(control_.get(), order)) return false;
  reports[0] = carry_out(order, 0, control_.get());
  return hear(control_.get(), reports[1]);
}

}  // namespace switchyard::testing
