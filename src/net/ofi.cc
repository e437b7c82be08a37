#include "net/ofi.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/env.hpp"
#include "base/log.hpp"
#include "net/ofi_fabric.hpp"
#include "net/ofi_wire.hpp"
#include "net/progress.hpp"
#include "net/signal_order.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

class OfiEndpoint final : public NetEndpoint {
 public:
  static Result<std::unique_ptr<NetEndpoint>> connect(const NetContext& context, Deadline deadline);
  ~OfiEndpoint() override;

  Status register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) override;
  void deregister_region(uint32_t id) override;
  NetPost put(const NetPut& put) override {
    NetPost result;
    put_chain({&put, 1}, result);
    return result;
  }
  size_t put_chain(std::span<const NetPut> puts, NetPost& result) override;
  NetPost put_value(const NetPut& put, uint64_t value) override;
  NetPost get(int peer, uint32_t from_region, uint64_t from_offset, uint32_t to_region, uint64_t to_offset,
              uint64_t num_bytes) override;
  NetPost flush() override;
  NetPost deliver() override;
  bool progress() override;
  void catch_up() override;
  uint64_t bytes_in_flight() const override { return bytes_in_flight_.load(std::memory_order_relaxed); }
  bool usable(int peer) const override {
    // acquire; pairs with the release in lose(): who sees that a peer is lost sees all that came from it
    return !failed_.load(std::memory_order_relaxed) && !peers_[size_t(peer)].lost.load(std::memory_order_acquire);
  }
  void give_up(int peer, const std::string& why) override;
  void forget(int peer) override;
  void abort() override { fail(Status::invalid_usage("the network endpoint was aborted")); }
  Status error() const override;

 private:
  struct Registration {
    FidPtr<fid_mr> memory;
    void* descriptor;
    RegionOffer offer;
  };
  // A way to every peer: libfabric's objects on one interface. Any rail may bring any write, since nothing but its number
  // says when it counts.
  struct Rail {
    OfiFabric fabric;
    uint64_t num_bytes_given = 0;        // since the beginning
    std::vector<fi_addr_t> addresses{};  // by rank
    std::vector<SignalMessage> receive_buffers = std::vector<SignalMessage>(kNumReceives);
    Registration receives{};
  };
  struct Region {
    char* memory;
    uint64_t num_bytes;
    std::vector<Registration> registrations;       // by rail
    std::vector<std::vector<RegionOffer>> offers;  // by rank and rail
    uint32_t first_word;                           // of its words in completion data; kNoWord: none
  };
  struct Peer {
    std::atomic<bool> lost{false};  // its connection ended: nothing else is posted to it
    std::atomic<bool> left{false};  // in good order: what is posted to it goes nowhere
    SentOrder outgoing;
    uint32_t num_in_flight = 0;
    uint64_t bytes_in_flight = 0;
    bool has_undelivered = false;   // something was posted whose completion says nothing about the target
    bool is_written_off = false;    // what is in flight to it counts no more
    uint64_t refused_since_ns = 0;  // the provider has no way to it; 0: it has
    bool was_reached = false;       // the provider has had a way to it
    SignalOrder incoming;
  };
  // The counter of a put, and how many of its pieces are not complete: they may become so in any order.
  struct Countdown {
    uint64_t* counter;
    uint64_t num_pieces;
  };
  // One operation under way; libfabric wants its context to stay in place.
  struct Operation {
    fi_context2 context;
    int peer;  // -1: a receive
    size_t rail;
    std::optional<uint32_t> sequence;  // of a write or a signal
    uint64_t num_bytes;
    Countdown* countdown;  // of the put that this is a piece of; null: none
    SignalMessage message;  // that is sent
    SignalMessage* buffer;  // where a receive puts one
  };
  struct Source {
    const void* memory;    // null: there is no such place
    const Region* region;  // null: a word of the caller's, which is copied
  };
  struct Piece {
    uint64_t offset;  // in the put
    uint64_t num_bytes;
    bool has_signal;
    bool is_chained;  // another write follows at once
    Countdown* countdown;
  };

  OfiEndpoint(const NetContext& context, std::vector<Rail> rails)
      : bootstrap_(context.window.bootstrap),
        comm_id_(context.comm_id),
        members_(context.window.members.begin(), context.window.members.end()),
        rank_(context.window.rank),
        rails_(std::move(rails)),
        peers_(context.window.members.size()) {}

  Status meet(Deadline deadline);
  Status receive_into(Operation* operation);
  static Result<Registration> register_on(const Rail& rail, uint32_t id, void* memory, size_t num_bytes, uint64_t access);
  const Region* find(uint32_t id) const;
  Source source_of(const NetPut& put) const;
  bool reaches(const NetPut& put) const;
  NetPost put_from(const NetPut& put, const Source& source, bool is_chained);
  bool may_chain(const Peer& peer) const;
  NetPost write(const NetPut& put, const Region& to, const Source& source, const Piece& piece, uint64_t delivery);
  NetPost send_signal(const NetPut& put);
  uint32_t word_of(const NetPut& put) const;
  NetPost posted(int64_t result, Operation* operation, const char* what);
  bool has_room(Peer& peer);
  // Of what is in no registered region. Only where it would have to be: of what is injected, libfabric 1.17's rxm loses the context, and
  // crashes when such an operation ends with its connection.
  uint64_t inject_flag(size_t rail) const { return rails_[rail].fabric.needs(FI_MR_LOCAL) ? FI_INJECT : 0; }
  size_t next_rail() const;
  uint64_t piece_bytes(uint64_t num_bytes) const;
  // For people; empty where there is one.
  std::string on_rail(size_t rail) const;
  static bool keeps_refusing(Peer& peer);
  bool poll();
  bool poll(size_t rail);
  void take(const fi_cq_data_entry& entry);
  void take_failure(size_t rail);
  void look_at_links();
  void arrived(uint32_t rank, uint32_t sequence, const Signal& signal);
  Operation* take_operation(int peer, size_t rail);
  void give_back(Operation* operation) { free_operations_.push_back(operation); }
  Countdown* begin_countdown(const NetPut& put, uint64_t num_pieces);
  void count_down(Countdown* countdown);
  // It was posted and is complete, or lost.
  void end(Operation* operation) {
    Peer& peer = peers_[size_t(operation->peer)];
    --peer.num_in_flight;
    if (operation->sequence) peer.outgoing.delivered(*operation->sequence);
    peer.bytes_in_flight -= operation->num_bytes;
    if (!peer.is_written_off) {
      --num_in_flight_;
      add_bytes_in_flight(-operation->num_bytes);
    }
    give_back(operation);
  }
  void add_bytes_in_flight(uint64_t num_bytes) {
    bytes_in_flight_.store(bytes_in_flight_.load(std::memory_order_relaxed) + num_bytes, std::memory_order_relaxed);
  }
  void fail(const Status& why);
  void write_off(Peer& peer);
  void lose(int peer, const std::string& why);
  void note(const Status& why);

  static constexpr size_t kNumReceives = 256;           // a rail
  static constexpr uint64_t kStripedBytes = 128 << 10;  // a put from this size on is spread over all rails
  static constexpr uint64_t kPieceLimitNs = 30 * kSecond;
  static constexpr uint64_t kConnectLimitNs = 10 * kSecond;
  static constexpr uint64_t kReconnectLimitNs = kSecond;  // who was there is there at once, or gone
  static constexpr uint32_t kSinkRegion = 0;  // takes the 8 bytes of a write that is only a signal
  static constexpr uint32_t kReceiveRegion = ~0u;  // messages; nobody else knows it

  Bootstrap& bootstrap_;
  const uint64_t comm_id_;
  const std::vector<int> members_;
  const int rank_;

  mutable std::mutex mutex_;        // of everything below: libfabric's objects are used by one thread at a time
  std::vector<Rail> rails_;         // as many as every rank has
  std::optional<LinkWatch> links_;  // where there are several
  uint64_t max_piece_bytes_ = ~uint64_t{0};
  // What a completion means. Where writes may pass each other: delivered, so that what is in flight bounds what arrives out
  // of order. Where they can't, the source's end is enough, and costs no answer from the target.
  uint64_t delivery_ = FI_DELIVERY_COMPLETE;
  bool data_carries_signals_ = true;  // else they all travel as messages
  std::vector<Peer> peers_;
  std::map<uint32_t, Region> regions_;
  uint32_t num_words_ = 0;  // given to regions so far
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::deque<Countdown> countdowns_;
  std::vector<Countdown*> free_countdowns_;
  uint64_t sink_[2] = {};  // where the others' bare writes go, and what this rank's carry
  size_t num_in_flight_ = 0;  // writes, reads and messages of this rank, but to peers that are written off
  std::atomic<uint64_t> bytes_in_flight_{0};  // written under the lock; read by anybody, as a hint
  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  Status error_;
};

