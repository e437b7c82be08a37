#include "net/ofi.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>

#include "base/checked.hpp"
#include "base/env.hpp"
#include "base/log.hpp"
#include "net/ofi_rail.hpp"
#include "net/progress.hpp"
#include "net/signal_order.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

constexpr uint32_t kNoWord = CompletionData::kNoWord;

class OfiEndpoint final : public NetEndpoint, private OfiRail::Owner {
 public:
  static Result<std::unique_ptr<NetEndpoint>> connect(const NetContext& context, Deadline deadline);
  ~OfiEndpoint() override;

  Status register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) override;
  void deregister_region(uint32_t id) override;
  NetPost put(const NetPut& put) override;
  NetPost put_value(const NetPut& put, uint64_t value) override;
  NetPost get(int peer, uint32_t from_region, uint64_t from_offset, uint32_t to_region, uint64_t to_offset,
              uint64_t num_bytes) override;
  NetPost flush() override;
  NetPost deliver() override;
  bool progress() override;
  void catch_up() override;
  uint64_t bytes_in_flight() const override;
  bool usable(int peer) const override {
    // acquire; pairs with the release in settle_losses(): who sees that a peer is lost sees all that came from it
    return !failed_.load(std::memory_order_relaxed) &&
           peers_[size_t(peer)].stage.load(std::memory_order_acquire) != Stage::kLost;
  }
  void give_up(int peer, const std::string& why) override;
  void forget(int peer) override;
  void abort() override { fail(Status::invalid_usage("the network endpoint was aborted")); }
  Status error() const override;

 private:
  // There are two ways to every peer, with locks and connections of their own. Everything that has a number takes the
  // first, over one or more rails in turn. A bare signal whose data have arrived, or that follows none, takes the
  // second: it waits neither in a line of bytes nor for a thread that is busy with them.
  struct Way {
    std::mutex mutex;  // of its rails: libfabric's objects are used by one thread at a time
    std::vector<std::unique_ptr<OfiRail>> rails{};

    size_t num_in_flight() const {
      size_t sum = 0;
      for (const auto& rail : rails) sum += rail->num_in_flight();
      return sum;
    }
  };

  struct Region {
    char* memory;
    uint64_t num_bytes;
    std::vector<OfiRail::Registration> registrations;  // by rail
    std::vector<uint64_t> sizes;                       // by rank
    uint32_t first_word;                               // of its words in completion data; kNoWord: none
  };
  // A connection that ends makes its peer a failing one: nothing is posted to it any more. It is lost when everything
  // has been looked at that it sent before, over whichever rail.
  enum class Stage : uint8_t { kThere, kFailing, kLost };
  struct Peer {
    std::atomic<Stage> stage{Stage::kThere};
    std::atomic<bool> left{false};  // in good order: what is posted to it goes nowhere
    SentOrder outgoing;
    uint32_t num_asked = 0;  // writes under way whose completion will say that they have arrived
    uint64_t num_posted = 0;
    // Of those so many have arrived for sure; and how many there were when a class of contexts last put bytes. Written
    // under the lock of the data, read without it.
    std::atomic<uint64_t> num_delivered{0};
    std::array<std::atomic<uint64_t>, kNumContextClasses> last_put{};
    // Counters of puts whose pieces may complete in any order, each with how many writes must be delivered for it.
    std::deque<std::pair<uint64_t, uint64_t*>> due_counters;
    SignalOrder incoming;
    std::atomic<bool> has_torn{false};  // writes of it are missing, which its signals would vouch for
  };
  struct Source {
    void* memory;
    const Region* region;  // where it is; null: its bytes travel with the call
  };
  struct Piece {
    uint64_t offset;
    uint64_t num_bytes;
    bool with_signal;
  };

  explicit OfiEndpoint(const NetContext& context)
      : bootstrap_(context.window.bootstrap),
        comm_id_(context.comm_id),
        members_(context.window.members.begin(), context.window.members.end()),
        rank_(context.window.rank),
        peers_(context.window.members.size()) {}

  Status open_rails(const NetContext& context);
  Status meet(Deadline deadline);
  const Region* find(uint32_t id) const;
  NetPost put_from(const NetPut& put, const Source& source);
  NetPost put_pieces(const NetPut& put, const Source& source);
  NetPost put_ahead(const NetPut& put);
  bool may_go_ahead(const NetPut& put) const;
  std::optional<NetPost> refusal(int peer) const;
  std::optional<NetPost> answer_at_once(const NetPut& put) const;
  NetPost write(OfiRail& rail, const NetPut& put, const Source& source, const Piece& piece,
                const OfiRail::Purpose& purpose);
  NetPost send_signal(OfiRail& rail, const NetPut& put, const OfiRail::Purpose& purpose);
  NetPost post_fence(OfiRail& rail, int peer);
  NetPost posted(OfiRail& rail, int64_t result, int peer, const OfiRail::Purpose& purpose, const char* what);
  OfiRail& rail_of(const OfiRail::Purpose& purpose) { return *data_.rails[*purpose.sequence % data_.rails.size()]; }
  OfiRail::Purpose next_purpose(int peer, uint64_t num_bytes) const;
  uint32_t word_of(const NetPut& put) const;
  bool has_room(int peer);
  bool poll(Way& way);
  bool is_data(const OfiRail& rail) const { return rail.index() < data_.rails.size(); }
  std::string describe(const OfiRail& rail) const;
  Signal signal_of(const CompletionData& data) const;
  // Release; pairs with the acquire in Gin::read_counter().
  static void count(uint64_t& counter) { std::atomic_ref<uint64_t>(counter).fetch_add(1, std::memory_order_release); }
  void apply(uint32_t rank, const Signal& signal);
  void apply_ahead(uint32_t rank, const Signal& signal);
  void arrived(uint32_t rank, uint32_t sequence, const Signal& signal);
  void find_torn();

  void on_write(const OfiRail& rail, uint64_t completion_data) override;
  void on_message(const OfiRail& rail, const SignalMessage& message) override;
  void on_end(const OfiRail& rail, int peer, const OfiRail::Purpose& purpose) override;
  void on_loss(const OfiRail& rail, int peer, const std::string& why) override;
  void on_failure(const Status& why) override { fail(why); }

  void fail(const Status& why);
  void lose(int peer, const std::string& why);
  void settle_losses();
  void poll_all();
  void write_off(int peer);
  void note(const Status& why);

  static constexpr uint64_t kPieceLimitNs = 30 * kSecond;
  static constexpr uint32_t kSinkRegion = 0;  // takes the bytes of writes that are only signals
  // Writes of this size tell that they have arrived, also where that is not needed for the order: next to them the
  // answer costs nothing, what is in flight is then what has not arrived, and signals learn that they may go ahead.
  static constexpr uint64_t kLargeBytes = 32u << 10;
  static constexpr uint64_t kStripeBytes = 256u << 10;  // what goes over one of several rails at once
  static constexpr size_t kMaxDataRails = 8;

  Bootstrap& bootstrap_;
  const uint64_t comm_id_;
  const std::vector<int> members_;
  const int rank_;

  Way data_, signals_;
  // The network keeps the order of writes: only some need to say that they have arrived, and vouch for those before
  // them. Where it does not, all do, so that what is in flight bounds what arrives out of order.
  bool in_order_ = false;
  uint64_t max_piece_bytes_ = 0;
  std::vector<uint32_t> early_;                     // whose writes came before one that precedes them, in order
  std::vector<Peer> peers_;                         // under the lock of the data, but for its atomics
  std::map<uint32_t, Region> regions_;              // written under both locks, read under one
  uint32_t num_words_ = 0;                          // given to regions so far
  uint64_t nothing_ = 0;                            // what a write brings that is only a signal
  std::array<uint64_t, kMaxDataRails + 1> sink_{};  // where it goes: a word a rail, as rails have locks of their own
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_failing_{false};  // peers whose loss is to be settled
  mutable std::mutex error_mutex_;
  Status error_;
};

