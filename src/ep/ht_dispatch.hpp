// High-throughput dispatch: the protocol, written once for every platform (docs/protocol.md).
//
// Send: each token's row goes straight to its slots at the ranks of this node, or to the sender's block of their inboxes, and once
// to every other node that needs it, to the rank there that forwards for this one.
// Forward: rows of other nodes go on to the ranks of this node, as if this rank had sent them.
// Receive: what came to the inbox is copied to its slots, ids and weights are unpacked, padding is cleared.
#pragma once
#include "ep/rail_stream.hpp"

namespace switchyard::ep {

// Tells everybody that this rank is there, and knows when all are who have to be: those whose memory is written or read have to
// be through with what came before.
template <class P>
class HtGate {
 public:
  SWITCHYARD_DEVICE explicit HtGate(HtContext<P>& context) : c_(context) {}
  SWITCHYARD_DEVICE bool done() const { return open_; }
  SWITCHYARD_DEVICE bool step() {
    if (!told_) {
      c_.tell_consent();
      told_ = true;
      SWITCHYARD_KERNEL_FAILPOINT("ht.consented");
    }
    open_ = c_.failed() || c_.follows_its_plan() || c_.all_consented(next_peer_);
    return open_;
  }

 private:
  HtContext<P>& c_;
  bool told_ = false;
  bool open_ = false;
  int next_peer_ = 0;
};

// One row on this node: where its bytes go, and what its receivers have to know about it. Entries come from the plan: of my own
// token, or of a row that I forward.
template <class P>
class HtPlacer {
 public:
  SWITCHYARD_DEVICE explicit HtPlacer(HtContext<P>& context) : c_(context), p_(context.p) {}

  // entry(column, k) as in HtRecord; weight(k), asked only forward.
  template <class Entry, class Weight>
  SWITCHYARD_DEVICE void place(int source, Entry entry, Weight weight) {
    num_tokens_ = num_scales_ = 0;
    for (int k = 0; k < c_.op.topk; ++k) {
      const int slot = entry(HtRecord::kSlot, k);
      if (slot < 0) continue;
      const int owner = c_.owner(entry(HtRecord::kExpert, k));
      if (!c_.group().is_local(owner) || c_.masked(owner)) continue;
      const int index = entry(HtRecord::kIndex, k);
      const bool in_place = c_.writes_in_place(owner);
      if (in_place) {
        add_token(out_tokens(owner) + uint64_t(slot) * c_.op.token_bytes);
        if (c_.op.scale_bytes) add_scale(out_scales(owner) + uint64_t(slot) * c_.op.scale_bytes);
      }
      if (index < 0) continue;  // an earlier entry speaks for the rank
      if (!in_place) {
        char* row = c_.inbox(owner, source, index);
        add_token(row);
        if (c_.op.scale_bytes) add_scale(row + c_.op.token_bytes);
      }
      if (c_.op.expert_major) describe_slots(owner, source, index, entry, weight);
      else if (!c_.op.backward) describe_experts(owner, source, index, entry, weight);
    }
  }
  // The row also goes to another node, packed for its forwarder.
  SWITCHYARD_DEVICE void add_departure(char* row) {
    add_token(row);
    if (c_.op.scale_bytes) add_scale(row + c_.op.token_bytes);
  }
  SWITCHYARD_DEVICE void push(const char* token, const char* scale) const {
    p_.push(token, tokens_, num_tokens_, c_.op.token_bytes);
    if (c_.op.scale_bytes) p_.push(scale, scales_, num_scales_, c_.op.scale_bytes);
  }

 private:
  static constexpr int kMaxPlaces = 2 * kMaxTopk;  // slots here, and one per other node: no more than entries each
  SWITCHYARD_DEVICE char* out_tokens(int peer) const {
    if (peer == c_.rank()) return c_.op.out_tokens;
    return c_.group().windows.find(c_.op.token_window_id)[peer] + p_.read(&c_.heard(peer)->token_offset);
  }
  SWITCHYARD_DEVICE char* out_scales(int peer) const {
    if (peer == c_.rank()) return c_.op.out_scales;
    return c_.group().windows.find(c_.op.scale_window_id)[peer] + p_.read(&c_.heard(peer)->scale_offset);
  }
  SWITCHYARD_DEVICE void add_token(char* place) { tokens_[num_tokens_++] = place; }
  SWITCHYARD_DEVICE void add_scale(char* place) { scales_[num_scales_++] = place; }

