// What is lost, and how that is found out.
//
// libfabric tells what became of the operations that it still has. A connection that ends while it has none it makes
// anew with the next one and tells nobody; what the kernel held for the old one is gone. On several rails, and where
// the network changes the order, that can't be: writes are complete when they are delivered. Where one rail keeps the
// order:
//
//   the target   misses a number, and loses the source;
//   the source   ends a row of writes with a probe, or the loss of the last ones would show only with the next;
//   both         tell a peer that they have lost, through the bootstrap, so that it need not wait for its time limit.
//
// What the source finds may mean that the peer has left in good order, or died, of which the news comes another way. So it
// is a suspicion at first: the peer confirms it, or the news comes, or nothing does for a heartbeat, at least a second. Until
// then posts find no room. What the target misses is lost, whatever comes.
#include <algorithm>
#include <utility>

#include "base/env.hpp"
#include "base/log.hpp"
#include "net/ofi_endpoint.hpp"

namespace switchyard {
namespace {

uint64_t look_interval_ns() { return env().heartbeat_ms * kMillisecond / 4; }
// Who was there is there soon, or gone.
uint64_t reconnect_limit_ns() { return env().heartbeat_ms * kMillisecond * 3 / 2; }
// News of a departure may be late where machines are busy.
uint64_t suspicion_limit_ns() { return std::max(env().heartbeat_ms * kMillisecond, kSecond); }

// Of what this end has found out itself.
constexpr const char* kWhereToLook = " (see `ip -s link` and the kernel's log of both machines)";

}  // namespace

// ---- peers that don't answer ----

// "Again" is all that a provider says while it tries to connect, to a process that ended, for ever; and where it has no
// room; or what is wrong at the moment (is_for_a_moment()). Nothing is in flight to a peer that it does not reach, and either nothing to others, or it takes what is for
// them. What is complete may have been in its way until it is polled. Time in which nobody tried says nothing.
bool OfiEndpoint::keeps_refusing(int rank, size_t rail) {
  Peer& peer = peers_[size_t(rank)];
  Way& way = rails_[rail].ways[size_t(rank)];
  const uint64_t limit_ns = way.was_reached ? std::min(reconnect_limit_ns(), kConnectLimitNs) : kConnectLimitNs;
  const uint64_t now = now_ns(), last = std::exchange(peer.last_refused_ns, now);
  if (last == 0 || now - last > std::max(limit_ns, 2 * look_interval_ns())) peer.refused_for_ns = 0;
  else peer.refused_for_ns += std::min(now - last, look_interval_ns());
  if (std::exchange(peer.num_posted_when_refused, num_posted_) != num_posted_) peer.took_others_ns = now;
  const bool takes_others = now - peer.took_others_ns < look_interval_ns();
  const auto lacks_only_a_way = [&] { return peer.num_in_flight == 0 && (num_in_flight_ == 0 || takes_others); };
  if (lacks_only_a_way()) way.is_refused = way.was_reached && rails_[rail].fabric.connects();
  poll();
  if (!lacks_only_a_way()) peer.refused_for_ns = 0;
  return peer.refused_for_ns > limit_ns;
}

void OfiEndpoint::has_way(int rank, size_t rail) {
  Way& way = rails_[rail].ways[size_t(rank)];
  peers_[size_t(rank)].last_refused_ns = 0;
  way.was_reached = true;
  if (!std::exchange(way.is_refused, false)) return;
  log(LogLevel::kWarn, "rank ", rank_, ": the network had no way to rank ", rank,
      ", which it had reached before, and has one again: "
      "a connection has ended and was made anew. Should anything have been lost with it, there will be an error");
}

void OfiEndpoint::look_at_links() {
  const Interface* lost = links_->lost();
  if (lost == nullptr) return;
  fail(Status::remote(text("rank ", rank_, ": interface ", lost->name, " (address ", lost->address,
                           ") is down or has no carrier, and carries a share of all puts; see `ip link show ",
                           lost->name, "`, or start without it in SWITCHYARD_INTERFACE")));
}

// A few times a heartbeat, however often it is called.
void OfiEndpoint::look_after_peers() {
  const uint64_t now = now_ns();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + look_interval_ns();
  for (int peer = 0; peer < int(peers_.size()); ++peer) {
    if (!has_left(peer) && usable(peer)) probe(peer);
  }
}

// Once no write has followed the last one for a while. It is complete when it was delivered: if the connection ends
// before, there is an error.
void OfiEndpoint::probe(int rank) {
  Peer& peer = peers_[size_t(rank)];
  const bool is_quiet = std::exchange(peer.num_posted_at_last_look, peer.num_posted) == peer.num_posted;
  if (is_quiet && peer.num_asked < peer.num_posted) write_fence(rank);
}

// ---- what is lost ----

void OfiEndpoint::fail(const Status& why) {
  if (stop(why)) losses_.tell_all(why.message());
}

// True: it had not failed yet. Any thread, with the endpoint's lock or without: abort() must not wait for it.
bool OfiEndpoint::stop(const Status& why) {
  note(why, failure_);
  return !failed_.exchange(true, std::memory_order_release);  // pairs with the acquire in usable()
}

// This end alone has found it. Posts are not taken until it is settled.
void OfiEndpoint::suspect(int rank, const std::string& why) {
  Peer& peer = peers_[size_t(rank)];
  if (has_left(rank) || !usable(rank) || peer.suspected_ns != 0) return;
  peer.suspicion = why;  // may throw, and then nothing is suspected
  peer.suspected_ns = now_ns();
  ++num_suspected_;
  log(LogLevel::kInfo, "rank ", rank_, ": does the network still reach rank ", rank, "? ", why);
  losses_.tell(rank, why);
}

// One peer, for certain; the others go on.
void OfiEndpoint::lose(int peer, const std::string& why) {
  if (mark_lost(peer, why + kWhereToLook)) losses_.tell(peer, why);
}

// True: it was not yet. Any thread, with the endpoint's lock or without.
bool OfiEndpoint::mark_lost(int peer, const std::string& why) {
  if (has_left(peer)) return false;
  note(Status::remote(text("rank ", rank_, ": the network lost rank ", peer, ": ", why)), peers_[size_t(peer)].why_lost);
  const bool is_news = !peers_[size_t(peer)].lost.exchange(true, std::memory_order_release);  // pairs with the acquire in usable()
  somebody_is_gone_.store(true, std::memory_order_release);  // pairs with the acquire in settle_losses()
  return is_news;
}

// Both without the lock: who is in the middle of a post may hold it for long, and is let go by this. What is in flight is
// seen to with the next poll.
void OfiEndpoint::give_up(int peer, const std::string& why) { mark_lost(peer, why); }

void OfiEndpoint::forget(int peer) {
  peers_[size_t(peer)].left.store(true, std::memory_order_relaxed);
  somebody_is_gone_.store(true, std::memory_order_release);  // as in mark_lost()
}

void OfiEndpoint::settle_losses() {
  if (num_suspected_ == 0 && !somebody_is_gone_.load(std::memory_order_relaxed)) return;
  somebody_is_gone_.exchange(false, std::memory_order_acquire);  // pairs with mark_lost() and forget()
  for (int rank = 0; rank < int(peers_.size()); ++rank) {
    Peer& peer = peers_[size_t(rank)];
    const auto is_gone = [&] { return has_left(rank) || peer.lost.load(std::memory_order_relaxed); };
    if (peer.suspected_ns != 0) {
      if (!is_gone() && now_ns() - peer.suspected_ns > suspicion_limit_ns()) mark_lost(rank, peer.suspicion + kWhereToLook);
      if (is_gone()) {
        peer.suspected_ns = 0;
        --num_suspected_;
      }
    }
    if (is_gone()) write_off(peer);
  }
}

void OfiEndpoint::write_off(Peer& peer) {
  if (std::exchange(peer.is_written_off, true)) return;
  num_in_flight_ -= peer.num_in_flight;
  add_bytes_in_flight(-peer.bytes_in_flight);
}

// Before anybody can see that something is lost; of several reasons the first.
void OfiEndpoint::note(const Status& why, Status& where) {
  const std::lock_guard lock(error_mutex_);
  if (error_.ok()) error_ = why;
  if (where.ok()) where = why;
}

Status OfiEndpoint::error() const {
  const std::lock_guard lock(error_mutex_);
  return error_;
}

Status OfiEndpoint::why_lost(int peer) const {
  const std::lock_guard lock(error_mutex_);
  const Status& own = peers_[size_t(peer)].why_lost;
  return own.ok() ? failure_ : own;
}

}  // namespace switchyard