Result<std::unique_ptr<NetEndpoint>> OfiEndpoint::connect(const NetContext& context, Deadline deadline) {
  constexpr size_t kMaxRanks = (size_t{1} << CompletionData::kRankBits) - 1;
  if (context.window.members.size() > kMaxRanks) {
    return Status::invalid_usage(
        text("network plugin 'ofi' joins up to ", kMaxRanks, " ranks, not ", context.window.members.size()));
  }
  std::unique_ptr<OfiEndpoint> endpoint(new OfiEndpoint(context));
  SWITCHYARD_TRY(endpoint->open_rails(context));
  SWITCHYARD_TRY(endpoint->meet(deadline));
  SWITCHYARD_TRY(ProgressThreads::instance().add(*endpoint));
  SWITCHYARD_TRY(endpoint->register_region(kSinkRegion, endpoint->sink_.data(), sizeof(endpoint->sink_), deadline));
  return std::unique_ptr<NetEndpoint>(std::move(endpoint));
}

OfiEndpoint::~OfiEndpoint() {
  ProgressThreads::instance().remove(*this);
  for (Way* way : {&signals_, &data_}) {
    for (const auto& rail : way->rails) rail->close();  // before registrations and memory that it may still write to
  }
}

// A rail for data on every interface that is named, and one for signals on the first.
Status OfiEndpoint::open_rails(const NetContext& context) {
  std::vector<std::optional<std::string>> interfaces(env().interfaces.begin(), env().interfaces.end());
  if (interfaces.empty()) interfaces.emplace_back();  // to be chosen
  if (interfaces.size() > kMaxDataRails) {
    return Status::invalid_usage(text("SWITCHYARD_INTERFACE names ", interfaces.size(),
                                      " interfaces; network plugin 'ofi' uses up to ", kMaxDataRails));
  }
  const auto open = [&](Way& way, size_t index, const std::optional<std::string>& interface) -> Status {
    const bool one_machine = context.machine_ranks.count == int(peers_.size());
    SWITCHYARD_ASSIGN(OfiFabric fabric, OfiFabric::open(context.name, interface, one_machine));
    way.rails.push_back(std::make_unique<OfiRail>(std::move(fabric), index, peers_.size()));
    const OfiFabric& opened = way.rails.back()->fabric();
    log(LogLevel::kInfo, "rank ", rank_, ": network ofi, ", describe(*way.rails.back()),
        opened.keeps_order() ? ", in order" : ", in any order");
    return {};
  };
  for (size_t i = 0; i < interfaces.size(); ++i) SWITCHYARD_TRY(open(data_, i, interfaces[i]));
  SWITCHYARD_TRY(open(signals_, interfaces.size(), interfaces[0]));
  in_order_ = data_.rails.size() == 1 && data_.rails[0]->fabric().keeps_order();
  max_piece_bytes_ = data_.rails.size() == 1 ? ~uint64_t{0} : kStripeBytes;
  for (const auto& rail : data_.rails) {
    max_piece_bytes_ = std::min<uint64_t>(max_piece_bytes_, rail->fabric().info->ep_attr->max_msg_size);
  }
  return {};
}

