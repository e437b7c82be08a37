#include "comm/bootstrap.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <system_error>

#include "comm/handshake.hpp"
#include "comm/tcp.hpp"

namespace switchyard {
namespace {

constexpr uint64_t kLongestSleepNs = 3600 * kSecond;  // keeps time points away from overflow

// A channel over which both ends have proven themselves.
Result<FrameChannel> open_channel(const UniqueId& id, int rank, int num_ranks, Deadline deadline) {
  const TcpEndpoint endpoint = id.endpoint();
  do {
    auto socket = connect_to(endpoint, deadline);
    if (!socket.ok()) {
      return Status::remote(text("rank ", rank, " finds no coordinator: ", socket.status().message(),
                                 "; has the process that created the unique id ended?"));
    }
    FrameChannel channel(std::move(*socket), text("the coordinator at ", endpoint.to_string()));
    SWITCHYARD_ASSIGN(const HandshakeOutcome outcome,
                      client_handshake(channel, id.secret(), rank, num_ranks, deadline));
    if (outcome == HandshakeOutcome::kDone) return channel;
    poll(nullptr, 0, 10);  // the coordinator is beset by strangers; let it breathe
  } while (!deadline.expired());
  return Status::remote(text("rank ", rank, " got no challenge from the coordinator at ", endpoint.to_string(),
                             " until the deadline; it is overrun, or something else listens there"));
}

Status await_verdict(FrameChannel& channel, int rank, Deadline deadline) {
  SWITCHYARD_ASSIGN(const Frame verdict, channel.receive(deadline));
  if (verdict.type == FrameType::kAccepted) return {};
  if (verdict.type != FrameType::kRefused) return Status::remote(text(channel.peer(), " sent no verdict"));
  SWITCHYARD_ASSIGN(const Notice notice, Notice::parse(verdict.payload));
  const Code code = notice.code == Code::kOk ? Code::kRemoteError : notice.code;
  return Status(code, text("rank ", rank, " was refused: ", notice.reason));
}

}  // namespace

Bootstrap::Bootstrap(FrameChannel channel, Fd wakeup, int rank, int num_ranks)
    : rank_(rank),
      num_ranks_(num_ranks),
      channel_(std::move(channel)),
      wakeup_(std::move(wakeup)),
      gone_(size_t(num_ranks)) {}

Result<std::unique_ptr<Bootstrap>> Bootstrap::connect(const UniqueId& id, int rank, int num_ranks, Deadline deadline) {
  SWITCHYARD_TRY(crypto_ready());
  SWITCHYARD_TRY(id.validate());
  if (num_ranks < 1 || num_ranks > kMaxBootstrapRanks) {
    return Status::invalid_argument(text("num_ranks is ", num_ranks, ", allowed 1..", kMaxBootstrapRanks));
  }
  if (rank < 0 || rank >= num_ranks) {
    return Status::invalid_argument(text("rank is ", rank, ", allowed 0..", num_ranks - 1));
  }
  SWITCHYARD_ASSIGN(FrameChannel channel, open_channel(id, rank, num_ranks, deadline));
  SWITCHYARD_TRY(await_verdict(channel, rank, deadline));
  Fd wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup.valid()) return Status::system_error("no event descriptor for the bootstrap");
  std::unique_ptr<Bootstrap> bootstrap(new Bootstrap(std::move(channel), std::move(wakeup), rank, num_ranks));
  try {
    bootstrap->thread_ = std::thread([self = bootstrap.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return Status(Code::kSystemError, text("no thread for the bootstrap: ", error.what()));
  }
  std::vector<int> world(static_cast<size_t>(num_ranks));
  std::iota(world.begin(), world.end(), 0);
  if (Status status = bootstrap->barrier(kWorldCommId, world, deadline); !status.ok()) {
    return Status(status.code(), text("the ", num_ranks, " ranks did not come together: ", status.message()));
  }
  return bootstrap;
}

Bootstrap::~Bootstrap() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wakeup_.get(), 1);
  thread_.join();
}

Status Bootstrap::check_exchange(std::span<const int> members, std::span<const std::byte> blob) const {
  if (blob.size() > kMaxBlobBytes) {
    return Status::invalid_argument(
        text("rank ", rank_, " wants to exchange ", blob.size(), " bytes, allowed are ", kMaxBlobBytes));
  }
  std::vector<bool> seen(size_t(num_ranks_), false);
  for (const int member : members) {
    if (member < 0 || member >= num_ranks_ || seen[size_t(member)]) {
      return Status::invalid_argument(
          text("member ", member, " of an exchange is out of range or listed twice; allowed are 0..", num_ranks_ - 1));
    }
    seen[size_t(member)] = true;
  }
  if (!seen[size_t(rank_)]) return Status::invalid_argument(text("rank ", rank_, " is no member of its own exchange"));
  return {};
}

Status Bootstrap::check_members_alive(const ExchangeKey& key, std::span<const int> members) const {
  SWITCHYARD_TRY(broken_);
  const Status gone = first_gone(members);
  if (gone.ok()) return {};
  return Status::remote(text("rank ", rank_, ": ", key.to_string(), " can't complete: ", gone.message()));
}