  // Expert-major: the slots of the row at this rank, with their weights.
  template <class Entry, class Weight>
  SWITCHYARD_DEVICE void describe_slots(int owner, int source, int index, Entry entry, Weight weight) const {
    int32_t* ids = c_.meta_ids(owner, source, index);
    float* weights = c_.meta_weights(owner, source, index);
    int num = 0;
    for (int k = 0; k < c_.op.topk; ++k) {
      const int slot = entry(HtRecord::kSlot, k);
      if (slot < 0 || c_.owner(entry(HtRecord::kExpert, k)) != owner) continue;
      p_.write(ids + num, int32_t(slot));
      if (!c_.op.backward) p_.write(weights + num, weight(k));
      ++num;
    }
    for (; num < c_.op.topk; ++num) p_.write(ids + num, int32_t{-1});
  }
  // Flat: the experts of the row at this rank, ascending, with their weights.
  template <class Entry, class Weight>
  SWITCHYARD_DEVICE void describe_experts(int owner, int source, int index, Entry entry, Weight weight) const {
    int32_t* ids = c_.meta_ids(owner, source, index);
    float* weights = c_.meta_weights(owner, source, index);
    int num = 0;
    for (int k = 0; k < c_.op.topk; ++k) {
      const int expert = entry(HtRecord::kExpert, k);
      if (expert < 0 || c_.owner(expert) != owner) continue;
      int place = num++;
      for (; place > 0 && p_.read(ids + place - 1) > expert; --place) {
        p_.write(ids + place, p_.read(ids + place - 1));
        p_.write(weights + place, p_.read(weights + place - 1));
      }
      p_.write(ids + place, int32_t(expert));
      p_.write(weights + place, weight(k));
    }
    for (; num < c_.op.topk; ++num) {
      p_.write(ids + num, int32_t{-1});
      p_.write(weights + num, 0.0f);
    }
  }

  HtContext<P>& c_;
  const P& p_;
  char* tokens_[kMaxPlaces];
  char* scales_[kMaxPlaces];
  int num_tokens_ = 0;
  int num_scales_ = 0;
};

// Bytes of a row between nodes: token, scales and, forward, the weights of all entries.
template <class P>
SWITCHYARD_DEVICE uint64_t rail_row_bytes(const HtContext<P>& c) {
  const uint64_t weights = c.op.backward ? 0 : uint64_t(c.op.topk) * sizeof(float);
  return (c.row_bytes() + weights + 15) / 16 * 16;
}

template <class P>
class HtDispatchSend {
 public:
  SWITCHYARD_DEVICE HtDispatchSend(HtContext<P>& context, const HtGate<P>& gate)
      : c_(context), p_(context.p), gate_(gate) {}
  SWITCHYARD_DEVICE bool done() const { return done_; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return done_ = true;
    if (!gate_.done()) return false;
    if (token_ < c_.op.num_tokens) return push_token();
    return end_streams();
  }

 private:
  SWITCHYARD_DEVICE int entry(HtRecord::Column column, int k) const {
    return c_.entry(column, token_, k);
  }
  // Of an expert that the token names more than once the last weight counts.
  SWITCHYARD_DEVICE float weight(int k) const {
    int last = k;
    for (int later = k + 1; later < c_.op.topk; ++later) {
      if (entry(HtRecord::kExpert, later) == -2 - k) last = later;
    }
    return p_.read(c_.op.weights + size_t(token_) * c_.op.topk + last);
  }
  SWITCHYARD_DEVICE RailSender<P> stream_to(int node) const {
    return {c_, c_.group().forwarder(c_.rank(), node), rail_row_bytes(c_)};
  }

  SWITCHYARD_DEVICE bool push_token() {
    const HtGroupView& group = c_.group();
    for (int node = 0; node < group.num_nodes; ++node) {
      if (node != group.node && c_.crosses_to(token_, node) && stream_to(node).room() == Await::kNotYet) return false;
    }
    HtPlacer<P> placer(c_);
    placer.place(c_.rank(), [this](HtRecord::Column column, int k) { return entry(column, k); },
                 [this](int k) { return weight(k); });
    for (int node = 0; node < group.num_nodes; ++node) {
      if (node == group.node || !c_.crosses_to(token_, node)) continue;
      char* row = stream_to(node).next();
      placer.add_departure(row);
      for (int k = 0; k < c_.op.topk && !c_.op.backward; ++k) {
        p_.write(reinterpret_cast<float*>(row + c_.row_bytes()) + k, weight(k));
      }
    }
    placer.push(c_.op.tokens + size_t(token_) * c_.op.token_bytes, c_.op.scales + size_t(token_) * c_.op.scale_bytes);
    SWITCHYARD_KERNEL_FAILPOINT("ht.dispatch.row_pushed");
    for (int node = 0; node < group.num_nodes; ++node) {
      if (node != group.node && c_.crosses_to(token_, node)) stream_to(node).packed();
    }
    ++token_;
    return true;
  }

