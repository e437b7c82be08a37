// Rows from one rank to its partner on another node: a ring of chunks in the partner's memory, filled by puts.
//
// The sender packs rows into its own copy of the ring and puts a chunk when it is full; with it goes a signal that says how many
// rows of this epoch are there (PeerLine::rail_sent). The receiver says how many it has taken (rail_taken), which makes room. The
// end of the stream is a flag in the last signal, and so is that rows lack something. An epoch begins with an empty ring: a sender is through only when all its rows
// were taken.
#pragma once
#include "ep/ht_context.hpp"

namespace switchyard::ep {

// What rail_sent and rail_taken hold. Epochs grow, and rows inside one, so the words only grow: they are set by adding.
struct RailStamp {
  static constexpr int kRowBits = 64 - kEpochBits;
  static constexpr uint64_t kEnd = uint64_t{1} << (kRowBits - 1);
  static constexpr uint64_t kLacking = uint64_t{1} << (kRowBits - 2);

  SWITCHYARD_HD static uint64_t of(uint64_t tag, uint64_t rows, bool end, bool lacking = false) {
    return (tag & kEpochMask) << kRowBits | rows | (end ? kEnd : 0) | (lacking ? kLacking : 0);
  }
  SWITCHYARD_HD static uint64_t epoch(uint64_t word) { return word >> kRowBits; }
  SWITCHYARD_HD static uint64_t rows(uint64_t word) { return word & (kLacking - 1); }
  SWITCHYARD_HD static bool end(uint64_t word) { return (word & kEnd) != 0; }
  SWITCHYARD_HD static bool lacking(uint64_t word) { return (word & kLacking) != 0; }
};

// Where rows are in a ring.
struct RailRing {
  uint64_t row_bytes;
  uint64_t chunk_bytes;

  SWITCHYARD_HD uint64_t rows_per_chunk() const { return chunk_bytes / row_bytes; }
  SWITCHYARD_HD uint64_t capacity() const { return rows_per_chunk() * kNumRailChunks; }
  SWITCHYARD_HD uint64_t offset(uint64_t row) const {
    const uint64_t chunk = row / rows_per_chunk() % kNumRailChunks;
    return chunk * chunk_bytes + row % rows_per_chunk() * row_bytes;
  }
};

template <class P>
class RailSender {
 public:
  // REQUIRES  row_bytes a multiple of 16 and at most a chunk.
  SWITCHYARD_DEVICE RailSender(HtContext<P>& context, int peer, uint64_t row_bytes)
      : c_(context), peer_(peer), ring_{row_bytes, context.group().layout.chunk_bytes}, end_(context.rail_out(peer)) {}

  // Room for one more row? kGone: the peer is lost; rows may still be packed, they go nowhere.
  SWITCHYARD_DEVICE Await room() {
    if (end_.num_packed - end_.num_taken < ring_.capacity()) return Await::kReady;
    return await_taken(end_.num_packed - ring_.capacity() + 1);
  }
  // The place of the next row. REQUIRES  room().
  SWITCHYARD_DEVICE char* next() const {
    return c_.group().payload[c_.rank()] + c_.group().layout.departure(peer_) + ring_.offset(end_.num_packed);
  }
  // The next row is in its place.
  SWITCHYARD_DEVICE void packed() {
    ++end_.num_packed;
    if (end_.num_packed % ring_.rows_per_chunk() == 0) send(false);
  }
  // A row is not what it should be.
  SWITCHYARD_DEVICE void lacks() { end_.lacking = 1; }
  // No more rows will come.
  SWITCHYARD_DEVICE void end() { send(true); }
  // Were all rows taken?
  SWITCHYARD_DEVICE Await drained() { return end_.num_taken == end_.num_packed ? Await::kReady : await_taken(end_.num_packed); }

