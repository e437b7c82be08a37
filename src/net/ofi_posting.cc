#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "base/failpoint.hpp"
#include "net/ofi_endpoint.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {

OfiEndpoint::Operation* OfiEndpoint::take_operation(int peer, size_t rail) {
  if (free_operations_.empty()) free_operations_.push_back(&operations_.emplace_back());
  Operation* operation = free_operations_.back();
  free_operations_.pop_back();
  operation->peer = peer;
  operation->rail = rail;
  operation->num_bytes = 0;
  operation->is_answered = false;
  operation->countdown = nullptr;
  operation->is_upkeep = false;
  return operation;
}

OfiEndpoint::Countdown* OfiEndpoint::begin_countdown(const NetPut& put, uint64_t num_pieces) {
  if (put.counter == nullptr) return nullptr;
  if (free_countdowns_.empty()) free_countdowns_.push_back(&countdowns_.emplace_back());
  Countdown* countdown = free_countdowns_.back();
  free_countdowns_.pop_back();
  *countdown = {put.counter, num_pieces};
  return countdown;
}

void OfiEndpoint::count_down(Countdown* countdown) {
  if (countdown == nullptr || --countdown->num_pieces > 0) return;
  count_reusable(countdown->counter);
  free_countdowns_.push_back(countdown);
}

std::string OfiEndpoint::on_rail(size_t rail) const {
  if (rails_.size() == 1) return "";
  return text(" on rail ", rail + 1, " (interface ", rails_[rail].fabric.interface.name, ")");
}

bool OfiEndpoint::posted(int64_t result, Operation* operation, const char* what) {
  if (result == 0) {
    Peer& peer = peers_[size_t(operation->peer)];
    peer.outgoing.posted();
    ++num_posted_;
    operation->num_posted = ++peer.num_posted;
    if (delivery_ != 0 || operation->is_answered) peer.num_asked = peer.num_posted;
    if (!operation->is_upkeep) {
      count_in_flight(peer, operation->num_bytes);
      rails_[operation->rail].num_bytes_given += operation->num_bytes;
    }
    has_way(operation->peer, operation->rail);
    return true;
  }
  const int peer = operation->peer;
  const size_t rail = operation->rail;
  give_back(operation);
  if (!is_for_a_moment(result) || keeps_refusing(peer, rail)) {
    suspect(peer, result == -FI_EAGAIN ? text("it takes no connection", on_rail(rail))
                                       : text(what, on_rail(rail), ": ", fabric_words(int(-result))));
  }
  return false;
}

// Of writes that belong together none is posted before there is room for all: who holds the lock to wait for the rest
// holds up everybody. More than there can be room for have to.
bool OfiEndpoint::has_room(Peer& peer, uint64_t num_writes) {
  const auto num_wanted = uint32_t(std::min<uint64_t>(num_writes, kSequenceSpan));
  const auto is_there = [&] { return peer.suspected_ns == 0 && peer.outgoing.has_room(num_wanted); };
  if (is_there()) return true;
  (void)SWITCHYARD_FAILPOINT("net.window_full");  // not for tests/faults, where there is always room
  poll();
  return is_there();
}

size_t OfiEndpoint::put_chain(std::span<const NetPut> puts, NetPost& result) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < puts.size(); ++i) {
    // One that will be refused is not waited for.
    const bool is_chained = i + 1 < puts.size() && source_of(puts[i + 1]).memory != nullptr && reaches(puts[i + 1]);
    if ((result = put_from(puts[i], source_of(puts[i]), is_chained)) != NetPost::kPosted) return i;
  }
  return puts.size();
}

NetPost OfiEndpoint::put_value(const NetPut& put, uint64_t value) {
  const std::lock_guard lock(mutex_);
  if (put.num_bytes == 0 || put.num_bytes > sizeof(value)) return NetPost::kFailed;
  return put_from(put, {&value, nullptr}, false);
}

