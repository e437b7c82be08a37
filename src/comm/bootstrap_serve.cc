// The thread of a Bootstrap: writes what callers post, reads what the coordinator says, wakes the exchanges it
// concerns.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "base/guarded.hpp"
#include "comm/bootstrap.hpp"

namespace switchyard {

void Bootstrap::run() {
  const Status served = guarded([&] { serve(); });
  if (served.ok()) return;
  // Whom this does not reach for want of memory, its deadline tells.
  (void)guarded([&] {
    break_all(BootstrapEvent::Kind::kCoordinatorLost, -1,
              Status(served.code(), text("rank ", rank_, " can't serve its connection to the coordinator: ", served.message())));
  });
}

void Bootstrap::serve() {
  // False: the owner is leaving, and everything posted before is on its way.
  while (flush_outbox()) {
    const int wait_ms = next_heartbeat_ms();
    Status status = channel_.flush();
    if (status.ok()) {
      pollfd entries[2] = {{channel_.fd(), short(POLLIN | (channel_.has_unsent() ? POLLOUT : 0)), 0},
                           {wakeup_.get(), POLLIN, 0}};
      // Until the next heartbeat: this thread waits for news, and every caller has a deadline. A failing poll is no event.
      if (poll(entries, 2, wait_ms) < 0 && errno != EINTR) poll(nullptr, 0, 1);
      eventfd_t count;
      eventfd_read(wakeup_.get(), &count);
    }
    // Even if writing failed: the reason may be waiting to be read.
    if (const Status received = receive_frames(); !received.ok()) status = received;
    if (status.ok()) continue;
    break_all(BootstrapEvent::Kind::kCoordinatorLost, -1,
              Status::remote(text(
                  "rank ", rank_,
                  " lost the coordinator of its job (the process that created the unique id): ", status.message())));
    return;
  }
  // The coordinator closing first is no reason to complain now.
  (void)channel_.flush(Deadline::after_ns(kSecond));
}

// Sends a heartbeat if one is due: the kernel ends a connection when nothing comes back for what it sent (tcp.cc).
int Bootstrap::next_heartbeat_ms() {
  const uint64_t now = now_ns();
  if (now >= heartbeat_due_ns_) {
    // What is queued already does as well.
    if (!channel_.has_unsent()) channel_.send(FrameType::kHeartbeat, std::vector<std::byte>());
    heartbeat_due_ns_ = now + env().heartbeat_ms * kMillisecond;
  }
  return int((heartbeat_due_ns_ - now + kMillisecond - 1) / kMillisecond);
}

bool Bootstrap::flush_outbox() {
  const std::lock_guard lock(mutex_);
  for (Outgoing& frame : outbox_) {
    // Written so that tests/faults, where no connection ends by itself, does not list them.
    if (frame.type == FrameType::kLeftNetwork) (void)SWITCHYARD_FAILPOINT("bootstrap.departure_unsent");
    if (frame.type == FrameType::kUnreachable) (void)SWITCHYARD_FAILPOINT("bootstrap.loss_unsent");
    channel_.send(frame.type, std::move(frame.payload));
  }
  outbox_.clear();
  if (stopping_) channel_.send(FrameType::kGoodbye, std::vector<std::byte>());
  return !stopping_;
}

Status Bootstrap::receive_frames() {
  for (;;) {
    SWITCHYARD_ASSIGN(const std::optional<Frame> frame, channel_.receive());
    if (!frame) return {};
    if (Status status = take_frame(*frame); !status.ok()) {
      return Status(status.code(), text(channel_.peer(), " ", status.message()));
    }
  }
}

Status Bootstrap::take_frame(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kResult: return take_result(frame);
    case FrameType::kExchangeFailed: {
      SWITCHYARD_ASSIGN(const ExchangeFailure failure, ExchangeFailure::parse(frame.payload));
      complete(failure.key, [&](Pending& pending) {
        pending.status = failure.status;
        pending.done = true;
      });
      return {};
    }
    case FrameType::kMissing: {
      SWITCHYARD_ASSIGN(const ExchangeMissing missing, ExchangeMissing::parse(frame.payload));
      complete(missing.key, [&](Pending& pending) { pending.missing = missing.ranks; });
      return {};
    }
    case FrameType::kRankGone: {
      SWITCHYARD_ASSIGN(const Notice notice, Notice::parse(frame.payload));
      if (notice.rank >= uint32_t(num_ranks_)) return Status::remote("named a rank that does not exist");
      take_rank_gone(notice);
      return {};
    }
    case FrameType::kUnreachable: {
      SWITCHYARD_ASSIGN(const Unreachable loss, Unreachable::parse(frame.payload, num_ranks_));
      report({.kind = BootstrapEvent::Kind::kUnreachable,
              .rank = int(loss.from),
              .message = loss.reason,
              .comm_id = loss.comm_id,
              .peer = int(loss.to)});
      return {};
    }
    case FrameType::kLeftNetwork: {
      SWITCHYARD_ASSIGN(const Departure departure, Departure::parse(frame.payload, num_ranks_));
      report({.kind = BootstrapEvent::Kind::kLeftNetwork, .rank = int(departure.rank), .comm_id = departure.comm_id});
      return {};
    }
    case FrameType::kHeartbeat: return {};
    case FrameType::kAbort: {
      SWITCHYARD_ASSIGN(const Notice notice, Notice::parse(frame.payload));
      const Code code = notice.code == Code::kOk ? Code::kRemoteError : notice.code;
      break_all(BootstrapEvent::Kind::kAborted, int(notice.rank), Status(code, notice.reason));
      return {};
    }
    default: return Status::remote(text("sent a frame of type ", int(frame.type), ", which no coordinator sends now"));
  }
}