// Those who died come first, because others may have left only for that reason.
Status Bootstrap::first_gone(std::span<const int> members) const {
  for (const int dead : dead_) {
    if (std::find(members.begin(), members.end(), dead) != members.end()) return gone_[size_t(dead)];
  }
  for (const int member : members) SWITCHYARD_TRY(gone_[size_t(member)]);
  return {};
}

Status Bootstrap::timed_out(const ExchangeKey& key, const Pending& pending, uint64_t waited_ns) const {
  const std::string missing = pending.missing.empty() ? "the coordinator did not say who is missing"
                                                      : text("missing: rank ", list_ranks(pending.missing));
  return Status::remote(text("rank ", rank_, ": ", key.to_string(), " did not complete within ",
                             waited_ns / kMillisecond, " ms; ", missing));
}

// An exchange that the thread may complete, as long as this lives, however that ends. With mutex_ held at both ends.
class Bootstrap::Underway {
 public:
  Underway(std::map<ExchangeKey, Pending*>& all, CommState& comm, const ExchangeKey& key, Pending& pending)
      : all_(all), comm_(comm), key_(key) {
    all_[key_] = &pending;
    comm_.busy = true;
  }
  ~Underway() {
    all_.erase(key_);
    comm_.busy = false;
  }
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;

 private:
  std::map<ExchangeKey, Pending*>& all_;
  CommState& comm_;
  const ExchangeKey key_;
};

Result<Blobs> Bootstrap::exchange(uint64_t comm_id, std::span<const int> members, std::span<const std::byte> blob,
                                  Deadline deadline) {
  SWITCHYARD_TRY(check_exchange(members, blob));
  const uint64_t begin_ns = now_ns();
  std::unique_lock lock(mutex_);
  CommState& comm = comms_[comm_id];
  SWITCHYARD_TRY(comm.broken);
  if (comm.busy) {
    return Status::invalid_usage(text("rank ", rank_, " is already inside an exchange of communicator ", comm_id,
                                      "; one at a time, or use another id"));
  }
  const ExchangeKey key{comm_id, comm.next_sequence};
  SWITCHYARD_TRY(check_members_alive(key, members));
  comm.next_sequence++;
  if (members.size() == 1) return Blobs{{blob.begin(), blob.end()}};

  Pending pending;
  pending.members.assign(members.begin(), members.end());
  {
    const Underway underway(pending_, comm, key, pending);
    post(FrameType::kExchange,
         ExchangeRequest{key, deadline.remaining_ns(), pending.members, {blob.begin(), blob.end()}}.encode());
    while (!pending.done && !deadline.expired()) {
      changed_.wait_for(lock, std::chrono::nanoseconds(std::min(deadline.remaining_ns(), kLongestSleepNs)));
    }
  }
  if (!pending.done) pending.status = comm.broken = timed_out(key, pending, now_ns() - begin_ns);
  SWITCHYARD_TRY(pending.status);
  return std::move(pending.blobs);
}

Status Bootstrap::barrier(uint64_t comm_id, std::span<const int> members, Deadline deadline) {
  const auto blobs = exchange(comm_id, members, {}, deadline);
  return blobs.ok() ? Status() : blobs.status();
}

void Bootstrap::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!broken_.ok()) return;
  post(FrameType::kAbort, Notice{uint32_t(rank_), Code::kRemoteError, reason}.encode());  // first: the rest may throw
  broken_ = Status::remote(text("rank ", rank_, " aborted the job: ", reason));
  fail_pending(broken_);
}

void Bootstrap::tell_unreachable(uint64_t comm_id, int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (gone_[size_t(rank)].ok()) post_loss(comm_id, rank_, rank, why);
}

void Bootstrap::confirm_unreachable(uint64_t comm_id, int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  post_loss(comm_id, rank, rank_, why);
}

void Bootstrap::post_loss(uint64_t comm_id, int from, int to, const std::string& why) {
  if (!broken_.ok() || from == to) return;
  post(FrameType::kUnreachable, Unreachable{comm_id, uint32_t(from), uint32_t(to), why}.encode());
}

void Bootstrap::tell_left_network(uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  if (broken_.ok()) post(FrameType::kLeftNetwork, Departure{comm_id, uint32_t(rank_)}.encode());
}

Status Bootstrap::health() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

std::vector<int> Bootstrap::dead_ranks() const {
  const std::lock_guard lock(mutex_);
  return dead_;
}

Status Bootstrap::check_present(std::span<const int> members) const {
  const std::lock_guard lock(mutex_);
  SWITCHYARD_TRY(broken_);
  return first_gone(members);
}

Status Bootstrap::check_expected(int rank) const {
  const std::lock_guard lock(mutex_);
  const Status& gone = gone_[size_t(rank)];
  return gone.ok() && !broken_.ok() ? Status::remote(text("rank ", rank, " is out of reach: ", broken_.message())) : gone;
}

void Bootstrap::set_event_handler(std::function<void(const BootstrapEvent&)> handler) {
  const std::lock_guard lock(handler_mutex_);
  handler_ = std::move(handler);
  if (!handler_) return;
  for (const BootstrapEvent& event : events_) handler_(event);
}

void Bootstrap::post(FrameType type, std::vector<std::byte> payload) {
  outbox_.push_back({type, std::move(payload)});
  eventfd_write(wakeup_.get(), 1);
}

}  // namespace switchyard
