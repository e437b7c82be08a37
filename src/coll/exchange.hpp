// All-gather, broadcast, all-to-all: senders stage what they have, and everybody takes what is for it.
//
// Inside a node everybody reads the sender's stage. To every other node the sender puts it once, into the inbox of its
// rail partner there, where all ranks of that node read it. In phases of a piece:
//
//   depart      the sender fills its stage and puts it to its partners
//   from_node   everybody takes from the stages of its node; partners wait for what comes to them
//   from_rails  everybody takes from the inboxes of its node
//   release     partners tell the senders that their messages were read
//
// What is staged and taken is the business of Data:
//   bool fill(piece)                                 puts what I send into `place(bank)` of my window
//   uint64_t place(bank)
//   int num_chunks(node); Chunk chunk(node, i, piece)  what of it goes to that node
//   void take(sender, piece, const char* place, by_rail)
#pragma once
#include "coll/rails.hpp"

namespace switchyard::coll {

template <class P, class Data>
class Exchange {
 public:
  // Senders are the ranks [first, first + num).
  SWITCHYARD_DEVICE Exchange(Context<P>& context, Data& data, int first, int num)
      : c_(context), data_(data), rails_(context, Rail::kShares), first_(first), num_(num) {}

  SWITCHYARD_DEVICE bool run(uint64_t num_pieces) {
    const auto departing = [&](uint64_t piece) { return depart(piece); };
    const auto taking_from_node = [&](uint64_t piece) { return from_node(piece); };
    if (c_.one_node()) return in_steps(c_, num_pieces, departing, taking_from_node);
    return in_steps(
        c_, num_pieces, departing, taking_from_node, [&](uint64_t piece) { return from_rails(piece); },
        [&](uint64_t) { return release(); });
  }

  SWITCHYARD_DEVICE bool depart(uint64_t piece) {
    if (!is_sender(c_.rank())) return true;
    if (!rails_.await_sources(c_.bank()) || !data_.fill(piece)) return false;
    c_.p.drain();
    const DeviceComm& comm = c_.v.comm;
    for (int i = 1; i < comm.num_nodes; ++i) {
      const int node = (comm.node + i) % comm.num_nodes;  // not all to the same node at first
      const auto chunk_of = [&](int chunk) { return data_.chunk(node, chunk, piece); };
      if (!rails_.send(comm.rail_peer(node), data_.num_chunks(node), chunk_of)) return false;
    }
    return true;
  }

  SWITCHYARD_DEVICE bool from_node(uint64_t piece) {
    const DeviceComm& comm = c_.v.comm;
    for (int i = 0; i < comm.lsa.num_ranks; ++i) {
      // Beginning with the next rank, so that not all read the same stage at once.
      const int sender = comm.lsa.world_rank((comm.lsa.rank + i) % comm.lsa.num_ranks);
      if (!is_sender(sender)) continue;
      data_.take(sender, piece, c_.v.window.lsa(data_.place(c_.previous_bank()), sender), false);
    }
    for (int sender = first_; sender < first_ + num_; ++sender) {
      if (comes_through(sender) == c_.rank() && !rails_.await(sender)) return false;
    }
    return true;
  }

  SWITCHYARD_DEVICE bool from_rails(uint64_t piece) {
    for (int sender = first_; sender < first_ + num_; ++sender) {
      const int receiver = comes_through(sender);
      if (receiver >= 0) data_.take(sender, piece, rails_.read(sender, receiver), true);
    }
    return true;
  }

  SWITCHYARD_DEVICE bool release() {
    for (int sender = first_; sender < first_ + num_; ++sender) {
      if (comes_through(sender) == c_.rank()) rails_.release(sender);
    }
    return true;
  }