Result<std::unique_ptr<NetEndpoint>> OfiEndpoint::connect(const NetContext& context, Deadline deadline) {
  const size_t num_ranks = context.window.members.size();
  if (num_ranks >= (size_t{1} << kRankBits)) {
    return Status::invalid_usage(text("network plugin 'ofi' joins up to ", (1 << kRankBits) - 1, " ranks, not ", num_ranks));
  }
  SWITCHYARD_ASSIGN(const std::vector<Interface> interfaces,
                    choose_interfaces(context.machine_ranks.count == int(num_ranks)));
  std::vector<Rail> rails;
  for (const Interface& interface : interfaces) {
    SWITCHYARD_ASSIGN(OfiFabric fabric, OfiFabric::open(context.name, interface));
    rails.push_back({std::move(fabric)});
  }
  std::unique_ptr<OfiEndpoint> endpoint(new OfiEndpoint(context, std::move(rails)));
  SWITCHYARD_TRY(endpoint->meet(deadline));
  SWITCHYARD_TRY(ProgressThreads::instance().add(*endpoint));
  SWITCHYARD_TRY(endpoint->register_region(kSinkRegion, endpoint->sink_, sizeof(endpoint->sink_), deadline));
  return std::unique_ptr<NetEndpoint>(std::move(endpoint));
}