std::string OfiEndpoint::describe(const OfiRail& rail) const {
  const std::string name = is_data(rail) ? text("data rail ", rail.index() + 1) : "signal rail";
  return text(name, " (", rail.fabric().describe(), ")");
}

// Everybody learns everybody's addresses.
Status OfiEndpoint::meet(Deadline deadline) {
  struct Names {
    uint64_t num_data_rails;
    std::array<OfiRail::Name, kMaxDataRails + 1> of_rails;
  };
  Names mine{data_.rails.size(), {}};
  for (Way* way : {&data_, &signals_}) {
    for (const auto& rail : way->rails) {
      SWITCHYARD_ASSIGN(mine.of_rails[rail->index()], rail->name());
    }
  }
  SWITCHYARD_ASSIGN(const std::vector<Names> all, bootstrap_.exchange_values(comm_id_, members_, mine, deadline));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].num_data_rails == mine.num_data_rails) continue;
    return Status::invalid_usage(text("rank ", rank_, " has ", mine.num_data_rails, " rails and rank ", rank, " has ",
                                      all[rank].num_data_rails,
                                      "; SWITCHYARD_INTERFACE must name equally many interfaces everywhere"));
  }
  for (Way* way : {&data_, &signals_}) {
    for (const auto& rail : way->rails) {
      std::vector<OfiRail::Name> names;
      for (const Names& theirs : all) names.push_back(theirs.of_rails[rail->index()]);
      SWITCHYARD_TRY(rail->open(names));
    }
  }
  return {};
}

