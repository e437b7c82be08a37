#include "net/ofi.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/log.hpp"
#include "net/ofi_fabric.hpp"
#include "net/progress.hpp"
#include "net/signal_order.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

// What a write carries to the target, in 64 bits: who, which number, and a signal if it is small.
//   rank 14 | sequence 14 | word 20 | value 16
// `word` numbers the 8-byte words of the first regions; a signal that does not fit travels as a message of its own.
constexpr int kRankBits = 14, kWordBits = 20, kValueBits = 16;
constexpr uint32_t kNoWord = (1u << kWordBits) - 1;
static_assert(kRankBits + kSequenceBits + kWordBits + kValueBits == 64);

struct CompletionData {
  uint32_t rank, sequence, word, value;

  uint64_t pack() const {
    return uint64_t(rank) << (64 - kRankBits) | uint64_t(sequence) << (kWordBits + kValueBits) |
           uint64_t(word) << kValueBits | value;
  }
  static CompletionData unpack(uint64_t bits) {
    return {uint32_t(bits >> (64 - kRankBits)), uint32_t(bits >> (kWordBits + kValueBits)) & kSequenceMask,
            uint32_t(bits >> kValueBits) & kNoWord, uint32_t(bits & ((1u << kValueBits) - 1))};
  }
};

// A signal that does not fit into completion data.
struct SignalMessage {
  uint32_t rank;
  uint32_t sequence;
  uint32_t region;
  uint32_t reserved;
  uint64_t offset;
  uint64_t value;
};
static_assert(sizeof(SignalMessage) == 32);

// Where a region is, as its owner tells the others.
struct RegionOffer {
  uint64_t key;
  uint64_t base;  // added to offsets
  uint64_t num_bytes;
};

class OfiEndpoint final : public NetEndpoint {
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
  struct Region {
    char* memory;
    uint64_t num_bytes;
    FidPtr<fid_mr> registration;
    void* descriptor;
    std::vector<RegionOffer> offers;  // by rank
    uint32_t first_word;              // of its words in completion data; kNoWord: none
  };
  struct Peer {
    std::atomic<bool> lost{false};  // its connection ended: nothing else is posted to it
    std::atomic<bool> left{false};  // in good order: what is posted to it goes nowhere
    fi_addr_t address = FI_ADDR_UNSPEC;
    SentOrder outgoing;
    uint32_t num_in_flight = 0;
    uint64_t bytes_in_flight = 0;
    bool has_undelivered = false;   // something was posted whose completion says nothing about the target
    bool is_written_off = false;    // what is in flight to it counts no more
    uint64_t refused_since_ns = 0;  // the provider has no way to it; 0: it has
    SignalOrder incoming;
  };
  // One operation under way; libfabric wants its context to stay in place.
  struct Operation {
    fi_context2 context;
    int peer;                          // -1: a receive
    std::optional<uint32_t> sequence;  // of a write or a signal
    uint64_t num_bytes;
    uint64_t* counter;  // of the put that this is the last of; null: none
    SignalMessage message;
  };
  struct Source {
    const void* memory;
    void* descriptor;
    bool inject;
  };

  OfiEndpoint(const NetContext& context, OfiFabric fabric)
      : bootstrap_(context.window.bootstrap),
        comm_id_(context.comm_id),
        members_(context.window.members.begin(), context.window.members.end()),
        rank_(context.window.rank),
        fabric_(std::move(fabric)),
        delivery_(fabric_.keeps_order() ? 0 : FI_DELIVERY_COMPLETE),
        peers_(context.window.members.size()) {}

  Status meet(Deadline deadline);
  Status post_receives();
  const Region* find(uint32_t id) const;
  NetPost put_from(const NetPut& put, const Source& source);
  NetPost write(const NetPut& put, const Source& source, uint64_t offset, uint64_t num_bytes, bool last, uint64_t delivery);
  NetPost send_signal(const NetPut& put);
  uint32_t word_of(const NetPut& put) const;
  NetPost posted(int64_t result, Operation* operation, const char* what);
  bool has_room(Peer& peer);
  static bool keeps_refusing(Peer& peer);
  bool poll();
  void take(const fi_cq_data_entry& entry);
  void take_failure();
  void arrived(uint32_t rank, uint32_t sequence, const Signal& signal);
  Operation* take_operation(int peer);
  void give_back(Operation* operation) { free_operations_.push_back(operation); }
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

  static constexpr size_t kNumReceives = 256;
  static constexpr uint64_t kPieceLimitNs = 30 * kSecond;
  static constexpr uint64_t kConnectLimitNs = 10 * kSecond;
  static constexpr uint32_t kSinkRegion = 0;  // takes the 8 bytes of a write that is only a signal