// Nothing happens if nobody waits for that exchange any more: its caller missed the deadline.
void Bootstrap::complete(ExchangeKey key, const std::function<void(Pending&)>& how) {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(key);
  if (found == pending_.end() || found->second->done) return;
  how(*found->second);
  if (found->second->done) changed_.notify_all();
}

Status Bootstrap::take_result(const Frame& frame) {
  SWITCHYARD_ASSIGN(ExchangeResult result, ExchangeResult::parse(frame.payload));
  complete(result.key, [&](Pending& pending) {
    if (result.blobs.size() == pending.members.size()) pending.blobs = std::move(result.blobs);
    else
      pending.status = Status::internal(text(result.key.to_string(), " came back with ", result.blobs.size(),
                                             " blobs for ", pending.members.size(), " members"));
    pending.done = true;
  });
  return {};
}

void Bootstrap::fail_pending(const Status& status, int member) {
  for (auto& [key, pending] : pending_) {
    const auto& members = pending->members;
    const bool concerned = member < 0 || std::find(members.begin(), members.end(), member) != members.end();
    if (pending->done || !concerned) continue;
    // Whoever gives up on a missing rank leaves; those it leaves behind must still learn who was missing.
    const std::string missing = pending->missing.empty() ? "" : "; missing: rank " + list_ranks(pending->missing);
    pending->status =
        Status(status.code(), text("rank ", rank_, ": ", key.to_string(), " failed: ", status.message(), missing));
    pending->done = true;  // last: what comes before may throw where memory has run out
  }
  changed_.notify_all();
}

void Bootstrap::take_rank_gone(const Notice& notice) {
  const bool died = notice.code != Code::kOk;
  {
    const std::lock_guard lock(mutex_);
    Status& gone = gone_[notice.rank];
    if (!gone.ok()) return;
    gone = Status::remote(notice.reason);
    if (died) dead_.push_back(int(notice.rank));
    fail_pending(gone, int(notice.rank));
  }
  using Kind = BootstrapEvent::Kind;
  report({.kind = died ? Kind::kRankDied : Kind::kRankLeft, .rank = int(notice.rank), .message = notice.reason});
}

void Bootstrap::break_all(BootstrapEvent::Kind kind, int rank, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    // The first reason stays; our own abort comes back to us, and whoever called it needs no event.
    if (!broken_.ok() || stopping_) return;
    broken_ = status;
    fail_pending(status);
  }
  const bool unreachable = kind == BootstrapEvent::Kind::kCoordinatorLost && channel_.unreachable();
  report({.kind = kind, .rank = rank, .message = status.message(), .unreachable = unreachable});
}

void Bootstrap::report(const BootstrapEvent& event) {
  const std::lock_guard lock(handler_mutex_);
  if (!event.concerns_network()) events_.push_back(event);  // a network hears what happens while it is there
  if (handler_) handler_(event);
}

}  // namespace switchyard