Status OfiEndpoint::register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) {
  struct Offers {
    uint64_t num_bytes;
    std::array<OfiRail::Offer, kMaxDataRails + 1> of_rails;
  };
  Region region{static_cast<char*>(memory), num_bytes, {}, {}, kNoWord};
  Offers mine{num_bytes, {}};
  for (Way* way : {&data_, &signals_}) {
    const std::lock_guard lock(way->mutex);
    for (const auto& rail : way->rails) {
      SWITCHYARD_ASSIGN(OfiRail::Registration registration, rail->register_memory(memory, num_bytes, id));
      mine.of_rails[rail->index()] = rail->offer(registration, memory);
      region.registrations.push_back(std::move(registration));
    }
  }
  SWITCHYARD_ASSIGN(const std::vector<Offers> all, bootstrap_.exchange_values(comm_id_, members_, mine, deadline));
  for (const Offers& theirs : all) {
    region.sizes.push_back(theirs.num_bytes);
    for (size_t rail = 0; rail < region.registrations.size(); ++rail) {
      region.registrations[rail].offers.push_back(theirs.of_rails[rail]);
    }
  }
  {
    const std::scoped_lock lock(data_.mutex, signals_.mutex);
    // Equal on all ranks, because registrations are collective and windows have one size.
    const uint64_t num_words = num_bytes / sizeof(uint64_t);
    if (num_words <= kNoWord - num_words_) {
      region.first_word = num_words_;
      num_words_ += uint32_t(num_words);
    }
    regions_.insert_or_assign(id, std::move(region));
  }
  // Nobody writes before everybody knows the region.
  return bootstrap_.barrier(comm_id_, members_, deadline);
}

void OfiEndpoint::deregister_region(uint32_t id) {
  const std::scoped_lock lock(data_.mutex, signals_.mutex);
  regions_.erase(id);
}

const OfiEndpoint::Region* OfiEndpoint::find(uint32_t id) const {
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : &found->second;
}

uint64_t OfiEndpoint::bytes_in_flight() const {
  uint64_t sum = 0;
  for (const auto& rail : data_.rails) sum += rail->bytes_in_flight();
  return sum;
}

// ---- posting ----

NetPost OfiEndpoint::put(const NetPut& put) {
  if (put.num_bytes == 0) {
    if (may_go_ahead(put)) {
      const std::lock_guard lock(signals_.mutex);
      return put_ahead(put);
    }
    const std::lock_guard lock(data_.mutex);
    return put_from(put, {&nothing_, nullptr});
  }
  const std::lock_guard lock(data_.mutex);
  const Region* from = find(put.from_region);
  if (from == nullptr || !range_fits(put.from_offset, put.num_bytes, from->num_bytes)) return NetPost::kFailed;
  return put_from(put, {from->memory + put.from_offset, from});
}

NetPost OfiEndpoint::put_value(const NetPut& put, uint64_t value) {
  const std::lock_guard lock(data_.mutex);
  if (put.num_bytes == 0 || put.num_bytes > sizeof(value)) return NetPost::kFailed;
  return put_from(put, {&value, nullptr});
}

// Has all that this signal follows arrived? Whoever posts it has posted that before, so it is counted.
bool OfiEndpoint::may_go_ahead(const NetPut& put) const {
  if (put.context == kNoContext) return true;
  if (put.peer < 0 || size_t(put.peer) >= peers_.size() || put.context >= kNumContextClasses) return false;
  const Peer& peer = peers_[size_t(put.peer)];
  // relaxed: the network itself comes between what is counted here and what the signal does there
  return peer.last_put[put.context].load(std::memory_order_relaxed) <=
         peer.num_delivered.load(std::memory_order_relaxed);
}

// A failing peer is lost with the next progress(), which whoever is told "busy" makes.
std::optional<NetPost> OfiEndpoint::refusal(int peer) const {
  if (peer < 0 || size_t(peer) >= peers_.size() || !usable(peer)) return NetPost::kFailed;
  if (peers_[size_t(peer)].stage.load(std::memory_order_relaxed) == Stage::kFailing) return NetPost::kBusy;
  return std::nullopt;
}

// What can be said without posting anything; nothing: it has to be posted.
std::optional<NetPost> OfiEndpoint::answer_at_once(const NetPut& put) const {
  if (const auto refused = refusal(put.peer)) return refused;
  if (put.signal_value != 0) {
    const Region* signals = find(put.signal_region);
    if (signals == nullptr || !range_fits(put.signal_offset, sizeof(uint64_t), signals->num_bytes))
      return NetPost::kFailed;
  }
  if (!peers_[size_t(put.peer)].left.load(std::memory_order_relaxed)) return std::nullopt;
  if (put.counter != nullptr) count(*put.counter);
  return NetPost::kPosted;
}