OfiEndpoint::~OfiEndpoint() {
  ProgressThreads::instance().remove(*this);
  for (Rail& rail : rails_) rail.fabric.endpoint.reset();  // before the memory that it may still receive into
}

// Everybody learns everybody's addresses; a rail joins those of one number. Connections are made by the provider, with the
// first message.
Status OfiEndpoint::meet(Deadline deadline) {
  std::vector<RailOffer> mine;
  for (const Rail& rail : rails_) {
    SWITCHYARD_ASSIGN(const OfiFabric::Name name, rail.fabric.name());
    mine.push_back({name, std::min(env().net_data_bytes, uint64_t{rail.fabric.info->domain_attr->cq_data_size})});
  }
  SWITCHYARD_ASSIGN(const std::vector<std::vector<RailOffer>> offers,
                    bootstrap_.exchange_lists<RailOffer>(comm_id_, members_, mine, deadline));
  const auto fewest = std::min_element(offers.begin(), offers.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (fewest->empty()) return Status::remote(text("rank ", fewest - offers.begin(), " has no address on the network"));
  if (fewest->size() < rails_.size()) {
    log(LogLevel::kWarn, "rank ", rank_, ": of ", rails_.size(), " interfaces (SWITCHYARD_INTERFACE) ofi uses the first ",
        fewest->size(), ": rank ", fewest - offers.begin(), " names no more");
    rails_.erase(rails_.begin() + int64_t(fewest->size()), rails_.end());
  }
  for (const std::vector<RailOffer>& peer : offers) {
    for (const RailOffer& offer : peer) data_carries_signals_ &= offer.num_data_bytes >= sizeof(uint64_t);
  }
  if (rails_.size() == 1 && rails_[0].fabric.keeps_order()) delivery_ = 0;
  std::vector<Interface> interfaces;
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    const OfiFabric& fabric = rails_[rail].fabric;
    log(LogLevel::kInfo, "rank ", rank_, ": network ofi, provider ", fabric.info->fabric_attr->prov_name, ", interface ",
        fabric.info->domain_attr->name, ", address ", fabric.interface.address,
        rails_.size() == 1 ? std::string() : text(", rail ", rail + 1, " of ", rails_.size()),
        delivery_ == 0 ? ", in order" : ", in any order", data_carries_signals_ ? "" : ", signals apart");
    interfaces.push_back(fabric.interface);
    max_piece_bytes_ = std::min<uint64_t>(max_piece_bytes_, fabric.info->ep_attr->max_msg_size);
    for (const std::vector<RailOffer>& peer : offers) {
      SWITCHYARD_ASSIGN(rails_[rail].addresses.emplace_back(), fabric.add_peer(peer[rail].name));
    }
    std::vector<SignalMessage>& buffers = rails_[rail].receive_buffers;
    SWITCHYARD_ASSIGN(rails_[rail].receives, register_on(rails_[rail], kReceiveRegion, buffers.data(),
                                                         buffers.size() * sizeof(SignalMessage), FI_RECV));
    for (SignalMessage& buffer : buffers) {
      Operation* receive = take_operation(-1, rail);
      receive->buffer = &buffer;
      SWITCHYARD_TRY(receive_into(receive));
    }
  }
  if (rails_.size() > 1) links_.emplace(std::move(interfaces));
  return {};
}