OfiEndpoint::Source OfiEndpoint::source_of(const NetPut& put) const {
  if (put.num_bytes == 0) return {&sink_[1], find(kSinkRegion)};
  const Region* from = find(put.from_region);
  if (from == nullptr || !range_fits(put.from_offset, put.num_bytes, from->num_bytes)) return {nullptr, nullptr};
  return {from->memory + put.from_offset, from};
}

// Is the peer there, and what the put names at it?
bool OfiEndpoint::reaches(const NetPut& put) const {
  if (put.peer < 0 || size_t(put.peer) >= peers_.size() || !usable(put.peer)) return false;
  if (has_left(put.peer)) return true;  // it goes nowhere
  if (put.signal_value != 0) {
    const Region* signals = find(put.signal_region);
    if (signals == nullptr || !range_fits(put.signal_offset, sizeof(uint64_t), signals->num_bytes)) return false;
  }
  const Region* to = find(put.num_bytes == 0 ? kSinkRegion : put.to_region);
  return to != nullptr &&
         (put.num_bytes == 0 || range_fits(put.to_offset, put.num_bytes, to->offers[size_t(put.peer)][0].num_bytes));
}

// A provider may keep back what it was told not to be the last. So the next write must be expected to find room, and on
// the same rail.
bool OfiEndpoint::may_chain(const Peer& peer) const {
  return rails_.size() == 1 && peer.outgoing.has_room(2) && num_in_flight_ + 2 <= rails_[0].fabric.info->tx_attr->size;
}

// The index of the signal's word, if signal and value fit into completion data.
uint32_t OfiEndpoint::word_of(const NetPut& put) const {
  if (!data_carries_signals_) return kNoWord;
  if (put.signal_value == 0 || put.signal_value >= (1u << kValueBits) || put.signal_offset % sizeof(uint64_t) != 0) {
    return kNoWord;
  }
  const Region* signals = find(put.signal_region);
  if (signals == nullptr || signals->first_word == kNoWord) return kNoWord;
  return signals->first_word + uint32_t(put.signal_offset / sizeof(uint64_t));
}

// The one that was given the fewest bytes. Mere turns would send all rows one way and all signals the other where they
// alternate.
size_t OfiEndpoint::next_rail() const {
  const auto fewest = [](const Rail& a, const Rail& b) { return a.num_bytes_given < b.num_bytes_given; };
  return size_t(std::min_element(rails_.begin(), rails_.end(), fewest) - rails_.begin());
}

// A large put is cut: over TCP pieces of 256 KiB move a third faster than one write of 1 MiB or 4 MiB (docs/figures.md), and
// the rails share them. Not into so many that it would have to wait, with the lock held, for room for all of them.
uint64_t OfiEndpoint::piece_bytes(uint64_t num_bytes) const {
  constexpr uint64_t kMultiple = 64;  // pieces begin where the put begins in a line
  const uint64_t share = num_bytes < kStripedBytes ? kStripedBytes : div_up(num_bytes, rails_.size());
  const uint64_t piece = std::min(share, std::max(kPieceBytes, div_up(num_bytes, kMaxPieces)));
  return std::min(max_piece_bytes_, round_up(piece, kMultiple));
}