// The index of the signal's word, if signal and value fit into completion data.
uint32_t OfiEndpoint::word_of(const NetPut& put) const {
  if (put.signal_value == 0 || put.signal_value > CompletionData::kMaxValue ||
      put.signal_offset % sizeof(uint64_t) != 0) {
    return kNoWord;
  }
  const Region* signals = find(put.signal_region);
  if (signals == nullptr || signals->first_word == kNoWord) return kNoWord;
  return signals->first_word + uint32_t(put.signal_offset / sizeof(uint64_t));
}

NetPost OfiEndpoint::put_ahead(const NetPut& put) {
  if (const auto answer = answer_at_once(put)) return *answer;
  OfiRail& rail = *signals_.rails[0];
  const OfiRail::Purpose purpose{{}, !rail.fabric().keeps_order(), put.counter};
  if (put.signal_value != 0 && word_of(put) == kNoWord) return send_signal(rail, put, purpose);
  return write(rail, put, {&nothing_, nullptr}, {0, 0, true}, purpose);
}

NetPost OfiEndpoint::put_from(const NetPut& put, const Source& source) {
  if (const auto answer = answer_at_once(put)) return *answer;
  const NetPost result = put_pieces(put, source);
  if (result != NetPost::kPosted) return result;
  Peer& peer = peers_[size_t(put.peer)];
  if (put.num_bytes > 0 && put.context < kNumContextClasses) {
    peer.last_put[put.context].store(peer.num_posted, std::memory_order_relaxed);
  }
  if (!in_order_ && put.counter != nullptr) peer.due_counters.emplace_back(peer.num_posted, put.counter);
  return result;
}

// Pieces of what one rail takes at once. The signal goes with the last one, or as a message that has the next number;
// once a piece is posted the others must be, too.
NetPost OfiEndpoint::put_pieces(const NetPut& put, const Source& source) {
  if (!has_room(put.peer)) return NetPost::kBusy;
  const bool is_message = put.signal_value != 0 && word_of(put) == kNoWord;
  uint64_t offset = 0;
  bool is_done = false;
  const auto post_next = [&] {
    if (is_message && offset == put.num_bytes) {
      OfiRail::Purpose purpose = next_purpose(put.peer, 0);
      if (in_order_ && put.num_bytes == 0) purpose.counter = put.counter;
      const NetPost result = send_signal(rail_of(purpose), put, purpose);
      is_done = result == NetPost::kPosted;
      return result;
    }
    const uint64_t num_bytes = std::min(max_piece_bytes_, put.num_bytes - offset);
    const bool is_last = offset + num_bytes == put.num_bytes;
    OfiRail::Purpose purpose = next_purpose(put.peer, num_bytes);
    // Whatever follows, a signal as a message, says nothing about the source.
    if (in_order_ && is_last) purpose.counter = put.counter;
    const NetPost result = write(rail_of(purpose), put, source, {offset, num_bytes, is_last && !is_message}, purpose);
    if (result == NetPost::kPosted) offset += num_bytes;
    is_done = result == NetPost::kPosted && is_last && !is_message;
    return result;
  };
  NetPost result = post_next();
  if (result != NetPost::kPosted || is_done) return result;
  const auto finish = [&] {
    while (!is_done) {
      // Gone meanwhile, one way or the other: who tries again learns it.
      const bool is_gone = peers_[size_t(put.peer)].left.load(std::memory_order_relaxed) || refusal(put.peer);
      result = !is_gone && has_room(put.peer) ? post_next() : NetPost::kBusy;
      if (result != NetPost::kPosted) return is_gone || result == NetPost::kFailed;
    }
    return true;
  };
  if (wait_until(finish, Deadline::after_ns(kPieceLimitNs)) == WaitResult::kReady) return result;
  lose(put.peer, "the network took only a part of a put");
  return NetPost::kBusy;
}

OfiRail::Purpose OfiEndpoint::next_purpose(int peer, uint64_t num_bytes) const {
  return {peers_[size_t(peer)].outgoing.next(), !in_order_ || num_bytes >= kLargeBytes, nullptr};
}

