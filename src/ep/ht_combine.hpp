// High-throughput combine: the protocol, written once for every platform (docs/protocol.md).
//
// Offer: a rank's expert results are read where they are, in a window or in its outbox, by the ranks of its node.
// Partial: for every row that this rank forwarded in the dispatch, it adds up what the ranks of this node made of it and sends the
// sum back to the rank it came from: one row per token and node.
// Reduce: a rank adds up the rows of each of its tokens, in FP32 and in the order of k, the sum of another node at its first entry
// there, and rounds once.
#pragma once
#include "ep/ht_dispatch.hpp"

namespace switchyard::ep {

template <class P>
class HtOffer {
 public:
  SWITCHYARD_DEVICE HtOffer(HtContext<P>& context, const HtGate<P>& gate) : c_(context), p_(context.p), gate_(gate) {}
  SWITCHYARD_DEVICE bool done() const { return done_; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return done_ = true;
    // Of a combine just before this one somebody may still read.
    if (p_.load_relaxed(&c_.group().ht_state().offered) != 0 && !gate_.done()) return false;
    if (!began_) {
      if (c_.op.backward) copy_gradients(c_.read(c_.at.num_slots()));  // few: all at once
      began_ = true;
    }
    if (!c_.op.in_place && run_ < num_runs()) {
      copy_next_row();
      return true;
    }
    p_.drain();
    SWITCHYARD_KERNEL_FAILPOINT("ht.combine.before_offer");
    // Who can't follow its plan has told its caller so, and has no results worth adding up.
    const uint32_t flags = c_.plan_is_stale() ? kLostRows : 0;
    for (int peer = c_.group().first_local(); peer < c_.group().end_local(); ++peer) {
      if (!c_.masked(peer)) c_.tell_arrival(peer, flags);
    }
    return done_ = true;
  }

 private:
  // Rows of one source follow each other: flat once, expert-major in every zone. Those that only this rank reads stay where they
  // are.
  SWITCHYARD_DEVICE int num_runs() const { return c_.num_ranks() * (c_.op.expert_major ? c_.op.num_local : 1); }
  SWITCHYARD_DEVICE void copy_next_row() {
    const int source = run_ % c_.num_ranks();
    if (c_.group().writer(source) != c_.rank()) {
      const int slot = first_slot(source) + row_;
      if (slot < end_slot(source)) {
        copy_row(slot);
        ++row_;
        SWITCHYARD_KERNEL_FAILPOINT("ht.combine.row_staged");
        return;
      }
    }
    ++run_;
    row_ = 0;
  }
  SWITCHYARD_DEVICE int first_slot(int source) const {
    if (!c_.op.expert_major) return c_.read(c_.at.base(source));
    return c_.read(c_.at.zone_end(run_ / c_.num_ranks(), source - 1));  // before the first: where the zone begins
  }
  SWITCHYARD_DEVICE int end_slot(int source) const {
    if (!c_.op.expert_major) return first_slot(source) + c_.read(c_.at.received(source));
    return c_.read(c_.at.zone_end(run_ / c_.num_ranks(), source));
  }
  SWITCHYARD_DEVICE void copy_row(int slot) const {
    char* to = c_.group().payload[c_.rank()] + c_.group().layout.outbox() + uint64_t(slot) * c_.op.token_bytes;
    p_.push(c_.op.tokens + uint64_t(slot) * c_.op.token_bytes, &to, 1, c_.op.token_bytes);
  }
  SWITCHYARD_DEVICE void copy_gradients(int num_slots) const {
    const int64_t num = int64_t(num_slots) * (c_.op.expert_major ? 1 : c_.op.topk);
    for (int64_t i = p_.lane(); i < num; i += P::kLanes) p_.write(c_.gradients(c_.rank(), 0) + i, p_.read(c_.op.weights + i));
  }