  // Everything is pushed: tell the ranks of this node, end the streams to the others, and wait until their rows were taken.
  SWITCHYARD_DEVICE bool end_streams() {
    const HtGroupView& group = c_.group();
    if (!told_) {
      p_.drain();
      SWITCHYARD_KERNEL_FAILPOINT("ht.dispatch.before_arrival");
      for (int peer = group.first_local(); peer < group.end_local(); ++peer) {
        if (!c_.masked(peer)) c_.tell_arrival(peer, c_.writes_in_place(peer) ? kRowsInPlace : 0);
      }
      for (int node = 0; node < group.num_nodes; ++node) {
        if (node != group.node) stream_to(node).end();
      }
      told_ = true;
      return true;
    }
    for (; node_ < group.num_nodes; ++node_) {
      if (node_ != group.node && stream_to(node_).drained() == Await::kNotYet) return false;
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.dispatch.sent");
    return done_ = true;
  }

  HtContext<P>& c_;
  const P& p_;
  const HtGate<P>& gate_;
  int token_ = 0;
  int node_ = 0;
  bool told_ = false;
  bool done_ = false;
};

template <class P>
class HtForward {
 public:
  SWITCHYARD_DEVICE HtForward(HtContext<P>& context, const HtGate<P>& gate)
      : c_(context), p_(context.p), gate_(gate) {}
  SWITCHYARD_DEVICE bool done() const { return num_over_ == c_.group().num_rail_sources; }

  // One row of each source that has one.
  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) {
      num_over_ = c_.group().num_rail_sources;
      return true;
    }
    if (!gate_.done()) return false;
    bool moved = false;
    for (int idx = 0; idx < c_.group().num_rail_sources; ++idx) moved |= forward_row(idx);
    return moved;
  }

 private:
  SWITCHYARD_DEVICE bool forward_row(int idx) {
    const int source = p_.read(&c_.group().rail_sources[idx]);
    RailEnd& end = c_.rail_in(source);
    if (end.closed) return false;
    RailReceiver<P> receiver(c_, source, rail_row_bytes(c_));
    const Await ready = receiver.ready();
    if (ready == Await::kNotYet) return false;
    const uint64_t expected = uint64_t(c_.read(c_.at.rail_rows(idx)));
    if (ready == Await::kReady && !receiver.over() && receiver.num_taken() < expected) {
      push_row(idx, source, int(receiver.num_taken()), receiver.row());
      SWITCHYARD_KERNEL_FAILPOINT("ht.forward.row_pushed");
      receiver.taken();
      return true;
    }
    const bool complete = ready == Await::kReady && receiver.over() && receiver.num_taken() == expected;
    if (ready == Await::kReady && !complete) c_.give_up(source, Phase::kBadMessage);
    p_.drain();
    for (int peer = c_.group().first_local(); peer < c_.group().end_local(); ++peer) {
      const uint32_t flags = (c_.writes_in_place(peer) ? kRowsInPlace : 0) | (complete ? 0 : kLostRows);
      if (!c_.masked(peer)) c_.tell_arrival_of(source, peer, flags);
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.forward.source_over");
    end.closed = 1;
    ++num_over_;
    return true;
  }

  SWITCHYARD_DEVICE void push_row(int idx, int source, int row_idx, const char* row) {
    const auto* weights = reinterpret_cast<const float*>(row + c_.row_bytes());
    HtPlacer<P> placer(c_);
    placer.place(
        source, [&](HtRecord::Column column, int k) { return c_.read(c_.at.rail(idx, row_idx, column, k)); },
        [&](int k) { return p_.read(weights + k); });
    placer.push(row, row + c_.op.token_bytes);
    p_.drain();  // before the row is given back
  }

  HtContext<P>& c_;
  const P& p_;
  const HtGate<P>& gate_;
  int num_over_ = 0;
};

template <class P>
class HtDispatchReceive {
 public:
  SWITCHYARD_DEVICE explicit HtDispatchReceive(HtContext<P>& context) : c_(context), p_(context.p) {}
  SWITCHYARD_DEVICE bool done() const { return done_; }

  SWITCHYARD_DEVICE bool step() {
    if (c_.failed()) return done_ = true;
    if (source_ == c_.num_ranks()) return clear_padding();
    if (!arrived_) return await_source();
    if (row_ < c_.read(c_.at.received(source_))) {
      unpack_row();
      SWITCHYARD_KERNEL_FAILPOINT("ht.dispatch.row_unpacked");
      ++row_;
      return true;
    }
    return next_source();
  }

