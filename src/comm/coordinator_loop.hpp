// The thread of a Coordinator: one poll(2) loop over the listener and all connections. It never blocks on a single
// peer.
//
// THREADS  run() in one thread; stop(), counters() and ended() from any.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "comm/channel.hpp"
#include "comm/coordinator.hpp"
#include "comm/exchange_table.hpp"
#include "comm/handshake.hpp"
#include "comm/message.hpp"

namespace switchyard {

constexpr size_t kMinHalfOpen = 64;

class Coordinator::Loop {
 public:
  Loop(Fd listener, Fd wakeup, const JobSecret& secret, uint64_t startup_ns);
  void run();
  void stop();

  CoordinatorCounters counters() const;
  // acquire; pairs with the release at the end of run()
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // The job is coming to its end: some ranks are gone, others still connected.
  bool is_ending() const { return num_gone_.load(std::memory_order_relaxed) > 0 && !ended(); }

 private:
  // A network, by its name, does not join a rank to this one any more.
  struct Loss {
    uint64_t comm_id;
    uint32_t rank;
    bool is_confirmed = false;  // by the rank
  };
  struct Peer {
    Peer(Fd socket, std::string name, const JobSecret& secret)
        : channel(std::move(socket), std::move(name)), handshake(secret), accepted_ns(now_ns()) {}
    bool half_open() const { return rank < 0; }

    FrameChannel channel;
    ServerHandshake handshake;
    uint64_t accepted_ns;
    int rank = -1;
    bool refused = false;       // told so; stays until it hangs up or its handshake time is over
    bool left = false;          // said goodbye
    std::deque<Loss> losses;    // that it told of, but of who has left; the newest last
    std::optional<Status> end;  // this connection is over, and why
  };
  enum class RankState { kAbsent, kJoined, kLeft, kDied };

  // Events
  void wait_for_events();
  void accept_all();
  // The oldest half-open connection if there are as many as allowed, else nothing.
  Peer* oldest_of_too_many() const;
  uint64_t room_at_ns() const;
  bool make_room();
  void read_from(Peer& peer);
  void expire_handshakes();
  void send_heartbeats();
  // Announces ended connections and writes what is queued, until neither causes more of the other.
  void settle();
  bool finished() const;

  // Protocol
  Status take_frame(Peer& peer, const Frame& frame);
  void admit(Peer& peer);
  Status why_refused(const HandshakeHello& hello);
  void refuse(Peer& peer, const Status& status);
  Status take_exchange(Peer& peer, const Frame& frame);
  void take_abort(int rank, const std::string& reason);
  Loss* find_loss(uint32_t teller, uint64_t comm_id, uint32_t rank);
  Status take_unreachable(Peer& peer, const Frame& frame);
  Status take_left_network(const Peer& peer, const Frame& frame);
  void rank_gone(Peer& peer);

  void send_to_rank(int rank, FrameType type, const SharedPayload& payload);
  void send_to_all(FrameType type, std::vector<std::byte> payload);
  void announce(Announcement announcement);

  // Small jobs have as many places as those of unknown size: with fewer, ranks that come late would queue behind
  // every silent stranger.
  size_t max_half_open() const { return std::max<size_t>(kMinHalfOpen, 2 * ranks_.size()); }

  Fd listener_;
  Fd wakeup_;  // an eventfd: stop() makes it readable
  const JobSecret secret_;
  const Deadline startup_;
  std::vector<std::unique_ptr<Peer>> peers_;  // in order of arrival
  std::vector<RankState> ranks_;              // empty until the first rank has told how many there are
  std::vector<Peer*> peer_of_rank_;
  size_t num_ever_joined_ = 0;
  int first_rank_ = -1;  // who told num_ranks
  Status over_;          // once the job can't go on: aborted, or could not form
  ExchangeTable exchanges_;
  std::set<uint64_t> broken_networks_;  // of which a loss was confirmed
  uint64_t heartbeat_due_ns_ = 0;
  uint64_t accept_again_ns_ = 0;  // no accept before: the process has no descriptor left

  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  // Statistics, read by counters(); relaxed because they order nothing.
  std::atomic<uint64_t> num_joined_{0};
  std::atomic<uint64_t> num_gone_{0};
  std::atomic<uint64_t> num_dropped_{0};
  std::atomic<uint64_t> num_refused_{0};
};

}  // namespace switchyard
