// OfiEndpoint: one rank's end of a network that libfabric reaches (docs/networks.md). One class in four files, by what
// is under way:
//
//   ofi.cc              making it: rails, addresses, registrations
//   ofi_posting.cc      puts, cut into pieces and spread over rails; flushes and deliveries
//   ofi_completions.cc  what has arrived or is complete
//   ofi_loss.cc         peers and networks that are lost, and how that is found out
//
// THREADS, OWNERSHIP, ERRORS  as NetEndpoint; everything of libfabric is used under one lock.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/keyed_hash.hpp"
#include "net/net.hpp"
#include "net/ofi_fabric.hpp"
#include "net/ofi_wire.hpp"
#include "net/signal_order.hpp"

namespace switchyard {

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
  NetPost flush() override;
  NetPost deliver(Delivery& delivery) override;
  bool progress() override;
  void catch_up() override;
  uint64_t bytes_in_flight() const override { return bytes_in_flight_.load(std::memory_order_relaxed); }
  bool usable(int peer) const override {
    // acquire; pairs with the release in mark_lost() and stop(): who sees that a peer is lost sees all that came from
    // it, and who sees the end of an abort sees the abort
    return !failed_.load(std::memory_order_acquire) && !peers_[size_t(peer)].lost.load(std::memory_order_acquire);
  }
  void give_up(int peer, const std::string& why) override;
  void forget(int peer) override;
  void abort() override { stop(Status::invalid_usage("the network endpoint was aborted")); }
  Status error() const override;
  Status why_lost(int peer) const override;

 private:
  struct Registration {
    FidPtr<fid_mr> memory;
    void* descriptor;
    RegionOffer offer;
  };
  struct Way {
    fi_addr_t address;
    uint32_t tag;
    bool was_reached = false;  // the provider has had a connection
    bool is_refused = false;   // and has none now
  };
  // A way to every peer: libfabric's objects on one interface. Any rail may bring any write, since nothing but its number
  // says when it counts.
  struct Rail {
    OfiFabric fabric;
    uint32_t tag;
    uint64_t num_bytes_given = 0;  // since the beginning
    std::vector<Way> ways{};       // by rank
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
    std::atomic<bool> lost{false};  // for good: nothing else is posted to it, and what is in flight to it counts no more
    std::atomic<bool> left{false};  // in good order: what is posted to it goes nowhere
    SentOrder outgoing;
    uint32_t num_in_flight = 0;
    uint64_t bytes_in_flight = 0;
    bool is_written_off = false;    // lost or left, and its bytes are no longer counted
    // Writes and signals so far: all; up to the last whose completion says that it was delivered, and all before it; and
    // those of which that is known.
    uint64_t num_posted = 0, num_asked = 0, num_answered = 0;
    uint64_t suspected_ns = 0;      // when this end alone found that it does not reach it; 0: it does
    std::string suspicion;
    uint64_t last_refused_ns = 0;   // the provider had no way to it; 0: it has one
    uint64_t refused_for_ns = 0;
    uint64_t num_posted_when_refused = 0;
    uint64_t took_others_ns = 0;  // when the provider was seen to take operations while it refused those for this peer
    uint64_t num_posted_at_last_look = 0;
    bool misses_writes = false;      // that it sent: nothing of it counts any more
    Status why_lost;                 // of error_mutex_
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
    uint32_t sequence;
    uint64_t num_bytes;
    uint64_t num_posted;   // to the peer, with this one
    bool is_answered;      // its completion says that it was delivered, and all before it
    Countdown* countdown;  // of the put that this is a piece of; null: none
    bool is_upkeep;        // nobody waits for it: a flush does not, and a peer that does not help holds up nobody
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
    bool is_upkeep = false;  // complete when it is delivered, whatever completions of others mean
  };

  OfiEndpoint(const NetContext& context, std::vector<Rail> rails)
      : bootstrap_(context.window.bootstrap),
        losses_(context),
        comm_id_(context.comm_id),
        members_(context.window.members.begin(), context.window.members.end()),
        rank_(context.window.rank),
        rails_(std::move(rails)),
        peers_(context.window.members.size()) {}