NetPost OfiEndpoint::write(OfiRail& rail, const NetPut& put, const Source& source, const Piece& piece,
                           const OfiRail::Purpose& purpose) {
  const bool is_bare = put.num_bytes == 0;
  const Region* to = find(is_bare ? kSinkRegion : put.to_region);
  if (to == nullptr) return NetPost::kFailed;
  const uint64_t offset = is_bare ? rail.index() * sizeof(nothing_) : put.to_offset + piece.offset;
  const uint64_t num_bytes = is_bare ? sizeof(nothing_) : piece.num_bytes;
  if (!range_fits(offset, num_bytes, to->sizes[size_t(put.peer)])) return NetPost::kFailed;
  const uint32_t word = piece.with_signal ? word_of(put) : kNoWord;
  const CompletionData data{uint32_t(rank_), purpose.sequence.value_or(0), word,
                            word == kNoWord ? 0 : uint32_t(put.signal_value)};
  const OfiRail::Transfer transfer{
      put.peer,
      static_cast<char*>(source.memory) + piece.offset,
      source.region == nullptr ? nullptr : source.region->registrations[rail.index()].descriptor,
      num_bytes,
      to->registrations[rail.index()].offers[size_t(put.peer)],
      offset,
      source.region == nullptr};
  return posted(rail, rail.write(transfer, data.pack(), purpose), put.peer, purpose, "a write");
}

NetPost OfiEndpoint::send_signal(OfiRail& rail, const NetPut& put, const OfiRail::Purpose& purpose) {
  const SignalMessage message{uint32_t(rank_), purpose.sequence.value_or(0), put.signal_region, 0, put.signal_offset,
                              put.signal_value};
  return posted(rail, rail.send(put.peer, message, purpose), put.peer, purpose, "a signal");
}

// A write of nothing, behind all others of this rail, that is complete when it is there.
NetPost OfiEndpoint::post_fence(OfiRail& rail, int peer) {
  NetPut fence{};
  fence.peer = peer;
  OfiRail::Purpose purpose{{}, true, nullptr};
  if (is_data(rail)) purpose.sequence = peers_[size_t(peer)].outgoing.next();
  return write(rail, fence, {&nothing_, nullptr}, {0, 0, false}, purpose);
}

NetPost OfiEndpoint::posted(OfiRail& rail, int64_t result, int peer_rank, const OfiRail::Purpose& purpose,
                            const char* what) {
  if (result == 0) {
    if (!purpose.sequence) return NetPost::kPosted;
    Peer& peer = peers_[size_t(peer_rank)];
    peer.outgoing.posted();
    ++peer.num_posted;
    if (purpose.asks_delivery) ++peer.num_asked;
    return NetPost::kPosted;
  }
  if (result == -FI_EAGAIN) {
    rail.poll(*this);
    if (rail.keeps_refusing(peer_rank)) lose(peer_rank, text(describe(rail), ": it takes no connection"));
  } else {
    lose(peer_rank, text(describe(rail), ": ", what, ": ", fi_strerror(int(-result))));
  }
  return NetPost::kBusy;
}

// For one more number. Where most writes don't say that they have arrived, one is asked in time.
bool OfiEndpoint::has_room(int rank) {
  Peer& peer = peers_[size_t(rank)];
  if (peer.outgoing.num_open() >= kSequenceSpan / 2 && peer.num_asked == 0)
    static_cast<void>(post_fence(*data_.rails[0], rank));
  if (peer.outgoing.has_room()) return true;
  poll(data_);
  return peer.outgoing.has_room();
}

NetPost OfiEndpoint::get(int peer, uint32_t from_region, uint64_t from_offset, uint32_t to_region, uint64_t to_offset,
                         uint64_t num_bytes) {
  const std::lock_guard lock(data_.mutex);
  if (const auto refused = refusal(peer)) return *refused;
  const Region* from = find(from_region);
  const Region* to = find(to_region);
  if (from == nullptr || to == nullptr || !range_fits(to_offset, num_bytes, to->num_bytes)) return NetPost::kFailed;
  if (!range_fits(from_offset, num_bytes, from->sizes[size_t(peer)])) return NetPost::kFailed;
  OfiRail& rail = *data_.rails[0];
  const OfiRail::Transfer transfer{peer,
                                   to->memory + to_offset,
                                   to->registrations[rail.index()].descriptor,
                                   num_bytes,
                                   from->registrations[rail.index()].offers[size_t(peer)],
                                   from_offset,
                                   false};
  return posted(rail, rail.read(transfer), peer, {}, "a read");
}