 private:
  SWITCHYARD_DEVICE bool next_source() {
    ++source_;
    row_ = 0;
    arrived_ = false;
    return true;
  }

  SWITCHYARD_DEVICE bool await_source() {
    const PeerLine* line = c_.heard(source_);
    const bool direct = c_.group().is_local(source_);
    const Await arrival = direct ? c_.await_rows(source_, Phase::kDispatchRows)
                                 : c_.await(c_.group().writer(source_), &line->forwarded, c_.tag, Phase::kDispatchRows);
    if (arrival == Await::kNotYet) return false;
    uint32_t flags = kLostRows;
    if (arrival == Await::kReady) flags = p_.read(direct ? &line->flags : &line->forwarded_flags);
    if ((flags & kLostRows) != 0) {
      if (c_.read(c_.at.received(source_)) > 0) c_.spoil(source_, Phase::kRowsLost);
      return next_source();
    }
    in_place_ = (flags & kRowsInPlace) != 0;
    arrived_ = true;
    return true;
  }

  SWITCHYARD_DEVICE void unpack_row() {
    char* tokens[kMaxTopk];
    char* scales[kMaxTopk];
    int num_places = 0;
    const auto add_slot = [&](int64_t slot) {
      tokens[num_places] = c_.op.out_tokens + uint64_t(slot) * c_.op.token_bytes;
      scales[num_places++] = c_.op.out_scales + uint64_t(slot) * c_.op.scale_bytes;
    };
    if (c_.op.expert_major) {
      const int32_t* slots = c_.meta_ids(c_.rank(), source_, row_);
      const float* weights = c_.meta_weights(c_.rank(), source_, row_);
      for (int k = 0; k < c_.op.topk; ++k) {
        const int32_t slot = p_.read(slots + k);
        if (slot < 0) break;
        if (slot >= c_.read(c_.at.num_slots())) return static_cast<void>(c_.give_up(source_, Phase::kBadMessage));
        add_slot(slot);
        if (!c_.op.backward) p_.write(c_.op.out_weights + slot, p_.read(weights + k));
      }
    } else {
      const int64_t slot = int64_t(c_.read(c_.at.base(source_))) + row_;
      add_slot(slot);
      if (!c_.op.backward) unpack_experts(slot);
    }
    if (in_place_) return;
    const char* row = c_.inbox(c_.rank(), source_, row_);
    p_.push(row, tokens, num_places, c_.op.token_bytes);
    if (c_.op.scale_bytes) p_.push(row + c_.op.token_bytes, scales, num_places, c_.op.scale_bytes);
  }

  SWITCHYARD_DEVICE void unpack_experts(int64_t slot) {
    const int32_t* ids = c_.meta_ids(c_.rank(), source_, row_);
    const float* weights = c_.meta_weights(c_.rank(), source_, row_);
    for (int k = 0; k < c_.op.topk; ++k) {
      const int32_t expert = p_.read(ids + k);
      int64_t id = -1;
      if (expert >= 0) {
        if (expert >= c_.group().num_experts) return static_cast<void>(c_.give_up(source_, Phase::kBadMessage));
        id = c_.op.global_ids ? expert : c_.local_id(expert);
      }
      p_.write(c_.op.out_idx + slot * c_.op.topk + k, id);
      p_.write(c_.op.out_weights + slot * c_.op.topk + k, p_.read(weights + k));
    }
  }

  // Expert-major: rows between the end of an expert's rows and the next expert.
  SWITCHYARD_DEVICE bool clear_padding() {
    for (int local = 0; local < c_.op.num_local && c_.op.expert_major; ++local) {
      const int end = c_.read(c_.at.zone_padded_end(local));
      for (int slot = c_.read(c_.at.zone_end(local, c_.num_ranks() - 1)); slot < end; ++slot) {
        char* token = c_.op.out_tokens + uint64_t(slot) * c_.op.token_bytes;
        char* scale = c_.op.out_scales + uint64_t(slot) * c_.op.scale_bytes;
        p_.push(c_.group().zeros, &token, 1, c_.op.token_bytes);
        if (c_.op.scale_bytes) p_.push(c_.group().zeros, &scale, 1, c_.op.scale_bytes);
        if (!c_.op.backward) p_.write(c_.op.out_weights + slot, 0.0f);
      }
    }
    p_.drain();
    SWITCHYARD_KERNEL_FAILPOINT("ht.dispatch.received");
    return done_ = true;
  }

  HtContext<P>& c_;
  const P& p_;
  int source_ = 0;
  int row_ = 0;
  bool arrived_ = false;
  bool in_place_ = false;
  bool done_ = false;
};

}  // namespace switchyard::ep