Status OfiEndpoint::receive_into(Operation* operation) {
  const int64_t error = fi_recv(rails_[operation->rail].fabric.endpoint.get(), operation->buffer, sizeof(SignalMessage),
                                rails_[operation->rail].receives.descriptor, FI_ADDR_UNSPEC, &operation->context);
  return error == 0 ? Status() : fabric_error("fi_recv", error);
}

Result<OfiEndpoint::Registration> OfiEndpoint::register_on(const Rail& rail, uint32_t id, void* memory, size_t num_bytes,
                                                           uint64_t access) {
  const OfiFabric& fabric = rail.fabric;
  fid_mr* registration = nullptr;
  // Where keys are ours to choose they must differ between the communicators of a process that share a domain; none do.
  const int error = fi_mr_reg(fabric.domain.get(), memory, num_bytes, access, 0, id, 0, &registration, nullptr);
  if (error != 0) return fabric_error(text("registering ", num_bytes, " bytes"), error);
  FidPtr<fid_mr> owner(registration);
  if (fabric.needs(FI_MR_ENDPOINT)) {
    int bound = fi_mr_bind(registration, &fabric.endpoint->fid, 0);
    if (bound == 0) bound = fi_mr_enable(registration);
    if (bound != 0) return fabric_error("binding a registration", bound);
  }
  const uint64_t base = fabric.needs(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(memory) : 0;
  return Registration{std::move(owner), fabric.needs(FI_MR_LOCAL) ? fi_mr_desc(registration) : nullptr,
                      {fi_mr_key(registration), base, num_bytes}};
}

Status OfiEndpoint::register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) {
  Region region{static_cast<char*>(memory), num_bytes, {}, {}, kNoWord};
  std::vector<RegionOffer> mine;
  {
    const std::lock_guard lock(mutex_);
    constexpr uint64_t kAccess = FI_WRITE | FI_READ | FI_REMOTE_WRITE | FI_REMOTE_READ;
    for (const Rail& rail : rails_) {
      SWITCHYARD_ASSIGN(region.registrations.emplace_back(), register_on(rail, id, memory, num_bytes, kAccess));
      mine.push_back(region.registrations.back().offer);
    }
  }
  SWITCHYARD_ASSIGN(region.offers, bootstrap_.exchange_lists<RegionOffer>(comm_id_, members_, mine, deadline));
  for (size_t rank = 0; rank < region.offers.size(); ++rank) {
    if (region.offers[rank].size() == rails_.size()) continue;
    return Status::remote(text("rank ", rank, " offers a region on ", region.offers[rank].size(), " rails where rank ", rank_,
                               " expects ", rails_.size(), "; do all ranks run the same program in the same order?"));
  }
  {
    const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  regions_.erase(id);
}

const OfiEndpoint::Region* OfiEndpoint::find(uint32_t id) const {
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : &found->second;
}

// ---- posting ----

OfiEndpoint::Operation* OfiEndpoint::take_operation(int peer, size_t rail) {
  if (free_operations_.empty()) free_operations_.push_back(&operations_.emplace_back());
  Operation* operation = free_operations_.back();
  free_operations_.pop_back();
  operation->peer = peer;
  operation->rail = rail;
  operation->sequence.reset();
  operation->num_bytes = 0;
  operation->countdown = nullptr;
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
  // release; pairs with the acquire in Gin::read_counter()
  std::atomic_ref<uint64_t>(*countdown->counter).fetch_add(1, std::memory_order_release);
  free_countdowns_.push_back(countdown);
}

std::string OfiEndpoint::on_rail(size_t rail) const {
  if (rails_.size() == 1) return "";
  return text(" on rail ", rail + 1, " (interface ", rails_[rail].fabric.interface.name, ")");
}

NetPost OfiEndpoint::posted(int64_t result, Operation* operation, const char* what) {
  if (result == 0) {
    Peer& peer = peers_[size_t(operation->peer)];
    ++peer.num_in_flight;
    peer.bytes_in_flight += operation->num_bytes;
    ++num_in_flight_;
    if (operation->sequence) peer.outgoing.posted();
    peer.has_undelivered = delivery_ == 0;
    add_bytes_in_flight(operation->num_bytes);
    rails_[operation->rail].num_bytes_given += operation->num_bytes;
    peer.refused_since_ns = 0;
    peer.was_reached = true;
    return NetPost::kPosted;
  }
  const int peer = operation->peer;
  const size_t rail = operation->rail;
  give_back(operation);
  if (result == -FI_EAGAIN) {
    poll();
    if (!keeps_refusing(peers_[size_t(peer)])) return NetPost::kBusy;
    lose(peer, text("it takes no connection", on_rail(rail)));
    return NetPost::kFailed;
  }
  lose(peer, text(what, on_rail(rail), ": ", fabric_words(int(-result))));
  return NetPost::kFailed;
}

// "Again" is all that a provider says while it tries to connect, to a process that ended, for ever. Where nothing is in
// flight to the peer it has nothing else to wait for.
bool OfiEndpoint::keeps_refusing(Peer& peer) {
  const uint64_t now = now_ns();
  if (peer.refused_since_ns == 0 || peer.num_in_flight > 0) peer.refused_since_ns = now;
  return now - peer.refused_since_ns > (peer.was_reached ? kReconnectLimitNs : kConnectLimitNs);
}

bool OfiEndpoint::has_room(Peer& peer) {
  if (peer.outgoing.has_room()) return true;
  poll();
  return peer.outgoing.has_room();
}

size_t OfiEndpoint::put_chain(std::span<const NetPut> puts, NetPost& result) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < puts.size(); ++i) {
    // One that will be refused is not waited for.
    const bool is_chained = i + 1 < puts.size() && source_of(puts[i + 1]).memory != nullptr && reaches(puts[i + 1]);
    if ((result = put_from(puts[i], source_of(puts[i]), is_chained)) == NetPost::kPosted) continue;
    // The one before may be held back for this one. Who is told to come back does; else nobody may wait for it.
    if (i > 0 && !usable(puts[i - 1].peer)) write_off(peers_[size_t(puts[i - 1].peer)]);
    return i;
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
  if (peers_[size_t(put.peer)].left.load(std::memory_order_relaxed)) return true;  // it goes nowhere
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

// Pieces of what a provider takes at once; of a large put, one for each rail.
uint64_t OfiEndpoint::piece_bytes(uint64_t num_bytes) const {
  if (rails_.size() == 1 || num_bytes < kStripedBytes) return max_piece_bytes_;
  constexpr uint64_t kMultiple = 64;  // pieces begin where the put begins in a line
  return std::min(max_piece_bytes_, round_up(div_up(num_bytes, rails_.size()), kMultiple));
}

NetPost OfiEndpoint::put_from(const NetPut& put, const Source& source, bool is_chained) {
  // All of it at once: of a put that is refused no piece is posted.
  if (source.memory == nullptr || !reaches(put)) return NetPost::kFailed;
  Peer& peer = peers_[size_t(put.peer)];
  if (peer.left.load(std::memory_order_relaxed)) {
    // release; pairs with the acquire in Gin::read_counter()
    if (put.counter != nullptr) std::atomic_ref<uint64_t>(*put.counter).fetch_add(1, std::memory_order_release);
    return NetPost::kPosted;
  }
  const bool bare = put.num_bytes == 0;
  const Region& to = *find(bare ? kSinkRegion : put.to_region);
  if (!has_room(peer)) return NetPost::kBusy;
  const bool fits = put.signal_value == 0 || word_of(put) != kNoWord;
  if (bare && !fits) return send_signal(put);
  // The signal goes with the last piece, or as a message that has the next number, which says nothing about the source;
  // once a piece is posted the others must be, too.
  const uint64_t most = piece_bytes(put.num_bytes);
  Countdown* const countdown = begin_countdown(put, std::max<uint64_t>(1, div_up(put.num_bytes, most)));
  uint64_t offset = 0;
  NetPost result = NetPost::kBusy;
  const auto post_next = [&] {
    const uint64_t num_bytes = std::min(most, put.num_bytes - offset);
    const bool last = offset + num_bytes == put.num_bytes;
    const bool has_signal = last && fits;
    result = write(put, to, source,
                   {offset, num_bytes, has_signal, has_signal && is_chained && may_chain(peer), countdown}, delivery_);
    if (result == NetPost::kPosted) offset += num_bytes;
    return result;
  };
  if (post_next() != NetPost::kPosted) {
    if (countdown != nullptr) free_countdowns_.push_back(countdown);
    return result;
  }
  const auto finish = [&] {
    while (offset < put.num_bytes) {
      result = has_room(peer) ? post_next() : NetPost::kBusy;
      if (result != NetPost::kPosted) return result == NetPost::kFailed;
    }
    if (!fits) result = has_room(peer) ? send_signal(put) : NetPost::kBusy;
    return result != NetPost::kBusy;
  };
  const auto finish_or_lost = [&] {
    const bool is_gone = peer.left.load(std::memory_order_relaxed) || !usable(put.peer);
    if (!is_gone) return finish();
    result = NetPost::kFailed;
    return true;
  };
  if (wait_until(finish_or_lost, Deadline::after_ns(kPieceLimitNs)) == WaitResult::kReady) return result;
  lose(put.peer, "the network took only a part of a put");
  return NetPost::kFailed;
}

NetPost OfiEndpoint::write(const NetPut& put, const Region& to, const Source& source, const Piece& piece,
                           uint64_t delivery) {
  Peer& peer = peers_[size_t(put.peer)];
  const size_t rail = next_rail();
  const RegionOffer& offer = to.offers[size_t(put.peer)][rail];
  const uint64_t to_offset = put.num_bytes == 0 ? 0 : put.to_offset + piece.offset;
  const uint64_t length = put.num_bytes == 0 ? sizeof(uint64_t) : piece.num_bytes;
  const uint32_t word = piece.has_signal ? word_of(put) : kNoWord;
  const CompletionData data{uint32_t(rank_), peer.outgoing.next(), word,
                            word == kNoWord ? 0 : uint32_t(put.signal_value)};

  Operation* operation = take_operation(put.peer, rail);
  operation->sequence = data.sequence;
  operation->num_bytes = length;
  operation->countdown = piece.countdown;
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
  message.addr = rails_[rail].addresses[size_t(put.peer)];
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &operation->context;
  message.data = data.pack();
  const uint64_t inject = is_value ? inject_flag(rail) : 0;
  const uint64_t more = piece.is_chained ? FI_MORE : 0;
  const uint64_t flags = FI_REMOTE_CQ_DATA | FI_COMPLETION | delivery | inject | more;
  return posted(fi_writemsg(rails_[rail].fabric.endpoint.get(), &message, flags), operation, "a write");
}

NetPost OfiEndpoint::send_signal(const NetPut& put) {
  Peer& peer = peers_[size_t(put.peer)];
  const size_t rail = next_rail();
  Operation* operation = take_operation(put.peer, rail);
  operation->sequence = peer.outgoing.next();
  operation->message = {uint32_t(rank_), *operation->sequence, put.signal_region, 0, put.signal_offset, put.signal_value};
  iovec local{&operation->message, sizeof(operation->message)};
  fi_msg message{};
  message.msg_iov = &local;
  message.iov_count = 1;
  message.addr = rails_[rail].addresses[size_t(put.peer)];
  message.context = &operation->context;
  const int64_t sent =
      fi_sendmsg(rails_[rail].fabric.endpoint.get(), &message, inject_flag(rail) | FI_COMPLETION | delivery_);
  return posted(sent, operation, "a signal");
}

NetPost OfiEndpoint::get(int peer_rank, uint32_t from_region, uint64_t from_offset, uint32_t to_region,
                         uint64_t to_offset, uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  if (peer_rank < 0 || size_t(peer_rank) >= peers_.size() || !usable(peer_rank)) return NetPost::kFailed;
  const Region* from = find(from_region);
  const Region* to = find(to_region);
  if (from == nullptr || to == nullptr || !range_fits(to_offset, num_bytes, to->num_bytes)) return NetPost::kFailed;
  const size_t rail = next_rail();
  const RegionOffer& offer = from->offers[size_t(peer_rank)][rail];
  if (!range_fits(from_offset, num_bytes, offer.num_bytes)) return NetPost::kFailed;
  Operation* operation = take_operation(peer_rank, rail);
  const int64_t asked = fi_read(rails_[rail].fabric.endpoint.get(), to->memory + to_offset, num_bytes,
                                to->registrations[rail].descriptor, rails_[rail].addresses[size_t(peer_rank)],
                                offer.base + from_offset, offer.key, &operation->context);
  if (asked == 0) rails_[rail].num_bytes_given += num_bytes;
  return posted(asked, operation, "a read");
}

NetPost OfiEndpoint::flush() {
  const std::lock_guard lock(mutex_);
  if (num_in_flight_ > 0) poll();
  if (failed_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  return num_in_flight_ == 0 ? NetPost::kPosted : NetPost::kBusy;
}

NetPost OfiEndpoint::deliver() {
  {
    const std::lock_guard lock(mutex_);
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      if (!peers_[rank].has_undelivered || !usable(int(rank)) || peers_[rank].left.load(std::memory_order_relaxed)) continue;
      // A write of nothing, behind all others, that is complete when it is there.
      if (!has_room(peers_[rank])) return NetPost::kBusy;
      NetPut fence{};
      fence.peer = int(rank);
      const Piece piece{0, 0, true, false, nullptr};
      const NetPost result = write(fence, *find(kSinkRegion), {&sink_[1], find(kSinkRegion)}, piece, FI_DELIVERY_COMPLETE);
      if (result == NetPost::kBusy) return NetPost::kBusy;
      peers_[rank].has_undelivered = false;
    }
  }
  return flush();
}

// ---- completions ----

void OfiEndpoint::catch_up() {
  const std::lock_guard lock(mutex_);
  while (poll()) continue;
}

bool OfiEndpoint::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  count_help();
  return poll();
}

