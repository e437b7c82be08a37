// Reduce-scatter and all-reduce. Every element has one rank that finishes it, the owner of its share.
//
// Inside a node shares are added up by load and store, in rank order. Between nodes a share's sum over the ranks of a
// node is made by the owner's rail partner there, rounded to the element type and put to the owner, who adds up one
// such partial of each node, its own included, in the order of nodes, and rounds again. So what a node has to say about
// an element crosses the network once, and all ranks get the same bits. In phases of a piece:
//
//   stage          everybody stages slices of the shares that others of its node reduce
//   send_partials  partners reduce slices of other nodes' shares, over their node, and put them to the owners
//   finish         owners reduce their slices: over their node, or over all nodes' partials
//
// An all-reduce then spreads what owners have, as an all-gather does (exchange.hpp).
#pragma once
#include "coll/exchange.hpp"
#include "coll/reduce_rows.hpp"
#include "switchyard/device/multimem.hpp"

namespace switchyard::coll {

// What of the input belongs to whom. Shares: Extent slice(owner, piece), in elements.
template <class P, class Shares>
class Reducer {
 public:
  SWITCHYARD_DEVICE Reducer(Context<P>& context, const Reduction& how, const char* in, const Shares& shares)
      : c_(context), rails_(context, Rail::kPartials), how_(how), in_(in), shares_(shares) {}

  SWITCHYARD_DEVICE bool stage(uint64_t piece) {
    // An exchange before this one may have sent from there.
    if (!Rails<P>(c_, Rail::kShares).await_sources(c_.bank())) return false;
    for (int owner = 0; owner < c_.num_ranks(); ++owner) {
      if (reduced_by(owner) == c_.rank()) continue;  // nobody else reads it: it is read where it is
      c_.p.copy_together(CoopWarp{}, c_.v.window.local(c_.v.layout.stage_slice(c_.bank(), owner)), input(owner, piece),
                         num_bytes(owner, piece));
    }
    return true;
  }

  SWITCHYARD_DEVICE bool send_partials(uint64_t piece) {
    const int bank = c_.bank();
    if (!rails_.await_sources(bank)) return false;
    for (int owner = 0; owner < c_.num_ranks(); ++owner) {
      if (reduced_by(owner) != c_.rank()) continue;
      const uint64_t partial = c_.v.layout.partial(bank, owner);
      over_node(owner, piece, c_.v.window.local(partial), 1);
      SWITCHYARD_KERNEL_FAILPOINT("coll.rail.partial_summed");
      if (owner == c_.rank()) continue;
      c_.p.drain();
      if (!rails_.send(owner, 1, [&](int) { return Chunk{partial, 0, num_bytes(owner, piece)}; })) return false;
    }
    return true;
  }

  // Into `out`.
  SWITCHYARD_DEVICE bool finish(uint64_t piece, char* out) {
    const DeviceComm& comm = c_.v.comm;
    const int me = c_.rank();
    const int divisor = how_.op == ReduceOp::kAvg ? c_.num_ranks() : 1;
    if (c_.one_node()) {
      over_node(me, piece, out, divisor);
      return true;
    }
    for (int node = 0; node < comm.num_nodes; ++node) {
      if (node == comm.node) {
        c_.v.sources[node] = c_.v.window.local(c_.v.layout.partial(c_.previous_bank(), me));
        continue;
      }
      if (!rails_.await(comm.rail_peer(node))) return false;
      c_.v.sources[node] = rails_.read(comm.rail_peer(node), me);
    }
    reduce(out, comm.num_nodes, shares_.slice(me, piece).num_bytes, divisor);
    for (int node = 0; node < comm.num_nodes; ++node) {
      if (node != comm.node) rails_.release(comm.rail_peer(node));
    }
    return true;
  }

 private:
  // The rank of my node that reduces this owner's share over the node.
  SWITCHYARD_DEVICE int reduced_by(int owner) const {
    const DeviceComm& comm = c_.v.comm;
    return comm.lsa.contains(owner) ? owner : comm.rail_peer_of(owner, comm.node);
  }
  SWITCHYARD_DEVICE const char* input(int owner, uint64_t piece) const {
    return in_ + shares_.slice(owner, piece).offset * dtype_bytes(how_.dtype);
  }
  SWITCHYARD_DEVICE uint64_t num_bytes(int owner, uint64_t piece) const {
    return shares_.slice(owner, piece).num_bytes * dtype_bytes(how_.dtype);
  }
  // What the ranks of my node have for an owner, as they staged it in the step before.
  SWITCHYARD_DEVICE void over_node(int owner, uint64_t piece, char* out, int divisor) {
    const Team& node = c_.v.comm.lsa;
    multimem_row(c_.v.window, node, c_.v.layout.stage_slice(c_.previous_bank(), owner)).list(c_.v.sources);
    c_.v.sources[node.rank] = input(owner, piece);
    reduce(out, node.num_ranks, shares_.slice(owner, piece).num_bytes, divisor);
  }
  SWITCHYARD_DEVICE void reduce(char* out, int num_sources, uint64_t num_elements, int divisor) {
    reduce_rows(c_.p, {how_.dtype, how_.op, divisor}, out, c_.v.sources, c_.v.ones, num_sources, num_elements);
  }