NetPost OfiEndpoint::flush() {
  bool is_busy = false;
  for (Way* way : {&signals_, &data_}) {
    const std::lock_guard lock(way->mutex);
    if (way->num_in_flight() > 0) poll(*way);
    is_busy |= way->num_in_flight() > 0;
  }
  settle_losses();
  if (failed_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  return is_busy ? NetPost::kBusy : NetPost::kPosted;
}

NetPost OfiEndpoint::deliver() {
  for (Way* way : {&signals_, &data_}) {
    const std::lock_guard lock(way->mutex);
    for (int rank = 0; rank < int(peers_.size()); ++rank) {
      if (refusal(rank) || peers_[size_t(rank)].left.load(std::memory_order_relaxed)) continue;
      for (const auto& rail : way->rails) {
        if (!rail->has_undelivered(rank)) continue;
        if (is_data(*rail) && !has_room(rank)) return NetPost::kBusy;
        if (post_fence(*rail, rank) == NetPost::kBusy) return NetPost::kBusy;
      }
    }
  }
  return flush();
}

// ---- completions ----

void OfiEndpoint::catch_up() {
  poll_all();
  settle_losses();
}

void OfiEndpoint::poll_all() {
  for (Way* way : {&signals_, &data_}) {
    const std::lock_guard lock(way->mutex);
    while (poll(*way)) continue;
  }
}

bool OfiEndpoint::progress() {
  bool moved = false, helped = false;
  for (Way* way : {&signals_, &data_}) {
    const std::unique_lock lock(way->mutex, std::try_to_lock);
    if (!lock) continue;
    helped = true;
    moved |= poll(*way);
  }
  if (helped) count_help();
  settle_losses();
  return moved;
}

bool OfiEndpoint::poll(Way& way) {
  bool any = false;
  for (const auto& rail : way.rails) any |= rail->poll(*this);
  if (&way == &data_ && !early_.empty()) find_torn();
  return any;
}

// A provider may connect again by itself after a connection was reset. Writes that were in the old one and had not
// asked whether they arrive are gone then, and the next one that asks would vouch for them. Here they are missed: on a
// network that keeps the order nothing is late once everything that has come was looked at. At once, before a signal
// comes that goes ahead because of that answer.
void OfiEndpoint::find_torn() {
  OfiRail& rail = *data_.rails[0];
  for (size_t i = 0; i < early_.size(); ++i) {  // polling may find more
    Peer& peer = peers_[early_[i]];
    while (peer.incoming.has_gap() && rail.poll(*this)) continue;
    if (!peer.incoming.has_gap()) continue;
    peer.has_torn.store(true, std::memory_order_relaxed);
    lose(int(early_[i]), text(describe(rail), ": writes are missing, as after a reset of the connection"));
  }
  early_.clear();
}

// What a peer says is not trusted: it names a rank, a number and a place, and each may be nonsense.
void OfiEndpoint::on_write(const OfiRail& rail, uint64_t completion_data) {
  const CompletionData data = CompletionData::unpack(completion_data);
  if (is_data(rail)) arrived(data.rank, data.sequence, signal_of(data));
  else apply_ahead(data.rank, signal_of(data));
}

void OfiEndpoint::on_message(const OfiRail& rail, const SignalMessage& message) {
  const Signal signal{message.region, message.offset, message.value};
  if (is_data(rail)) arrived(message.rank, message.sequence, signal);
  else apply_ahead(message.rank, signal);
}

Signal OfiEndpoint::signal_of(const CompletionData& data) const {
  if (data.word == kNoWord) return {};
  const auto owner = std::find_if(regions_.begin(), regions_.end(), [&](const auto& item) {
    const Region& region = item.second;
    return region.first_word != kNoWord && data.word >= region.first_word &&
           data.word - region.first_word < region.num_bytes / sizeof(uint64_t);
  });
  // A region that is gone: nobody looks at its signals any more.
  if (owner == regions_.end()) return {};
  return {owner->first, (data.word - owner->second.first_word) * sizeof(uint64_t), data.value};
}

void OfiEndpoint::arrived(uint32_t rank, uint32_t sequence, const Signal& signal) {
  const auto apply_due = [&](const Signal& due) { apply(rank, due); };
  const bool had_gap = rank < peers_.size() && peers_[rank].incoming.has_gap();
  if (rank >= peers_.size() || !peers_[rank].incoming.arrive(sequence, signal, apply_due)) {
    fail(
        Status::remote(text("rank ", rank_, ": write ", sequence, " of rank ", rank, " came twice, or was never due")));
  } else if (in_order_ && !had_gap && peers_[rank].incoming.has_gap()) {
    early_.push_back(rank);
  }
}

void OfiEndpoint::apply_ahead(uint32_t rank, const Signal& signal) {
  if (rank < peers_.size() && peers_[rank].has_torn.load(std::memory_order_relaxed)) return;
  apply(rank, signal);
}

void OfiEndpoint::apply(uint32_t rank, const Signal& due) {
  const Region* region = find(due.region);
  if (region == nullptr || due.value == 0) return;  // gone meanwhile, or none
  if (due.offset % sizeof(uint64_t) != 0 || !range_fits(due.offset, sizeof(uint64_t), region->num_bytes)) {
    return fail(Status::remote(text("rank ", rank, " signals a place outside of region ", due.region)));
  }
  // release; pairs with the acquire in Gin::read_signal() and Barrier::heard()
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(region->memory + due.offset))
      .fetch_add(due.value, std::memory_order_release);
}