 private:
  SWITCHYARD_DEVICE void send(bool last) {
    c_.p.drain();
    const HtLayout& layout = c_.group().layout;
    const uint64_t offset = ring_.offset(end_.num_sent);
    const uint64_t num_bytes = (end_.num_packed - end_.num_sent) * ring_.row_bytes;
    if (c_.op.kind != HtKind::kRoute) {
      RailTraffic& traffic = c_.group().ht_state().rail_traffic;
      traffic.num_rows += end_.num_packed - end_.num_sent;
      traffic.num_bytes += num_bytes;
    }
    end_.num_sent = end_.num_packed;
    SWITCHYARD_KERNEL_FAILPOINT("ht.rail.before_put");
    if (c_.masked(peer_)) return;
    if (!c_.put(peer_, c_.group().payload_id, layout.transit(c_.rank()) + offset, layout.departure(peer_) + offset,
                 num_bytes, c_.bank, &PeerLine::rail_sent, RailStamp::of(c_.tag, end_.num_sent, last, last && end_.lacking))) {
      c_.put_failed(peer_);
    }
    SWITCHYARD_KERNEL_FAILPOINT("ht.rail.after_put");
  }

  SWITCHYARD_DEVICE Await await_taken(uint64_t least) {
    using Seen = typename PeerContext<P>::Seen;
    return c_.await_word(peer_, &c_.heard(peer_)->rail_taken, Phase::kRailRoom, [&](uint64_t word) {
      const uint64_t epoch = c_.tag & kEpochMask;
      if (RailStamp::epoch(word) != epoch) return RailStamp::epoch(word) > epoch ? Seen::kTooLate : Seen::kNotYet;
      end_.num_taken = RailStamp::rows(word);
      return end_.num_taken >= least ? Seen::kWanted : Seen::kNotYet;
    });
  }

  HtContext<P>& c_;
  int peer_;
  RailRing ring_;
  RailEnd& end_;
};

template <class P>
class RailReceiver {
 public:
  SWITCHYARD_DEVICE RailReceiver(HtContext<P>& context, int peer, uint64_t row_bytes)
      : c_(context), peer_(peer), ring_{row_bytes, context.group().layout.chunk_bytes}, end_(context.rail_in(peer)) {}

  // Is there a row that was not taken yet, or is the stream over()? kGone: the peer is lost, with the rows that were not taken.
  SWITCHYARD_DEVICE Await ready() {
    if (end_.num_taken < end_.num_there || end_.over) return Await::kReady;
    using Seen = typename PeerContext<P>::Seen;
    return c_.await_word(peer_, &c_.heard(peer_)->rail_sent, Phase::kRailRows, [&](uint64_t word) {
      const uint64_t epoch = c_.tag & kEpochMask;
      if (RailStamp::epoch(word) != epoch) return RailStamp::epoch(word) > epoch ? Seen::kTooLate : Seen::kNotYet;
      end_.num_there = RailStamp::rows(word);
      end_.over = RailStamp::end(word);
      end_.lacking = RailStamp::lacking(word);
      return end_.num_taken < end_.num_there || end_.over ? Seen::kWanted : Seen::kNotYet;
    });
  }
  SWITCHYARD_DEVICE bool over() const { return end_.over != 0 && end_.num_taken == end_.num_there; }
  // REQUIRES  over().
  SWITCHYARD_DEVICE bool lacking() const { return end_.lacking != 0; }
  // The first row that was not taken yet. REQUIRES  ready() and not over().
  SWITCHYARD_DEVICE const char* row() const {
    return c_.group().payload[c_.rank()] + c_.group().layout.transit(peer_) + ring_.offset(end_.num_taken);
  }
  // That row is not needed any more.
  SWITCHYARD_DEVICE void taken() {
    ++end_.num_taken;
    if (end_.num_taken % ring_.rows_per_chunk() != 0 && !over()) return;
    const uint64_t stamp = RailStamp::of(c_.tag, end_.num_taken, false);
    if (!c_.tell_remote(peer_, c_.bank, &PeerLine::rail_taken, stamp)) c_.put_failed(peer_);
  }
  SWITCHYARD_DEVICE int peer() const { return peer_; }
  SWITCHYARD_DEVICE uint64_t num_taken() const { return end_.num_taken; }

 private:
  HtContext<P>& c_;
  int peer_;
  RailRing ring_;
  RailEnd& end_;
};

}  // namespace switchyard::ep