  Context<P>& c_;
  Rails<P> rails_;
  const Reduction how_;
  const char* const in_;
  const Shares shares_;
};

// Of a reduce-scatter: the shares lie side by side, and each is cut into pieces.
struct SharesSideBySide {
  uint64_t num_elements;  // of a share
  Pieces pieces;          // of a share
  SWITCHYARD_HD Extent slice(int owner, uint64_t piece) const {
    return {uint64_t(owner) * num_elements + pieces.begin(piece), pieces.size(piece)};
  }
};

template <class P>
SWITCHYARD_DEVICE bool reduce_scatter(Context<P>& c, const char* in, char* out, uint64_t num_elements,
                                      const Reduction& how) {
  const uint64_t width = dtype_bytes(how.dtype);
  const SharesSideBySide shares{num_elements, {num_elements, c.v.layout.slice_bytes() / width, Layout::kLine / width}};
  Reducer<P, SharesSideBySide> reducer(c, how, in, shares);
  const auto stage = [&](uint64_t piece) { return reducer.stage(piece); };
  const auto finish = [&](uint64_t piece) { return reducer.finish(piece, out + shares.pieces.begin(piece) * width); };
  if (c.one_node()) return in_steps(c, shares.pieces.num(), stage, finish);
  return in_steps(
      c, shares.pieces.num(), stage, [&](uint64_t piece) { return reducer.send_partials(piece); }, finish);
}

// Of an all-reduce: the vector is cut into pieces, and each piece into shares.
struct SharesOfPieces {
  int num_ranks;
  uint64_t grain;  // elements of a cache line
  Pieces pieces;
  SWITCHYARD_HD Extent slice(int owner, uint64_t piece) const {
    const uint64_t size = pieces.size(piece);
    const uint64_t share = (size + uint64_t(num_ranks) * grain - 1) / (uint64_t(num_ranks) * grain) * grain;
    const uint64_t begin = uint64_t(owner) * share;
    if (begin >= size) return {pieces.begin(piece) + size, 0};
    return {pieces.begin(piece) + begin, size - begin < share ? size - begin : share};
  }
};

// What owners spread.
template <class P, class Finish>
struct Results {
  Context<P>& c;
  char* out;
  uint64_t width;
  SharesOfPieces shares;
  Finish finish;

  SWITCHYARD_DEVICE uint64_t num_bytes(int owner, uint64_t piece) const {
    return shares.slice(owner, piece).num_bytes * width;
  }
  SWITCHYARD_DEVICE uint64_t place(int bank) const { return c.v.layout.result(bank); }
  SWITCHYARD_DEVICE bool fill(uint64_t piece) { return finish(piece, c.v.window.local(place(c.bank()))); }
  SWITCHYARD_DEVICE int num_chunks(int /*node*/) const { return 1; }
  SWITCHYARD_DEVICE Chunk chunk(int /*node*/, int /*idx*/, uint64_t piece) const {
    return {place(c.bank()), 0, num_bytes(c.rank(), piece)};
  }
  SWITCHYARD_DEVICE void take(int owner, uint64_t piece, const char* from, bool /*by_rail*/) const {
    c.p.copy_together(CoopWarp{}, out + shares.slice(owner, piece).offset * width, from, num_bytes(owner, piece));
  }
};

// Of a short vector on one node everybody reduces all: more to read, but one barrier less.
template <class P>
SWITCHYARD_DEVICE bool all_reduce_short(Context<P>& c, const char* in, char* out, uint64_t num_elements,
                                        const Reduction& how) {
  const uint64_t num_bytes = num_elements * dtype_bytes(how.dtype);
  const auto stage = [&](uint64_t) {
    c.p.copy_together(CoopWarp{}, c.v.window.local(c.v.layout.stage(c.bank())), in, num_bytes);
    return true;
  };
  const auto reduce = [&](uint64_t) {
    const Team& node = c.v.comm.lsa;
    const Reduction last{how.dtype, how.op, how.op == ReduceOp::kAvg ? node.num_ranks : 1};
    const MultimemRow rows = multimem_row(c.v.window, node, c.v.layout.stage(c.previous_bank()));
    if (last.is_plain_sum()) {
      rows.load_reduce(c.p, last.dtype, out, c.v.sources, c.v.ones, num_elements);
    } else {
      rows.list(c.v.sources);
      reduce_rows(c.p, last, out, c.v.sources, c.v.ones, node.num_ranks, num_elements);
    }
    return true;
  };
  return in_steps(c, num_bytes == 0 ? 0 : 1, stage, reduce);
}

template <class P>
SWITCHYARD_DEVICE bool all_reduce(Context<P>& c, const char* in, char* out, uint64_t num_elements,
                                  const Reduction& how) {
  constexpr uint64_t kShortBytes = 16 << 10;
  const uint64_t width = dtype_bytes(how.dtype);
  if (c.one_node() && num_elements * width <= kShortBytes) return all_reduce_short(c, in, out, num_elements, how);
  const uint64_t grain = Layout::kLine / width;
  const uint64_t most = c.v.layout.slice_bytes() / width * uint64_t(c.num_ranks());
  const SharesOfPieces shares{c.num_ranks(), grain, {num_elements, most, grain}};
  Reducer<P, SharesOfPieces> reducer(c, how, in, shares);
  const auto finish = [&](uint64_t piece, char* to) { return reducer.finish(piece, to); };
  Results<P, decltype(finish)> results{c, out, width, shares, finish};
  Exchange<P, decltype(results)> spread(c, results, 0, c.num_ranks());
  const auto stage = [&](uint64_t piece) { return reducer.stage(piece); };
  const auto depart = [&](uint64_t piece) { return spread.depart(piece); };
  const auto from_node = [&](uint64_t piece) { return spread.from_node(piece); };
  if (c.one_node()) return in_steps(c, shares.pieces.num(), stage, depart, from_node);
  return in_steps(
      c, shares.pieces.num(), stage, [&](uint64_t piece) { return reducer.send_partials(piece); }, depart, from_node,
      [&](uint64_t piece) { return spread.from_rails(piece); }, [&](uint64_t) { return spread.release(); });
}

}  // namespace switchyard::coll