  Status meet(Deadline deadline);
  Status receive_into(Operation* operation);
  Result<Registration> register_on(const Rail& rail, uint32_t id, void* memory, size_t num_bytes, uint64_t access) const;
  uint64_t key_of(const Rail& rail, uint32_t id) const;
  const Region* find(uint32_t id) const;
  Source source_of(const NetPut& put) const;
  bool reaches(const NetPut& put) const;
  bool has_left(int peer) const { return peers_[size_t(peer)].left.load(std::memory_order_relaxed); }
  NetPost put_from(const NetPut& put, const Source& source, bool is_chained);
  bool may_chain(const Peer& peer) const;
  bool write(const NetPut& put, const Region& to, const Source& source, const Piece& piece);
  void write_fence(int peer);
  bool needs_answer(const Peer& peer) const;
  uint64_t num_delivered(const Peer& peer) const {
    return delivery_ == 0 ? peer.num_answered : peer.num_posted - peer.outgoing.num_open();
  }
  bool send_signal(const NetPut& put);
  uint32_t word_of(const NetPut& put) const;
  bool posted(int64_t result, Operation* operation, const char* what);
  bool has_room(Peer& peer, uint64_t num_writes = 1);
  // Of what is in no registered region. Only where it would have to be: of what is injected, libfabric 1.17's rxm loses the context, and
  // crashes when such an operation ends with its connection.
  uint64_t inject_flag(size_t rail) const { return rails_[rail].fabric.needs(FI_MR_LOCAL) ? FI_INJECT : 0; }
  size_t next_rail() const;
  uint64_t piece_bytes(uint64_t num_bytes) const;
  // For people; empty where there is one.
  std::string on_rail(size_t rail) const;
  void has_way(int peer, size_t rail);
  bool keeps_refusing(int peer, size_t rail);
  bool poll();
  bool poll(size_t rail);
  void take(const fi_cq_data_entry& entry);
  bool take_failure(size_t rail);
  void receive_again(Operation* operation);
  void arrived(uint32_t rank, uint32_t sequence, const Signal& signal);
  Operation* take_operation(int peer, size_t rail);
  void give_back(Operation* operation) { free_operations_.push_back(operation); }
  Countdown* begin_countdown(const NetPut& put, uint64_t num_pieces);
  void count_down(Countdown* countdown);
  // It was posted and is complete, or lost.
  void end(Operation* operation) {
    Peer& peer = peers_[size_t(operation->peer)];
    count_down(operation->countdown);  // the source may be reused, whatever became of it
    peer.outgoing.delivered(operation->sequence);
    if (!operation->is_upkeep) count_ended(peer, operation->num_bytes);
    give_back(operation);
  }
  // Who was written off may be so in the middle of a post: what goes out after that counts no more, either.
  void count_in_flight(Peer& peer, uint64_t num_bytes) {
    ++peer.num_in_flight;
    peer.bytes_in_flight += num_bytes;
    if (peer.is_written_off) return;
    ++num_in_flight_;
    add_bytes_in_flight(num_bytes);
  }
  void count_ended(Peer& peer, uint64_t num_bytes) {
    --peer.num_in_flight;
    peer.bytes_in_flight -= num_bytes;
    if (peer.is_written_off) return;
    --num_in_flight_;
    add_bytes_in_flight(-num_bytes);
  }
  void add_bytes_in_flight(uint64_t num_bytes) {
    bytes_in_flight_.store(bytes_in_flight_.load(std::memory_order_relaxed) + num_bytes, std::memory_order_relaxed);
  }
  void look_at_links();
  void look_after_peers();
  void probe(int peer);
  void fail(const Status& why);
  bool stop(const Status& why);
  void write_off(Peer& peer);
  void settle_losses();
  void suspect(int peer, const std::string& why);
  void lose(int peer, const std::string& why);
  bool mark_lost(int peer, const std::string& why);
  void note(const Status& why, Status& where);

  static constexpr size_t kNumReceives = 256;           // a rail
  static constexpr uint64_t kStripedBytes = 128 << 10;  // a put from this size on is spread over all rails
  static constexpr uint64_t kPieceBytes = 256 << 10;
  static constexpr uint64_t kMaxPieces = 16;  // where the provider takes as much at once
  static constexpr uint64_t kIdlePollNs = 5'000;  // and more than a poll takes that finds nothing
  static constexpr uint64_t kPieceLimitNs = 30 * kSecond;
  static constexpr uint64_t kConnectLimitNs = 10 * kSecond;
  static constexpr uint32_t kAnswerEvery = 4096;  // writes
  static constexpr uint32_t kSinkRegion = 0;  // takes the 8 bytes of a write that is only a signal
  static constexpr uint32_t kReceiveRegion = ~0u;  // messages; nobody else knows it

  Bootstrap& bootstrap_;
  const LossTeller losses_;
  const uint64_t comm_id_;
  const std::vector<int> members_;
  const int rank_;
  const uint64_t key_base_ = random_bits<uint64_t>();

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
  uint64_t num_posted_ = 0;   // operations that the provider took
  size_t num_in_flight_ = 0;  // writes and messages of this rank, but to peers that are written off
  std::atomic<uint64_t> bytes_in_flight_{0};  // written under the lock; read by anybody, as a hint
  uint64_t next_look_ns_ = 0;                 // after the peers
  bool was_disturbed_ = false;  // by messages of who is not of this job
  std::atomic<bool> somebody_is_gone_{false};  // lost or left, since the last poll
  int num_suspected_ = 0;
  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;  // of what follows
  Status error_;                    // the first
  Status failure_;                  // that ended everything
};

}  // namespace switchyard