void OfiEndpoint::look_at_links() {
  const Interface* lost = links_->lost();
  if (lost == nullptr) return;
  fail(Status::remote(text("rank ", rank_, ": interface ", lost->name, " (address ", lost->address,
                           ") is down or has no carrier, and carries a share of all puts; see `ip link show ", lost->name,
                           "`, or start without it in SWITCHYARD_INTERFACE")));
}

// True when something had completed, here or from a peer.
bool OfiEndpoint::poll() {
  if (links_) look_at_links();  // whoever waits for room comes by here, too
  bool any = false;
  for (size_t rail = 0; rail < rails_.size(); ++rail) any |= poll(rail);
  return any;
}

bool OfiEndpoint::poll(size_t rail) {
  fi_cq_data_entry entries[32];
  bool any = false;
  for (;;) {
    const int64_t count = fi_cq_read(rails_[rail].fabric.completions.get(), entries, std::size(entries));
    if (count == -FI_EAGAIN || count == 0) return any;
    any = true;
    if (count == -FI_EAVAIL) {
      take_failure(rail);
      continue;
    }
    if (count < 0) {
      fail(fabric_error("fi_cq_read", count));
      return any;
    }
    for (int64_t i = 0; i < count; ++i) take(entries[i]);
    if (count < int64_t(std::size(entries))) return any;
  }
}