  Bootstrap& bootstrap_;
  const uint64_t comm_id_;
  const std::vector<int> members_;
  const int rank_;

  mutable std::mutex mutex_;  // of everything below: libfabric's objects are used by one thread at a time
  OfiFabric fabric_;
  // What a completion means. Where writes may pass each other: delivered, so that what is in flight bounds what arrives out
  // of order. Where they can't, the source's end is enough, and costs no answer from the target.
  const uint64_t delivery_;
  std::vector<Peer> peers_;
  std::map<uint32_t, Region> regions_;
  uint32_t num_words_ = 0;  // given to regions so far
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::vector<SignalMessage> receive_buffers_ = std::vector<SignalMessage>(kNumReceives);
  uint64_t sink_ = 0;
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
  SWITCHYARD_ASSIGN(OfiFabric fabric, OfiFabric::open(context.name, context.machine_ranks.count == int(num_ranks)));
  log(LogLevel::kInfo, "rank ", context.window.rank, ": network ofi, provider ", fabric.info->fabric_attr->prov_name,
      ", interface ", fabric.info->domain_attr->name, ", address ", fabric.address,
      fabric.keeps_order() ? ", in order" : ", in any order");
  std::unique_ptr<OfiEndpoint> endpoint(new OfiEndpoint(context, std::move(fabric)));
  SWITCHYARD_TRY(endpoint->meet(deadline));
  SWITCHYARD_TRY(ProgressThreads::instance().add(*endpoint));
  SWITCHYARD_TRY(endpoint->register_region(kSinkRegion, &endpoint->sink_, sizeof(endpoint->sink_), deadline));
  return std::unique_ptr<NetEndpoint>(std::move(endpoint));
}

OfiEndpoint::~OfiEndpoint() {
  ProgressThreads::instance().remove(*this);
  fabric_.endpoint.reset();  // before the memory that it may still receive into
}

// Everybody learns everybody's address. Connections are made by the provider, with the first message.
Status OfiEndpoint::meet(Deadline deadline) {
  struct Name {
    std::byte bytes[OfiFabric::kMaxAddressBytes];
  };
  SWITCHYARD_ASSIGN(const std::vector<std::byte> mine, fabric_.name());
  Name name{};
  std::memcpy(name.bytes, mine.data(), std::min(sizeof(name.bytes), mine.size()));
  SWITCHYARD_ASSIGN(const std::vector<Name> names, bootstrap_.exchange_values(comm_id_, members_, name, deadline));
  for (size_t rank = 0; rank < names.size(); ++rank) {
    SWITCHYARD_ASSIGN(peers_[rank].address, fabric_.add_peer(names[rank].bytes));
  }
  return post_receives();
}

Status OfiEndpoint::post_receives() {
  for (SignalMessage& buffer : receive_buffers_) {
    Operation* operation = take_operation(-1);
    const int64_t error =
        fi_recv(fabric_.endpoint.get(), &buffer, sizeof(buffer), nullptr, FI_ADDR_UNSPEC, &operation->context);
    if (error != 0) return fabric_error("fi_recv", error);
  }
  return {};
}