  HtContext<P>& c_;
  const P& p_;
  const HtGate<P>& gate_;
  int run_ = 0;
  int row_ = 0;  // of the run
  bool began_ = false;
  bool done_ = false;
};

// Results of the ranks of this node, once all are there.
template <class P>
class HtResults {
 public:
  SWITCHYARD_DEVICE explicit HtResults(HtContext<P>& context) : c_(context), p_(context.p) {}
  SWITCHYARD_DEVICE bool done() const { return all_there_; }
  SWITCHYARD_DEVICE bool step() {
    if (next_peer_ < c_.group().first_local()) next_peer_ = c_.group().first_local();
    while (next_peer_ < c_.group().end_local() && !c_.failed()) {
      const PeerLine* line = c_.heard(next_peer_);
      const Await offer = c_.await_rows(next_peer_, Phase::kCombineRows);
      if (offer == Await::kNotYet) return false;
      const uint32_t window = p_.read(&line->token_window);
      if (offer == Await::kReady && window != 0 && c_.group().windows.find(window) == nullptr) {
        c_.give_up(next_peer_, Phase::kWindowMismatch);
      }
      ++next_peer_;
    }
    return all_there_ = true;
  }

  // Has that rank of this node results that can be used?
  SWITCHYARD_DEVICE bool has_of(int owner) const {
    return !c_.masked(owner) && (p_.read(&c_.heard(owner)->flags) & kLostRows) == 0;
  }
  // REQUIRES  has_of(owner).
  SWITCHYARD_DEVICE const char* row(int owner, int slot) const {
    if (owner == c_.rank()) return c_.op.tokens + uint64_t(slot) * c_.op.token_bytes;
    const PeerLine* line = c_.heard(owner);
    const uint32_t window = p_.read(&line->token_window);
    const char* rows = window != 0 ? c_.group().windows.find(window)[owner] + p_.read(&line->token_offset)
                                   : c_.group().payload[owner] + c_.group().layout.outbox();
    return rows + uint64_t(slot) * c_.op.token_bytes;
  }
  // Of entry k, whose expert is on this node; entry(column, k) as in HtRecord. 0 if it was dropped.
  template <class Entry>
  SWITCHYARD_DEVICE float gradient(Entry entry, int k) const {
    const int expert = entry(HtRecord::kExpert, k);
    const int owner = c_.owner(expert);
    if (!has_of(owner)) return 0;
    if (c_.op.expert_major) {
      const int slot = entry(HtRecord::kSlot, k);
      return slot < 0 ? 0 : p_.read(c_.gradients(owner, slot));
    }
    // The row's slot is at the first entry of the rank; the place in the row is the expert's, in ascending order.
    int slot = -1, place = 0;
    for (int other = 0; other < c_.op.topk; ++other) {
      const int other_expert = entry(HtRecord::kExpert, other);
      if (other_expert < 0 || c_.owner(other_expert) != owner) continue;
      if (entry(HtRecord::kSlot, other) >= 0) slot = entry(HtRecord::kSlot, other);
      place += other_expert < expert;
    }
    return slot < 0 ? 0 : p_.read(c_.gradients(owner, slot) + place);
  }

 private:
  HtContext<P>& c_;
  const P& p_;
  int next_peer_ = 0;
  bool all_there_ = false;
};

// Bytes of a sum between nodes: the row and, backward, the gradients of all entries.
template <class P>
SWITCHYARD_DEVICE uint64_t rail_sum_bytes(const HtContext<P>& c) {
  const uint64_t gradients = c.op.backward ? uint64_t(c.op.topk) * sizeof(float) : 0;
  return (c.op.token_bytes + gradients + 15) / 16 * 16;
}

template <class P>
class HtPartial {
 public:
  SWITCHYARD_DEVICE HtPartial(HtContext<P>& context, const HtResults<P>& results)
      : c_(context), p_(context.p), results_(results) {}
  SWITCHYARD_DEVICE bool done() const { return num_drained_ == c_.group().num_rail_sources; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) {
      num_drained_ = c_.group().num_rail_sources;
      return true;
    }
    if (!results_.done()) return false;
    bool moved = false;
    for (int idx = 0; idx < c_.group().num_rail_sources; ++idx) moved |= send_sum(idx);
    return moved;
  }

 private:
  // The next row of one source, or the end of its stream.
  SWITCHYARD_DEVICE bool send_sum(int idx) {
    const int source = p_.read(&c_.group().rail_sources[idx]);
    RailEnd& end = c_.rail_out(source);
    if (end.closed) return false;
    RailSender<P> sender(c_, source, rail_sum_bytes(c_));
    if (end.num_packed < uint64_t(c_.read(c_.at.rail_rows(idx)))) {
      if (sender.room() == Await::kNotYet) return false;
      if (!write_sum(idx, int(end.num_packed), sender.next())) sender.lacks();
      SWITCHYARD_KERNEL_FAILPOINT("ht.combine.sum_packed");
      sender.packed();
      return true;
    }
    if (!end.over) {
      sender.end();
      end.over = 1;
      return true;
    }
    if (sender.drained() == Await::kNotYet) return false;
    end.closed = 1;
    ++num_drained_;
    return true;
  }