void OfiEndpoint::take(const fi_cq_data_entry& entry) {
  if (entry.flags & FI_REMOTE_CQ_DATA) {
    const CompletionData data = CompletionData::unpack(entry.data);
    Signal signal;
    if (data.word != kNoWord) {
      const auto owner = std::find_if(regions_.begin(), regions_.end(), [&](const auto& item) {
        const Region& region = item.second;
        return region.first_word != kNoWord && data.word >= region.first_word &&
               data.word - region.first_word < region.num_bytes / sizeof(uint64_t);
      });
      // A region that is gone: nobody looks at its signals any more.
      if (owner != regions_.end()) {
        signal = {owner->first, (data.word - owner->second.first_word) * sizeof(uint64_t), data.value};
      }
    }
    return arrived(data.rank, data.sequence, signal);
  }
  auto* operation = reinterpret_cast<Operation*>(entry.op_context);
  if (operation == nullptr) return fail(Status::internal(text("rank ", rank_, ": a completion of libfabric names no operation")));
  if (operation->peer >= 0) {
    count_down(operation->countdown);
    return end(operation);
  }
  const SignalMessage message = *operation->buffer;
  if (entry.len != sizeof(message)) return fail(Status::remote(text("a peer sent ", entry.len, " bytes that are no signal")));
  arrived(message.rank, message.sequence, {message.region, message.offset, message.value});
  if (const Status receiving = receive_into(operation); !receiving.ok()) fail(receiving);
}