Status OfiEndpoint::register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) {
  Region region{static_cast<char*>(memory), num_bytes, nullptr, nullptr, {}, kNoWord};
  RegionOffer offer{};
  {
    const std::lock_guard lock(mutex_);
    fid_mr* registration = nullptr;
    constexpr uint64_t kAccess = FI_WRITE | FI_READ | FI_REMOTE_WRITE | FI_REMOTE_READ;
    // Where keys are ours to choose they must differ between the communicators of a process that share a domain; none do.
    const int error = fi_mr_reg(fabric_.domain.get(), memory, num_bytes, kAccess, 0, id, 0, &registration, nullptr);
    if (error != 0) return fabric_error(text("registering ", num_bytes, " bytes"), error);
    region.registration.reset(registration);
    if (fabric_.needs(FI_MR_ENDPOINT)) {
      int bound = fi_mr_bind(registration, &fabric_.endpoint->fid, 0);
      if (bound == 0) bound = fi_mr_enable(registration);
      if (bound != 0) return fabric_error("binding a registration", bound);
    }
    region.descriptor = fabric_.needs(FI_MR_LOCAL) ? fi_mr_desc(registration) : nullptr;
    offer = {fi_mr_key(registration), fabric_.needs(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(memory) : 0, num_bytes};
  }
  SWITCHYARD_ASSIGN(region.offers, bootstrap_.exchange_values(comm_id_, members_, offer, deadline));
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

OfiEndpoint::Operation* OfiEndpoint::take_operation(int peer) {
  if (free_operations_.empty()) free_operations_.push_back(&operations_.emplace_back());
  Operation* operation = free_operations_.back();
  free_operations_.pop_back();
  operation->peer = peer;
  operation->sequence.reset();
  operation->num_bytes = 0;
  operation->counter = nullptr;
  return operation;
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
    peer.refused_since_ns = 0;
    return NetPost::kPosted;
  }
  const int peer = operation->peer;
  give_back(operation);
  if (result == -FI_EAGAIN) {
    poll();
    if (!keeps_refusing(peers_[size_t(peer)])) return NetPost::kBusy;
    lose(peer, "it takes no connection");
    return NetPost::kFailed;
  }
  lose(peer, text(what, ": ", fi_strerror(int(-result))));
  return NetPost::kFailed;
}

// "Again" is all that a provider says while it tries to connect, to a process that ended, for ever. Where nothing is in
// flight to the peer it has nothing else to wait for.
bool OfiEndpoint::keeps_refusing(Peer& peer) {
  const uint64_t now = now_ns();
  if (peer.refused_since_ns == 0 || peer.num_in_flight > 0) peer.refused_since_ns = now;
  return now - peer.refused_since_ns > kConnectLimitNs;
}

bool OfiEndpoint::has_room(Peer& peer) {
  if (peer.outgoing.has_room()) return true;
  poll();
  return peer.outgoing.has_room();
}

NetPost OfiEndpoint::put(const NetPut& put) {
  const std::lock_guard lock(mutex_);
  if (put.num_bytes == 0) return put_from(put, {&sink_, nullptr, true});
  const Region* from = find(put.from_region);
  if (from == nullptr || !range_fits(put.from_offset, put.num_bytes, from->num_bytes)) return NetPost::kFailed;
  return put_from(put, {from->memory + put.from_offset, from->descriptor, false});
}

NetPost OfiEndpoint::put_value(const NetPut& put, uint64_t value) {
  const std::lock_guard lock(mutex_);
  if (put.num_bytes == 0 || put.num_bytes > sizeof(value)) return NetPost::kFailed;
  return put_from(put, {&value, nullptr, true});
}

// The index of the signal's word, if signal and value fit into completion data.
uint32_t OfiEndpoint::word_of(const NetPut& put) const {
  if (put.signal_value == 0 || put.signal_value >= (1u << kValueBits) || put.signal_offset % sizeof(uint64_t) != 0) {
    return kNoWord;
  }
  const Region* signals = find(put.signal_region);
  if (signals == nullptr || signals->first_word == kNoWord) return kNoWord;
  return signals->first_word + uint32_t(put.signal_offset / sizeof(uint64_t));
}

NetPost OfiEndpoint::put_from(const NetPut& put, const Source& source) {
  if (failed_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  if (put.peer < 0 || size_t(put.peer) >= peers_.size() || !usable(put.peer)) return NetPost::kFailed;
  if (put.signal_value != 0) {
    const Region* signals = find(put.signal_region);
    if (signals == nullptr || !range_fits(put.signal_offset, sizeof(uint64_t), signals->num_bytes)) return NetPost::kFailed;
  }
  Peer& peer = peers_[size_t(put.peer)];
  if (peer.left.load(std::memory_order_relaxed)) {
    // release; pairs with the acquire in Gin::read_counter()
    if (put.counter != nullptr) std::atomic_ref<uint64_t>(*put.counter).fetch_add(1, std::memory_order_release);
    return NetPost::kPosted;
  }
  if (!has_room(peer)) return NetPost::kBusy;
  const bool fits = put.signal_value == 0 || word_of(put) != kNoWord;
  if (put.num_bytes == 0 && !fits) return send_signal(put);
  // Pieces of what the provider takes at once. The signal goes with the last one, or as a message that has the next
  // number; once a piece is posted the others must be, too.
  const uint64_t most = fabric_.info->ep_attr->max_msg_size;
  uint64_t offset = 0;
  NetPost result = NetPost::kBusy;
  const auto post_next = [&] {
    const uint64_t num_bytes = std::min(most, put.num_bytes - offset);
    const bool last = offset + num_bytes == put.num_bytes;
    result = write(put, source, offset, num_bytes, last && fits, delivery_);
    if (result == NetPost::kPosted) offset += num_bytes;
    return result;
  };
  if (post_next() != NetPost::kPosted) return result;
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

NetPost OfiEndpoint::write(const NetPut& put, const Source& source, uint64_t offset, uint64_t num_bytes, bool last,
                           uint64_t delivery) {
  const Region* to = find(put.num_bytes == 0 ? kSinkRegion : put.to_region);
  if (to == nullptr) return NetPost::kFailed;
  const RegionOffer& offer = to->offers[size_t(put.peer)];
  const uint64_t to_offset = put.num_bytes == 0 ? 0 : put.to_offset + offset;
  const uint64_t length = put.num_bytes == 0 ? sizeof(uint64_t) : num_bytes;
  if (!range_fits(to_offset, length, offer.num_bytes)) return NetPost::kFailed;
  Peer& peer = peers_[size_t(put.peer)];
  const uint32_t word = last ? word_of(put) : kNoWord;
  const CompletionData data{uint32_t(rank_), peer.outgoing.next(), word,
                            word == kNoWord ? 0 : uint32_t(put.signal_value)};

  Operation* operation = take_operation(put.peer);
  operation->sequence = data.sequence;
  operation->num_bytes = length;
  // A signal that follows as a message says nothing about the source.
  if (offset + num_bytes == put.num_bytes) operation->counter = put.counter;
  iovec local{const_cast<char*>(static_cast<const char*>(source.memory) + offset), length};
  void* descriptor = source.descriptor;
  fi_rma_iov remote{offer.base + to_offset, length, offer.key};
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = peer.address;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &operation->context;
  message.data = data.pack();
  const uint64_t flags = FI_REMOTE_CQ_DATA | FI_COMPLETION | delivery | (source.inject ? FI_INJECT : uint64_t{0});
  return posted(fi_writemsg(fabric_.endpoint.get(), &message, flags), operation, "a write");
}

NetPost OfiEndpoint::send_signal(const NetPut& put) {
  Peer& peer = peers_[size_t(put.peer)];
  Operation* operation = take_operation(put.peer);
  operation->sequence = peer.outgoing.next();
  operation->message = {uint32_t(rank_), *operation->sequence, put.signal_region, 0, put.signal_offset, put.signal_value};
  iovec local{&operation->message, sizeof(operation->message)};
  fi_msg message{};
  message.msg_iov = &local;
  message.iov_count = 1;
  message.addr = peer.address;
  message.context = &operation->context;
  const int64_t sent =
      fi_sendmsg(fabric_.endpoint.get(), &message, FI_INJECT | FI_COMPLETION | delivery_);
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
  const RegionOffer& offer = from->offers[size_t(peer_rank)];
  if (!range_fits(from_offset, num_bytes, offer.num_bytes)) return NetPost::kFailed;
  Operation* operation = take_operation(peer_rank);
  return posted(fi_read(fabric_.endpoint.get(), to->memory + to_offset, num_bytes, to->descriptor,
                        peers_[size_t(peer_rank)].address, offer.base + from_offset, offer.key, &operation->context),
                operation, "a read");
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
      if (write(fence, {&sink_, nullptr, true}, 0, 0, true, FI_DELIVERY_COMPLETE) == NetPost::kBusy) return NetPost::kBusy;
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

// True when something had completed, here or from a peer.
bool OfiEndpoint::poll() {
  fi_cq_data_entry entries[32];
  bool any = false;
  for (;;) {
    const int64_t count = fi_cq_read(fabric_.completions.get(), entries, std::size(entries));
    if (count == -FI_EAGAIN || count == 0) return any;
    any = true;
    if (count == -FI_EAVAIL) {
      take_failure();
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
  if (operation->peer >= 0) {
    // release; pairs with the acquire in Gin::read_counter()
    if (operation->counter != nullptr) {
      std::atomic_ref<uint64_t>(*operation->counter).fetch_add(1, std::memory_order_release);
    }
    return end(operation);
  }
  auto* buffer = static_cast<SignalMessage*>(entry.buf);
  const SignalMessage message = *buffer;
  if (entry.len != sizeof(message)) return fail(Status::remote(text("a peer sent ", entry.len, " bytes that are no signal")));
  arrived(message.rank, message.sequence, {message.region, message.offset, message.value});
  const int64_t error =
      fi_recv(fabric_.endpoint.get(), buffer, sizeof(*buffer), nullptr, FI_ADDR_UNSPEC, &operation->context);
  if (error != 0) fail(fabric_error("fi_recv", error));
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

void OfiEndpoint::take_failure() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(fabric_.completions.get(), &entry, 0) < 0) return;
  auto* operation = static_cast<Operation*>(entry.op_context);
  const int peer = operation == nullptr ? -1 : operation->peer;
  if (peer < 0) {
    log(LogLevel::kInfo, "rank ", rank_, ": a receive ended: ", fi_strerror(entry.err));
    return;
  }
  end(operation);
  lose(peer, fi_strerror(entry.err));
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