NetPost OfiEndpoint::put_from(const NetPut& put, const Source& source, bool is_chained) {
  // All of it at once: of a put that is refused no piece is posted.
  if (source.memory == nullptr || !reaches(put)) return NetPost::kFailed;
  Peer& peer = peers_[size_t(put.peer)];
  if (has_left(put.peer)) {
    count_reusable(put.counter);
    return NetPost::kPosted;
  }
  const bool bare = put.num_bytes == 0;
  const Region& to = *find(bare ? kSinkRegion : put.to_region);
  const bool fits = put.signal_value == 0 || word_of(put) != kNoWord;
  const uint64_t most = piece_bytes(put.num_bytes);
  const uint64_t num_pieces = std::max<uint64_t>(1, div_up(put.num_bytes, most));
  if (!has_room(peer, bare ? 1 : num_pieces + !fits)) return NetPost::kBusy;
  if (bare && !fits) {
    if (!send_signal(put)) return NetPost::kBusy;
    count_reusable(put.counter);  // it has no source
    return NetPost::kPosted;
  }
  // The signal goes with the last piece, or as a message that has the next number, which says nothing about the source;
  // once a piece is posted the others must be, too.
  Countdown* const countdown = begin_countdown(put, num_pieces);
  uint64_t offset = 0;
  const auto post_next = [&] {
    const uint64_t num_bytes = std::min(most, put.num_bytes - offset);
    const bool last = offset + num_bytes == put.num_bytes;
    const bool has_signal = last && fits;
    if (!write(put, to, source, {offset, num_bytes, has_signal, has_signal && is_chained && may_chain(peer), countdown})) return false;
    offset += num_bytes;
    return true;
  };
  if (!post_next()) {
    if (countdown != nullptr) free_countdowns_.push_back(countdown);
    return NetPost::kBusy;
  }
  bool is_whole = offset == put.num_bytes && fits;
  const auto finish = [&] {
    while (offset < put.num_bytes) {
      if (!has_room(peer) || !post_next()) return false;
    }
    return fits || (has_room(peer) && send_signal(put));
  };
  const auto is_over = [&] { return has_left(put.peer) || !usable(put.peer) || (is_whole = finish()); };
  if (!is_whole && wait_until(is_over, Deadline::after_ns(kPieceLimitNs)) != WaitResult::kReady) {
    lose(put.peer, "the network took only a part of a put");
  }
  // Of pieces that will never go, to one that is gone, the sources may be reused. That the peer is lost the next post says.
  if (!is_whole) {
    for (; offset < put.num_bytes; offset += most) count_down(countdown);
  }
  return NetPost::kPosted;
}

bool OfiEndpoint::write(const NetPut& put, const Region& to, const Source& source, const Piece& piece) {
  Peer& peer = peers_[size_t(put.peer)];
  const size_t rail = next_rail();
  const RegionOffer& offer = to.offers[size_t(put.peer)][rail];
  const uint64_t to_offset = put.num_bytes == 0 ? 0 : put.to_offset + piece.offset;
  const uint64_t length = put.num_bytes == 0 ? sizeof(uint64_t) : piece.num_bytes;
  const uint32_t word = piece.has_signal ? word_of(put) : kNoWord;
  const CompletionData data{uint32_t(rank_), peer.outgoing.next(), word,
                            word == kNoWord ? 0 : uint32_t(put.signal_value)};
  const uint64_t delivery = piece.is_upkeep || needs_answer(peer) ? FI_DELIVERY_COMPLETE : delivery_;

  Operation* operation = take_operation(put.peer, rail);
  operation->sequence = data.sequence;
  operation->is_answered = delivery == FI_DELIVERY_COMPLETE;
  operation->num_bytes = length;
  operation->countdown = piece.countdown;
  operation->is_upkeep = piece.is_upkeep;
  const bool is_value = source.region == nullptr;
  if (is_value) std::memcpy(&operation->message.value, source.memory, length);
  const char* from = is_value ? reinterpret_cast<const char*>(&operation->message.value) : static_cast<const char*>(source.memory);
  iovec local{const_cast<char*>(from + piece.offset), length};
  void* descriptor = is_value ? nullptr : source.region->registrations[rail].descriptor;
  fi_rma_iov remote{offer.base + to_offset, length, offer.key};
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = rails_[rail].ways[size_t(put.peer)].address;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &operation->context;
  message.data = data.pack();
  const uint64_t inject = is_value ? inject_flag(rail) : 0;
  const uint64_t more = piece.is_chained ? FI_MORE : 0;
  const uint64_t flags = FI_REMOTE_CQ_DATA | FI_COMPLETION | delivery | inject | more;
  SWITCHYARD_FAILPOINT("net.before_write");
  const bool is_refused = SWITCHYARD_FAILPOINT("net.write_refused");  // not for tests/faults
  const int64_t written = is_refused ? -FI_ENETUNREACH : fi_writemsg(rails_[rail].fabric.endpoint.get(), &message, flags);
  SWITCHYARD_FAILPOINT("net.write_posted");
  return posted(written, operation, "a write");
}