// What a peer says is not trusted: it names a rank, a number and a place, and each may be nonsense.
void OfiEndpoint::arrived(uint32_t rank, uint32_t sequence, const Signal& signal) {
  const auto apply = [&](const Signal& due) {
    const Region* region = find(due.region);
    if (region == nullptr) return;  // gone meanwhile
    if (due.offset % sizeof(uint64_t) != 0 || !range_fits(due.offset, sizeof(uint64_t), region->num_bytes)) {
      return fail(Status::remote(text("rank ", rank, " signals a place outside of region ", due.region)));
    }
    // release; pairs with the acquire in Gin::read_signal() and Barrier::heard()
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(region->memory + due.offset))
        .fetch_add(due.value, std::memory_order_release);
  };
  if (rank >= peers_.size() || !peers_[rank].incoming.arrive(sequence, signal, apply)) {
    fail(Status::remote(text("rank ", rank_, ": write ", sequence, " of rank ", rank, " came twice, or was never due")));
  }
}

void OfiEndpoint::take_failure(size_t rail) {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(rails_[rail].fabric.completions.get(), &entry, 0) < 0) return;
  auto* operation = static_cast<Operation*>(entry.op_context);
  const int peer = operation == nullptr ? -1 : operation->peer;
  if (peer < 0) {
    log(LogLevel::kInfo, "rank ", rank_, ": a receive ended", on_rail(rail), ": ", fabric_words(entry.err));
    return;
  }
  end(operation);
  lose(peer, text(fabric_words(entry.err), on_rail(rail)));
}