  // False: somebody's part is missing in it.
  SWITCHYARD_DEVICE bool write_sum(int idx, int row, char* sum) const {
    const auto entry = [&](HtRecord::Column column, int k) { return c_.read(c_.at.rail(idx, row, column, k)); };
    const char* rows[kMaxTopk];
    int num_rows = 0;
    bool complete = true;
    for (int k = 0; k < c_.op.topk; ++k) {
      const int slot = entry(HtRecord::kSlot, k);
      if (slot < 0) continue;
      const int owner = c_.owner(entry(HtRecord::kExpert, k));
      if (results_.has_of(owner)) rows[num_rows++] = results_.row(owner, slot);
      else complete = false;
    }
    p_.reduce(c_.op.dtype, sum, rows, nullptr, num_rows, c_.op.num_elements);
    auto* gradients = reinterpret_cast<float*>(sum + c_.op.token_bytes);
    for (int k = 0; k < c_.op.topk && c_.op.backward; ++k) {
      p_.write(gradients + k, entry(HtRecord::kExpert, k) < 0 ? 0.0f : results_.gradient(entry, k));
    }
    return complete;
  }

  HtContext<P>& c_;
  const P& p_;
  const HtResults<P>& results_;
  int num_drained_ = 0;
};

template <class P>
class HtReduce {
 public:
  SWITCHYARD_DEVICE HtReduce(HtContext<P>& context, const HtResults<P>& results)
      : c_(context), p_(context.p), results_(results) {}
  SWITCHYARD_DEVICE bool done() const { return done_; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return done_ = true;
    if (!results_.done()) return false;
    if (token_ < c_.op.num_tokens) return reduce_token();
    return end_streams();
  }

 private:
  SWITCHYARD_DEVICE int entry(HtRecord::Column column, int k) const {
    return c_.entry(column, token_, k);
  }
  SWITCHYARD_DEVICE RailReceiver<P> stream_from(int node) const {
    return {c_, c_.group().forwarder(c_.rank(), node), rail_sum_bytes(c_)};
  }