 private:
  SWITCHYARD_DEVICE bool is_sender(int rank) const { return rank >= first_ && rank < first_ + num_; }
  // The rank of my node that gets what this sender sends; -1: the sender is of my node.
  SWITCHYARD_DEVICE int comes_through(int sender) const {
    const DeviceComm& comm = c_.v.comm;
    return comm.lsa.contains(sender) ? -1 : comm.rail_peer_of(sender, comm.node);
  }

  Context<P>& c_;
  Data& data_;
  Rails<P> rails_;
  const int first_, num_;
};

// The same bytes for everybody: of one sender (broadcast), or of each, side by side (all-gather).
template <class P>
struct SameForAll {
  Context<P>& c;
  const char* in;
  char* out;
  uint64_t stride;  // between what two senders send, in `out`
  Pieces pieces;

  SWITCHYARD_DEVICE char* out_of(int sender, uint64_t piece) const {
    return out + uint64_t(sender) * stride + pieces.begin(piece);
  }
  SWITCHYARD_DEVICE uint64_t place(int bank) const { return c.v.layout.stage(bank); }
  SWITCHYARD_DEVICE bool fill(uint64_t piece) {
    const char* const mine = in + pieces.begin(piece);
    char* const places[] = {c.v.window.local(place(c.bank())), out_of(c.rank(), piece)};
    c.p.push(mine, places, mine == places[1] ? 1 : 2, pieces.size(piece));
    return true;
  }
  SWITCHYARD_DEVICE int num_chunks(int /*node*/) const { return 1; }
  SWITCHYARD_DEVICE Chunk chunk(int /*node*/, int /*idx*/, uint64_t piece) const {
    return {place(c.bank()), 0, pieces.size(piece)};
  }
  SWITCHYARD_DEVICE void take(int sender, uint64_t piece, const char* from, bool /*by_rail*/) const {
    if (sender != c.rank()) c.p.copy_together(CoopWarp{}, out_of(sender, piece), from, pieces.size(piece));
  }
};

template <class P>
SWITCHYARD_DEVICE bool all_gather(Context<P>& c, const char* in, char* out, uint64_t num_bytes) {
  SameForAll<P> data{c, in, out, num_bytes, {num_bytes, c.v.layout.stage_bytes, Layout::kLine}};
  return Exchange<P, SameForAll<P>>(c, data, 0, c.num_ranks()).run(data.pieces.num());
}

template <class P>
SWITCHYARD_DEVICE bool broadcast(Context<P>& c, const char* in, char* out, uint64_t num_bytes, int root) {
  SameForAll<P> data{c, in, out, 0, {num_bytes, c.v.layout.stage_bytes, Layout::kLine}};
  return Exchange<P, SameForAll<P>>(c, data, root, 1).run(data.pieces.num());
}

// Bytes between two ranks, in their buffers.
struct Extent {
  uint64_t offset;
  uint64_t num_bytes;
};

// Something else for everybody. Of each pair of ranks a piece carries the next slice_bytes(), as long as there are any.
// Plan: Extent to(rank), what I send it; Extent from(rank), what I get.
template <class P, class Plan>
struct ForEach {
  Context<P>& c;
  const char* in;
  char* out;
  Plan plan;