void OfiEndpoint::on_end(const OfiRail&, int peer_rank, const OfiRail::Purpose& purpose) {
  if (purpose.counter != nullptr) count(*purpose.counter);
  if (!purpose.sequence || !purpose.asks_delivery) return;
  Peer& peer = peers_[size_t(peer_rank)];
  --peer.num_asked;
  if (in_order_) peer.outgoing.delivered_through(*purpose.sequence);
  else peer.outgoing.delivered(*purpose.sequence);
  peer.num_delivered.store(peer.num_posted - peer.outgoing.num_open(), std::memory_order_relaxed);
  for (auto& due = peer.due_counters; !due.empty() && due.front().first <= peer.num_delivered; due.pop_front()) {
    count(*due.front().second);
  }
}

// ---- the end ----

// Nothing that was on its way counts as delivered: no signal may go ahead of it, over a rail that still works.
void OfiEndpoint::on_loss(const OfiRail& rail, int peer, const std::string& why) {
  lose(peer, text(describe(rail), ": ", why));
}

// Any thread, with a lock or without: abort() must not wait for one.
void OfiEndpoint::fail(const Status& why) {
  note(why);
  failed_.store(true, std::memory_order_relaxed);  // carries nothing: who wants the reason takes the lock
}

// One peer; the others go on.
void OfiEndpoint::lose(int peer, const std::string& why) {
  if (peers_[size_t(peer)].left.load(std::memory_order_relaxed)) return;
  Stage there = Stage::kThere;
  if (!peers_[size_t(peer)].stage.compare_exchange_strong(there, Stage::kFailing, std::memory_order_relaxed)) return;
  note(Status::remote(text("rank ", rank_, ": the network lost rank ", peer, ": ", why)));
  has_failing_.store(true, std::memory_order_release);  // release; pairs with the acquire in settle_losses()
}

// REQUIRES  no lock is held. May wait for a thread that is busy with one, when somebody is lost.
void OfiEndpoint::settle_losses() {
  if (!has_failing_.load(std::memory_order_relaxed)) return;
  // acquire; pairs with the release in lose()
  if (!has_failing_.exchange(false, std::memory_order_acquire)) return;
  std::vector<Peer*> failing;
  for (Peer& peer : peers_) {
    if (peer.stage.load(std::memory_order_relaxed) == Stage::kFailing) failing.push_back(&peer);
  }
  poll_all();
  // release; pairs with the acquire in usable()
  for (Peer* peer : failing) peer->stage.store(Stage::kLost, std::memory_order_release);
}

void OfiEndpoint::give_up(int peer, const std::string& why) {
  lose(peer, why);  // first: who holds a lock for long looks at this
  write_off(peer);
  settle_losses();
}

void OfiEndpoint::forget(int peer) {
  peers_[size_t(peer)].left.store(true, std::memory_order_relaxed);  // first, as above
  write_off(peer);
}

void OfiEndpoint::write_off(int peer) {
  for (Way* way : {&signals_, &data_}) {
    const std::lock_guard lock(way->mutex);
    for (const auto& rail : way->rails) rail->write_off(peer);
  }
}

void OfiEndpoint::note(const Status& why) {
  const std::lock_guard lock(error_mutex_);
  if (error_.ok()) error_ = why;
}

Status OfiEndpoint::error() const {
  const std::lock_guard lock(error_mutex_);
  return error_;
}

Result<std::unique_ptr<NetEndpoint>> connect_ofi(const NetContext& context, Deadline deadline) {
  return OfiEndpoint::connect(context, deadline);
}

}  // namespace

NetPlugin ofi_plugin() { return {"ofi", {true, false, false, false, ~uint64_t{0}}, &connect_ofi}; }

}  // namespace switchyard