// Now and then, however fast writes follow each other: so that those which can be lost without a word, with a connection,
// are fewer than there are numbers, and the next one has another number than was due.
bool OfiEndpoint::needs_answer(const Peer& peer) const {
  static_assert(kAnswerEvery + kSequenceSpan < kSequenceMask);
  return delivery_ == 0 && peer.num_posted - peer.num_asked >= kAnswerEvery;
}

// A write of nothing, behind all others, that is complete when it is there; if there is room.
void OfiEndpoint::write_fence(int peer) {
  if (peers_[size_t(peer)].suspected_ns != 0 || !peers_[size_t(peer)].outgoing.has_room()) return;
  NetPut fence{};
  fence.peer = peer;
  const Region& sink = *find(kSinkRegion);
  write(fence, sink, {&sink_[1], &sink}, {0, 0, true, false, nullptr, /*is_upkeep=*/true});
}

bool OfiEndpoint::send_signal(const NetPut& put) {
  Peer& peer = peers_[size_t(put.peer)];
  const size_t rail = next_rail();
  Operation* operation = take_operation(put.peer, rail);
  const uint64_t delivery = needs_answer(peer) ? FI_DELIVERY_COMPLETE : delivery_;
  operation->sequence = peer.outgoing.next();
  operation->is_answered = delivery == FI_DELIVERY_COMPLETE;
  const Way& way = rails_[rail].ways[size_t(put.peer)];
  operation->message = {uint32_t(rank_), operation->sequence, put.signal_region, way.tag, put.signal_offset, put.signal_value};
  iovec local{&operation->message, sizeof(operation->message)};
  fi_msg message{};
  message.msg_iov = &local;
  message.iov_count = 1;
  message.addr = way.address;
  message.context = &operation->context;
  const int64_t sent =
      fi_sendmsg(rails_[rail].fabric.endpoint.get(), &message, inject_flag(rail) | FI_COMPLETION | delivery);
  SWITCHYARD_FAILPOINT("net.message_posted");
  return posted(sent, operation, "a signal");
}

NetPost OfiEndpoint::flush() {
  const std::lock_guard lock(mutex_);
  if (num_in_flight_ > 0) poll();
  if (failed_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  return num_in_flight_ == 0 ? NetPost::kPosted : NetPost::kBusy;
}

NetPost OfiEndpoint::deliver(Delivery& delivery) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!lock_within(lock, kSecond / 4)) {  // who waits for a delivery has a limit
    delivery.is_open.clear();
    return NetPost::kBusy;
  }
  poll();
  if (failed_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  if (delivery.num_posted.empty()) {
    for (const Peer& peer : peers_) delivery.num_posted.push_back(peer.num_posted);
  }
  delivery.is_open.assign(peers_.size(), false);
  bool is_all = true;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const uint64_t wanted = delivery.num_posted[rank];
    const Peer& peer = peers_[rank];
    const bool is_there = peer.suspected_ns == 0 && num_delivered(peer) >= wanted;  // of a suspect, operations have failed
    if (is_there || has_left(int(rank)) || !usable(int(rank))) continue;
    if (peer.num_asked < wanted) write_fence(int(rank));
    is_all = false;
    delivery.is_open[rank] = true;
  }
  return is_all ? NetPost::kPosted : NetPost::kBusy;
}

}  // namespace switchyard