  // What is left of an extent in this piece.
  SWITCHYARD_DEVICE Extent slice(const Extent& whole, uint64_t piece) const {
    const uint64_t per_piece = c.v.layout.slice_bytes();
    const uint64_t begin = piece * per_piece;
    if (begin >= whole.num_bytes) return {whole.offset, 0};
    const uint64_t left = whole.num_bytes - begin;
    return {whole.offset + begin, left < per_piece ? left : per_piece};
  }
  SWITCHYARD_DEVICE uint64_t place(int bank) const { return c.v.layout.stage(bank); }
  SWITCHYARD_DEVICE bool fill(uint64_t piece) {
    for (int rank = 0; rank < c.num_ranks(); ++rank) {
      const Extent mine = slice(plan.to(rank), piece);
      if (rank == c.rank() || mine.num_bytes == 0) continue;  // take() copies what is mine
      c.p.copy_together(CoopWarp{}, c.v.window.local(c.v.layout.stage_slice(c.bank(), rank)), in + mine.offset,
                        mine.num_bytes);
    }
    return true;
  }
  SWITCHYARD_DEVICE int num_chunks(int node) const { return c.v.comm.node_size[node]; }
  SWITCHYARD_DEVICE Chunk chunk(int node, int idx, uint64_t piece) const {
    const int rank = c.v.comm.node_first[node] + idx;
    return {c.v.layout.stage_slice(c.bank(), rank), uint64_t(idx) * c.v.layout.slice_bytes(),
            slice(plan.to(rank), piece).num_bytes};
  }
  SWITCHYARD_DEVICE void take(int sender, uint64_t piece, const char* place, bool by_rail) const {
    const Extent theirs = slice(plan.from(sender), piece);
    if (theirs.num_bytes == 0) return;
    char* const to = out + theirs.offset;
    // A stage has a slice for every rank, a message for the ranks of the node.
    const int slice_idx = by_rail ? c.v.comm.lsa.rank : c.rank();
    const char* from = place + uint64_t(slice_idx) * c.v.layout.slice_bytes();
    if (sender == c.rank()) from = in + slice(plan.to(sender), piece).offset;
    if (from != to) c.p.copy_together(CoopWarp{}, to, from, theirs.num_bytes);
  }
};

// The same number of bytes between all ranks, side by side. in == out is allowed.
struct EvenPlan {
  uint64_t num_bytes;
  SWITCHYARD_HD Extent to(int rank) const { return {uint64_t(rank) * num_bytes, num_bytes}; }
  SWITCHYARD_HD Extent from(int rank) const { return to(rank); }
};

template <class P, class Plan>
SWITCHYARD_DEVICE bool all_to_all(Context<P>& c, const char* in, char* out, uint64_t most_bytes, const Plan& plan) {
  ForEach<P, Plan> data{c, in, out, plan};
  const uint64_t per_piece = c.v.layout.slice_bytes();
  return Exchange<P, ForEach<P, Plan>>(c, data, 0, c.num_ranks()).run((most_bytes + per_piece - 1) / per_piece);
}

// What each rank sends and expects. Where a sender has less than is expected only that is taken; where it has more,
// what is expected.
struct UnevenPlan {
  const Extent* sent;         // [ranks]
  const Extent* expected;     // [ranks]
  const Announcement* heard;  // [ranks]
  SWITCHYARD_HD Extent to(int rank) const { return sent[rank]; }
  SWITCHYARD_HD Extent from(int rank) const {
    const uint64_t coming = heard[rank].to_you;
    return {expected[rank].offset, coming < expected[rank].num_bytes ? coming : expected[rank].num_bytes};
  }
};

// told, heard: [ranks], to work with; what was heard from whom stays there, for the caller to compare. A rank that
// finds that others disagree goes on with them all the same, so that nobody waits for it.
template <class P>
SWITCHYARD_DEVICE bool all_to_all_v(Context<P>& c, const char* in, char* out, const Extent* sent,
                                    const Extent* expected, Announcement* told, Announcement* heard) {
  uint64_t greatest = 0;
  for (int rank = 0; rank < c.num_ranks(); ++rank) {
    if (sent[rank].num_bytes > greatest) greatest = sent[rank].num_bytes;
  }
  for (int rank = 0; rank < c.num_ranks(); ++rank) c.p.write(&told[rank], Announcement{sent[rank].num_bytes, greatest});
  if (!c.greet(told, heard)) return false;
  for (int rank = 0; rank < c.num_ranks(); ++rank) {
    const uint64_t theirs = c.p.read(&heard[rank]).greatest;
    if (theirs > greatest) greatest = theirs;
  }
  return all_to_all(c, in, out, greatest, UnevenPlan{sent, expected, heard});
}

}  // namespace switchyard::coll
