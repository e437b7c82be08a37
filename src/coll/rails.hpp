// Messages between ranks of different nodes, in order, with room for kDepth of them at the receiver.
//
// A message is put into the receiver's inbox and announced by a signal. When it has been read the receiver says so by
// another, and its place is free for the sender's message kDepth later. Sources are in the sender's window, in the bank
// of the step; a counter for each bank says when the network has read them.
#pragma once
#include "coll/pipeline.hpp"

namespace switchyard::coll {

// A part of a message: from my window to the message.
struct Chunk {
  uint64_t from;
  uint64_t to;
  uint64_t num_bytes;
};

template <class P>
class Rails {
 public:
  SWITCHYARD_DEVICE Rails(Context<P>& context, Rail rail)
      : c_(context), rail_(rail), gin_(context.p, context.v.comm, int(rail)) {}

  // BLOCKING  until the network has read what was sent from this bank, and it may be written again.
  SWITCHYARD_DEVICE bool await_sources(int bank) {
    const DeviceComm& comm = c_.v.comm;
    if (comm.num_nodes == 1) return true;
    const uint64_t num_puts = c_.p.load_relaxed(num_puts_word(bank));
    const auto are_read = [&] {
      if (rolling_at_least(gin_.read_counter(bank), num_puts)) return true;
      c_.p.net_progress(comm.net);
      return false;
    };
    int looked_at = 0;
    const auto gone = [&] {
      looked_at = (looked_at + 1) % comm.world.num_ranks;  // one a look
      return is_receiver(looked_at) && is_gone(c_.p, comm, looked_at);
    };
    const WaitEnd end = wait_for_peers(c_.p, are_read, gone, comm.timeout_ns, comm.abort);
    return is_ok(gin_status(end), Waiting::kNetwork, end == WaitEnd::kPeerGone ? looked_at : -1);
  }

  // One message of chunks chunk_of(0) ..., of this step's bank.
  // REQUIRES  sources are drained.
  // BLOCKING  until the receiver has room.
  template <class ChunkOf>
  SWITCHYARD_DEVICE bool send(int receiver, int num_chunks, ChunkOf chunk_of) {
    uint64_t* const sent = count(Layout::kSent, receiver);
    const uint64_t message = c_.p.load_relaxed(sent);
    if (message >= kDepth && !is_ok(gin_.wait_signal(layout().room_signal(receiver), message - kDepth + 1, receiver),
                                    Waiting::kRoom, receiver)) {
      return false;
    }
    const SignalAdd arrival{layout().arrival_signal(c_.rank())};
    const uint64_t place = inbox(c_.rank(), receiver, message);
    const int bank = c_.bank();
    SWITCHYARD_KERNEL_FAILPOINT("coll.rail.before_put");
    for (int i = 0; i < num_chunks; ++i) {
      const Chunk chunk = chunk_of(i);
      const bool last = i + 1 == num_chunks;
      GinStatus status = GinStatus::kOk;
      if (chunk.num_bytes > 0) {
        c_.count_sent(chunk.num_bytes);
        c_.p.store_relaxed(num_puts_word(bank), c_.p.load_relaxed(num_puts_word(bank)) + 1);
        const auto put = [&](auto remote) {
          return gin_.put(CoopWarp{}, receiver, c_.v.window, place + chunk.to, c_.v.window, chunk.from, chunk.num_bytes,
                          remote, CounterAdd{bank});
        };
        status = last ? put(arrival) : put(NoAction{});
      } else if (last) {
        status = signal(receiver, arrival);
      }
      if (!is_ok(status, Waiting::kNetwork, receiver)) return false;
    }
    c_.p.store_relaxed(sent, message + 1);
    SWITCHYARD_KERNEL_FAILPOINT("coll.rail.after_put");
    return true;
  }

  // BLOCKING  until the next message of this sender to me is there.
  SWITCHYARD_DEVICE bool await(int sender) {
    uint64_t* const awaited = count(Layout::kAwaited, sender);
    const uint64_t least = c_.p.load_relaxed(awaited) + 1;
    if (!is_ok(gin_.wait_signal(layout().arrival_signal(sender), least, sender), Waiting::kArrival, sender))
      return false;
    c_.p.store_relaxed(awaited, least);
    SWITCHYARD_KERNEL_FAILPOINT("coll.rail.message_came");
    return true;
  }

  // The next message from this sender to my node. REQUIRES  I have awaited it, or met somebody who has.
  SWITCHYARD_DEVICE const char* read(int sender, int receiver) {
    uint64_t* const num_read = count(Layout::kRead, sender);
    const uint64_t message = c_.p.load_relaxed(num_read);
    c_.p.store_relaxed(num_read, message + 1);
    return c_.v.window.lsa(inbox(sender, receiver, message), receiver);
  }

  // Its oldest message to me has been read by all who had to. A signal that is lost is the network's end, which whoever
  // waits for it finds out.
  SWITCHYARD_DEVICE void release(int sender) {
    SWITCHYARD_KERNEL_FAILPOINT("coll.rail.before_release");
    (void)signal(sender, SignalAdd{layout().room_signal(c_.rank())});
  }

 private:
  SWITCHYARD_DEVICE const Layout& layout() const { return c_.v.layout; }
  SWITCHYARD_DEVICE uint64_t* count(Layout::Count which, int rank) const {
    return &c_.v.words[layout().count_word(rail_, which, rank)];
  }
  SWITCHYARD_DEVICE uint64_t* num_puts_word(int bank) const { return &c_.v.words[layout().num_puts_word(rail_, bank)]; }

  // Do I send to this rank? Others may be through with the operation already, and leave.
  SWITCHYARD_DEVICE bool is_receiver(int rank) const {
    const DeviceComm& comm = c_.v.comm;
    if (comm.lsa.contains(rank)) return false;
    if (rail_ == Rail::kPartials) return comm.rail_peer_of(rank, comm.node) == c_.rank();
    return comm.rail_peer(comm.node_of(rank)) == rank;
  }

  // Partials come from one rank of a node, shares from all whose partner the receiver is.
  SWITCHYARD_DEVICE uint64_t inbox(int sender, int receiver, uint64_t message) const {
    const DeviceComm& comm = c_.v.comm;
    const int node = comm.node_of(sender);
    if (rail_ == Rail::kPartials) return layout().partials_inbox(node, message);
    const int sender_idx = (sender - comm.node_first[node]) / comm.node_size[comm.node_of(receiver)];
    return layout().shares_inbox(node, sender_idx, message);
  }

  SWITCHYARD_DEVICE GinStatus signal(int rank, SignalAdd action) {
    return c_.p.lane() == 0 ? gin_.signal(rank, action) : GinStatus::kOk;
  }
  SWITCHYARD_DEVICE bool is_ok(GinStatus status, Waiting waiting, int who) {
    return status == GinStatus::kOk || c_.fail(status, waiting, who);
  }

  Context<P>& c_;
  const Rail rail_;
  const Gin<P> gin_;
};

}  // namespace switchyard::coll