// Any thread, with the endpoint's lock or without: abort() must not wait for it.
void OfiEndpoint::fail(const Status& why) {
  note(why);
  failed_.store(true, std::memory_order_relaxed);  // carries nothing: who wants the reason takes the lock
}

// One peer; the others go on.
void OfiEndpoint::lose(int peer, const std::string& why) {
  if (peers_[size_t(peer)].left.load(std::memory_order_relaxed)) return;
  // release; pairs with the acquire in usable()
  if (peers_[size_t(peer)].lost.exchange(true, std::memory_order_release)) return;
  note(Status::remote(text("rank ", rank_, ": the network lost rank ", peer, ": ", why)));
}

void OfiEndpoint::give_up(int peer, const std::string& why) {
  lose(peer, why);  // first: who holds the lock for long looks at this
  const std::lock_guard lock(mutex_);
  write_off(peers_[size_t(peer)]);
}

void OfiEndpoint::forget(int peer) {
  peers_[size_t(peer)].left.store(true, std::memory_order_relaxed);  // first, as above
  const std::lock_guard lock(mutex_);
  write_off(peers_[size_t(peer)]);
}

void OfiEndpoint::write_off(Peer& peer) {
  if (std::exchange(peer.is_written_off, true)) return;
  num_in_flight_ -= peer.num_in_flight;
  add_bytes_in_flight(-peer.bytes_in_flight);
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
