#include "comm/coordinator_loop.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/env.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"

namespace switchyard {
namespace {

// A rank that lets this much pile up has stopped reading.
constexpr size_t kMaxUnsentBytes = 64u << 20;
// So many frames of one peer at a time, before the others have their turn.
constexpr int kFramesPerTurn = 16;

}  // namespace

Coordinator::Loop::Loop(Fd listener, Fd wakeup, const JobSecret& secret, uint64_t startup_ns)
    : listener_(std::move(listener)),
      wakeup_(std::move(wakeup)),
      secret_(secret),
      startup_(Deadline::after_ns(startup_ns)) {}

void Coordinator::Loop::stop() {
  stop_.store(true, std::memory_order_release);  // pairs with the acquire in run()
  eventfd_write(wakeup_.get(), 1);
}

CoordinatorCounters Coordinator::Loop::counters() const {
  return {num_joined_.load(std::memory_order_relaxed), num_dropped_.load(std::memory_order_relaxed),
          num_refused_.load(std::memory_order_relaxed)};
}

void Coordinator::Loop::run() {
  const Status served = guarded([&] {
    // Once more after stop(): the owner's own rank may have aborted the job just before, and the others are to be told.
    for (bool is_last = false; !is_last && !finished();) {
      is_last = stop_.load(std::memory_order_acquire);  // pairs with the release in stop()
      wait_for_events();
      expire_handshakes();
      send_heartbeats();
      for (Announcement& hint : exchanges_.due_hints(now_ns())) announce(std::move(hint));
      settle();
    }
  });
  // What is told to some only is worth less than an end that all see.
  if (!served.ok()) log(LogLevel::kError, "the coordinator ends, and the job with it: ", served.message());
  // Peers must see the end now, not when the owner gets round to destroying this object.
  peers_.clear();
  listener_.reset();
  ended_.store(true, std::memory_order_release);  // pairs with the acquire in ended()
}

bool Coordinator::Loop::finished() const {
  const bool anyone = std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return !peer->half_open(); });
  const bool everyone_came = !ranks_.empty() && num_ever_joined_ == ranks_.size();
  return !anyone && (everyone_came || startup_.expired());
}

void Coordinator::Loop::wait_for_events() {
  std::vector<pollfd> entries;
  uint64_t wake_ns = std::min(startup_.at_ns(), exchanges_.next_hint_ns());
  if (startup_.expired()) wake_ns = exchanges_.next_hint_ns();
  entries.push_back({wakeup_.get(), POLLIN, 0});
  const uint64_t accept_ns = std::max(accept_again_ns_, room_at_ns());
  const bool accepting = now_ns() >= accept_ns;
  entries.push_back({accepting ? listener_.get() : -1, POLLIN, 0});
  if (!accepting) wake_ns = std::min(wake_ns, accept_ns);
  for (const auto& peer : peers_) {
    entries.push_back({peer->channel.fd(), short(POLLIN | (peer->channel.has_unsent() ? POLLOUT : 0)), 0});
    wake_ns = std::min(wake_ns, peer->half_open() ? peer->accepted_ns + kHandshakeNs : heartbeat_due_ns_);
  }
  const uint64_t now = now_ns();
  const uint64_t wait_ms = wake_ns <= now ? 0 : (wake_ns - now + kMillisecond - 1) / kMillisecond;
  // A failing poll (out of memory, a signal) is like no event: the loop comes round again.
  const int num_ready = poll(entries.data(), nfds_t(entries.size()), int(std::min<uint64_t>(wait_ms, 60'000)));
  if (num_ready < 0 && errno != EINTR) poll(nullptr, 0, 1);
  if (num_ready <= 0) return;
  for (size_t i = 2; i < entries.size(); i++) {
    if (entries[i].revents != 0) read_from(*peers_[i - 2]);
  }
  if (entries[1].revents != 0) accept_all();
}

Coordinator::Loop::Peer* Coordinator::Loop::oldest_of_too_many() const {
  Peer* oldest = nullptr;
  size_t num_half_open = 0;
  for (const auto& peer : peers_) {
    if (!peer->half_open() || peer->end) continue;
    if (oldest == nullptr) oldest = peer.get();
    num_half_open++;
  }
  return num_half_open < max_half_open() ? nullptr : oldest;
}

// Newcomers wait in the kernel's queue while all places are taken by connections that are still young.
uint64_t Coordinator::Loop::room_at_ns() const {
  const Peer* oldest = oldest_of_too_many();
  return oldest == nullptr ? 0 : oldest->accepted_ns + kHalfOpenGraceNs;
}

bool Coordinator::Loop::make_room() {
  if (now_ns() < room_at_ns()) return false;
  if (Peer* oldest = oldest_of_too_many()) oldest->end = Status::remote("made room for a newcomer");
  return true;
}

void Coordinator::Loop::accept_all() {
  while (make_room()) {
    TcpEndpoint from;
    Fd socket = accept_from(listener_, from);
    if (socket.valid()) {
      peers_.push_back(std::make_unique<Peer>(std::move(socket), from.to_string(), secret_));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      log(LogLevel::kWarn, Status::system_error("the coordinator can't accept connections at the moment").to_string());
      accept_again_ns_ = now_ns() + kHalfOpenGraceNs;
    }
    return;
  }
}

void Coordinator::Loop::expire_handshakes() {
  for (const auto& peer : peers_) {
    if (peer->half_open() && !peer->end && now_ns() >= peer->accepted_ns + kHandshakeNs) {
      peer->end = Status::remote("took too long for the handshake");
    }
  }
}

// The kernel ends a connection when nothing comes back for what it sent (tcp.cc); so something is sent.
void Coordinator::Loop::send_heartbeats() {
  if (now_ns() < heartbeat_due_ns_) return;
  heartbeat_due_ns_ = now_ns() + env().heartbeat_ms * kMillisecond;
  for (const auto& peer : peers_) {
    if (peer->half_open() || peer->end || peer->channel.has_unsent()) continue;
    peer->channel.send(FrameType::kHeartbeat, std::vector<std::byte>());
  }
}

void Coordinator::Loop::read_from(Peer& peer) {
  for (int i = 0; i < kFramesPerTurn && !peer.end; i++) {
    auto frame = peer.channel.receive();
    if (!frame.ok()) {
      peer.end = frame.status();
    } else if (!frame->has_value()) {
      return;
    } else if (Status status = take_frame(peer, **frame); !status.ok()) {
      peer.end = std::move(status);
    }
  }
}

void Coordinator::Loop::settle() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& peer : peers_) {
      if (!peer->end) {
        if (Status status = peer->channel.flush(); !status.ok()) peer->end = std::move(status);
        else if (peer->channel.unsent_bytes() > kMaxUnsentBytes) peer->end = Status::remote("stopped reading");
      }
      if (peer->end && !peer->half_open()) {
        rank_gone(*peer);
        changed = true;
      } else if (peer->end && !peer->refused) {
        num_dropped_.fetch_add(1, std::memory_order_relaxed);
        log(LogLevel::kInfo, "coordinator: dropped ", peer->channel.peer(), ", it ", peer->end->message());
      }
    }
    std::erase_if(peers_, [](const auto& peer) { return peer->end.has_value(); });
  }
}

}  // namespace switchyard