  SWITCHYARD_DEVICE bool reduce_token() {
    // Every other node's sum that the token needs must be there.
    for (int k = 0; k < c_.op.topk; ++k) {
      const int node = remote_node(k);
      if (node >= 0 && stream_from(node).ready() == Await::kNotYet) return false;
    }
    const char* rows[kMaxTopk];
    int num_rows = 0;
    for (int k = 0; k < c_.op.topk; ++k) {
      const int slot = entry(HtRecord::kSlot, k);
      if (slot < 0) continue;
      const int owner = c_.owner(entry(HtRecord::kExpert, k));
      const char* row = nullptr;
      if (!c_.group().is_local(owner)) row = first_of_its_node(k) ? sum_of(c_.group().node_of(owner)) : nullptr;
      else if (results_.has_of(owner)) row = results_.row(owner, slot);
      else c_.spoil(owner, Phase::kRowsLost);
      if (row != nullptr) rows[num_rows++] = row;
    }
    p_.reduce(c_.op.dtype, c_.op.out_tokens + uint64_t(token_) * c_.op.token_bytes, rows, nullptr, num_rows,
              c_.op.num_elements);
    for (int k = 0; k < c_.op.topk && c_.op.backward; ++k) {
      p_.write(c_.op.out_weights + size_t(token_) * c_.op.topk + k, gradient(k));
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.combine.token_reduced");
    for (int k = 0; k < c_.op.topk; ++k) {
      const int node = first_of_its_node(k) ? remote_node(k) : -1;
      if (node < 0 || stream_from(node).over()) continue;
      p_.drain();  // before the sum is given back
      stream_from(node).taken();
    }
    ++token_;
    return true;
  }

  // The other node that entry k has a row on, -1 none.
  SWITCHYARD_DEVICE int remote_node(int k) const {
    if (entry(HtRecord::kSlot, k) < 0) return -1;
    const int owner = c_.owner(entry(HtRecord::kExpert, k));
    return c_.group().is_local(owner) ? -1 : c_.group().node_of(owner);
  }
  SWITCHYARD_DEVICE bool first_of_its_node(int k) const {
    const int node = remote_node(k);
    for (int other = 0; other < k; ++other) {
      if (remote_node(other) == node) return false;
    }
    return true;
  }
  // Null where it is lost.
  SWITCHYARD_DEVICE const char* sum_of(int node) {
    RailReceiver<P> stream = stream_from(node);
    if (stream.ready() == Await::kReady && !stream.over()) return stream.row();
    c_.spoil(stream.peer(), Phase::kRowsLost);
    return nullptr;
  }
  SWITCHYARD_DEVICE float gradient(int k) {
    int which = entry(HtRecord::kExpert, k);
    if (which == -1) return 0;
    if (which < -1) k = -2 - which;  // repeats an earlier entry
    const int owner = c_.owner(entry(HtRecord::kExpert, k));
    if (c_.group().is_local(owner)) {
      return results_.gradient([this](HtRecord::Column column, int other) { return entry(column, other); }, k);
    }
    const int node = c_.group().node_of(owner);
    if (!c_.crosses_to(token_, node)) return 0;
    const char* sum = sum_of(node);
    return sum == nullptr ? 0 : p_.read(reinterpret_cast<const float*>(sum + c_.op.token_bytes) + k);
  }

  // The streams must end where the plan says.
  SWITCHYARD_DEVICE bool end_streams() {
    for (; node_ < c_.group().num_nodes; ++node_) {
      if (node_ == c_.group().node) continue;
      RailReceiver<P> stream = stream_from(node_);
      const Await ready = stream.ready();
      if (ready == Await::kNotYet) return false;
      if (ready == Await::kReady && !stream.over()) c_.give_up(stream.peer(), Phase::kBadMessage);
      else if (ready == Await::kReady && stream.lacking()) c_.spoil(stream.peer(), Phase::kRowsLost);
    }
    p_.drain();
    SWITCHYARD_KERNEL_FAILPOINT("ht.combine.reduced");
    return done_ = true;
  }

  HtContext<P>& c_;
  const P& p_;
  const HtResults<P>& results_;
  int token_ = 0;
  int node_ = 0;
  bool done_ = false;
};

// A rank's results may be overwritten when everybody on its node has read them. Those in the outbox need not be awaited here: until
// it is written again everybody has met anyway, unless ranks are masked meanwhile.
template <class P>
SWITCHYARD_DEVICE bool awaits_readers(const HtContext<P>& c) {
  return c.op.in_place || c.group().masks_enabled;
}

template <class P>
class HtReaders {
 public:
  SWITCHYARD_DEVICE HtReaders(HtContext<P>& context, const HtPartial<P>& partial, const HtReduce<P>& reduce)
      : c_(context), partial_(partial), reduce_(reduce), next_peer_(context.group().first_local()) {}
  SWITCHYARD_DEVICE bool done() const { return done_; }
  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return done_ = true;
    if (!partial_.done() || !reduce_.done()) return false;
    if (!told_) {
      SWITCHYARD_KERNEL_FAILPOINT("ht.combine.before_done");
      for (int peer = c_.group().first_local(); peer < c_.group().end_local(); ++peer) {
        // Who gave up on this rank may have gone on to its next results, while these were read.
        if (!c_.masked(peer) && c_.expelled_by(peer)) c_.lose(peer, Phase::kOvertaken);
        // release; pairs with the acquire below
        if (!c_.masked(peer)) c_.p.store_release(&c_.told(peer)->done, c_.tag);
      }
      told_ = true;
    }
    for (; next_peer_ < c_.group().end_local() && awaits_readers(c_); ++next_peer_) {
      if (c_.await(next_peer_, &c_.heard(next_peer_)->done, c_.tag, Phase::kReaders, true) == Await::kNotYet) return false;
    }
    return done_ = true;
  }

 private:
  HtContext<P>& c_;
  const HtPartial<P>& partial_;
  const HtReduce<P>& reduce_;
  int next_peer_;
  bool told_ = false;
  bool done_ = false;
};

}  // namespace switchyard::ep
