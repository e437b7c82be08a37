// Sends and receives between pairs of ranks, any number at a time; ranks that have nothing to do with each other don't
// meet.
//
// The sender writes pieces into the receiver's inbox for it: by store inside a node, by put from a place of its own
// between nodes. A signal announces each, and when the receiver has copied it out it says so by another, so that the
// sender may use the place again, kDepth pieces later. Then the piece has been read here, too: it could not have been
// read there else.
//
// Transfers take turns, a piece at a time, none waits for another: all can be in flight at once, in both directions.
#pragma once
#include "coll/pipeline.hpp"

namespace switchyard::coll {

struct Transfer {
  char* buffer;
  uint64_t num_bytes;
  int32_t peer;
  int32_t is_send;
  uint64_t num_moved = 0;
  uint64_t num_coming = 0;  // of a receive: what the sender says; 0: nothing came yet

  SWITCHYARD_HD bool done() const { return num_moved == (is_send ? num_bytes : num_coming) && num_moved > 0; }
  SWITCHYARD_HD bool same_way(const Transfer& other) const { return peer == other.peer && is_send == other.is_send; }
};

template <class P>
class PairTransfers {
 public:
  // REQUIRES  transfers of one peer and direction lie side by side, in the order in which they were asked for; none is
  // empty.
  SWITCHYARD_DEVICE PairTransfers(Context<P>& context, Transfer* transfers, int num_transfers)
      : c_(context), gin_(context.p, context.v.comm, kPairsContext), transfers_(transfers), num_(num_transfers) {}

  // BLOCKING  until all are done; each wait for anything to move at all is limited.
  SWITCHYARD_DEVICE bool run() {
    const DeviceComm& comm = c_.v.comm;
    while (first_open() < num_) {
      int looked_at = 0;
      const auto moves = [&] { return !ok_ || pass(); };
      const auto gone = [&] {
        looked_at = (looked_at + 1) % num_;  // one a look
        return !transfers_[looked_at].done() && is_gone(c_.p, comm, transfers_[looked_at].peer);
      };
      const WaitEnd end = wait_for_peers(c_.p, moves, gone, comm.timeout_ns, comm.abort);
      if (!ok_) return false;
      if (end == WaitEnd::kReady) continue;
      const Transfer& missing = transfers_[end == WaitEnd::kPeerGone ? looked_at : first_open()];
      return c_.fail(gin_status(end), missing.is_send ? Waiting::kRoom : Waiting::kArrival, missing.peer);
    }
    return true;
  }

 private:
  SWITCHYARD_DEVICE int first_open() const {
    int i = 0;
    while (i < num_ && transfers_[i].done()) ++i;
    return i;
  }

  // One piece of each transfer that can move; true if one did.
  SWITCHYARD_DEVICE bool pass() {
    bool moved = false;
    for (int i = 0; i < num_; ++i) {
      Transfer& transfer = transfers_[i];
      if (transfer.done()) continue;
      // In order, between two ranks and in one direction.
      if (i > 0 && transfers_[i - 1].same_way(transfer) && !transfers_[i - 1].done()) continue;
      moved |= transfer.is_send ? send_piece(transfer) : receive_piece(transfer);
    }
    if (!moved) c_.p.net_progress(c_.v.comm.net);
    return moved;
  }

  SWITCHYARD_DEVICE bool send_piece(Transfer& transfer) {
    const Layout& layout = c_.v.layout;
    uint64_t* const sent = &c_.v.words[layout.pair_word(Layout::kSent, transfer.peer)];
    const uint64_t message = c_.p.load_relaxed(sent);
    if (message >= kDepth &&
        !rolling_at_least(gin_.read_signal(layout.room_signal(transfer.peer)), message - kDepth + 1)) {
      return false;
    }
    const uint64_t there = layout.pair_inbox(c_.rank(), message);
    const uint64_t here = layout.pair_departure(transfer.peer, message);
    const bool by_store = c_.v.window.reaches(transfer.peer);
    char* const place = by_store ? c_.v.window.lsa(there, transfer.peer) : c_.v.window.local(here);
    const uint64_t num_bytes = min(transfer.num_bytes - transfer.num_moved, layout.pair_bytes);
    c_.p.write(reinterpret_cast<uint64_t*>(place), transfer.num_bytes);
    c_.p.copy_together(CoopWarp{}, place + Layout::kLine, transfer.buffer + transfer.num_moved, num_bytes);
    c_.p.drain();
    const SignalAdd arrival{layout.arrival_signal(c_.rank())};
    const GinStatus status = by_store ? signal(transfer.peer, arrival)
                                      : gin_.put(CoopWarp{}, transfer.peer, c_.v.window, there, c_.v.window, here,
                                                 Layout::kLine + num_bytes, arrival);
    if (!by_store) c_.count_sent(Layout::kLine + num_bytes);
    c_.p.store_relaxed(sent, message + 1);
    SWITCHYARD_KERNEL_FAILPOINT("coll.pair.piece_sent");
    transfer.num_moved += num_bytes;
    return is_ok(status, transfer.peer);
  }

  SWITCHYARD_DEVICE bool receive_piece(Transfer& transfer) {
    const Layout& layout = c_.v.layout;
    uint64_t* const received = &c_.v.words[layout.pair_word(Layout::kAwaited, transfer.peer)];
    const uint64_t message = c_.p.load_relaxed(received);
    if (!rolling_at_least(gin_.read_signal(layout.arrival_signal(transfer.peer)), message + 1)) return false;
    const char* const place = c_.v.window.local(layout.pair_inbox(transfer.peer, message));
    transfer.num_coming = c_.p.read(reinterpret_cast<const uint64_t*>(place));
    const uint64_t num_bytes = min(transfer.num_coming - transfer.num_moved, layout.pair_bytes);
    // If the two disagree, what comes is taken to its end, and what was not expected goes nowhere.
    const uint64_t room = transfer.num_moved < transfer.num_bytes ? transfer.num_bytes - transfer.num_moved : 0;
    c_.p.copy_together(CoopWarp{}, transfer.buffer + transfer.num_moved, place + Layout::kLine, min(num_bytes, room));
    c_.p.drain();
    c_.p.store_relaxed(received, message + 1);
    SWITCHYARD_KERNEL_FAILPOINT("coll.pair.piece_received");
    transfer.num_moved += num_bytes;
    return is_ok(signal(transfer.peer, SignalAdd{layout.room_signal(c_.rank())}), transfer.peer);
  }

  SWITCHYARD_DEVICE GinStatus signal(int rank, SignalAdd action) {
    return c_.p.lane() == 0 ? gin_.signal(rank, action) : GinStatus::kOk;
  }
  SWITCHYARD_DEVICE bool is_ok(GinStatus status, int peer) {
    if (status != GinStatus::kOk) ok_ = c_.fail(status, Waiting::kNetwork, peer);
    return true;
  }
  static SWITCHYARD_DEVICE uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }

  Context<P>& c_;
  const Gin<P> gin_;
  Transfer* const transfers_;
  const int num_;
  bool ok_ = true;
};

}  // namespace switchyard::coll
