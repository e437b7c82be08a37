// One rail: a libfabric endpoint, its way to every peer, and what is under way on it.
//
// It moves bytes and messages and says what became of them. What they mean, in which order they count and who is lost
// is its owner's business.
//
// THREADS    one at a time, under its owner's lock; bytes_in_flight(): any.
// OWNERSHIP  owns libfabric's objects and the operations under way; the memory it moves is others'.
// ERRORS     posting answers as libfabric does: 0, -FI_EAGAIN or what is wrong. What fails later is told to the owner.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/ofi_fabric.hpp"
#include "net/ofi_wire.hpp"

namespace switchyard {

class OfiRail {
 public:
  // What its owner wants to know of an operation when it ends.
  struct Purpose {
    std::optional<uint32_t> sequence{};  // of a write or a message that has a number
    bool asks_delivery = false;          // complete: it has arrived. Else: its source may be reused
    uint64_t* counter = nullptr;         // of the put that this is the last of; null: none
  };
  // Called by poll().
  class Owner {
   public:
    virtual void on_write(const OfiRail& rail, uint64_t completion_data) = 0;  // by a peer, into memory of this rank
    virtual void on_message(const OfiRail& rail, const SignalMessage& message) = 0;
    virtual void on_end(const OfiRail& rail, int peer, const Purpose& purpose) = 0;
    virtual void on_loss(const OfiRail& rail, int peer, const std::string& why) = 0;  // of something under way to it
    virtual void on_failure(const Status& why) = 0;                                   // of the whole rail

   protected:
    ~Owner() = default;
  };
  // Where a region is, as its owner tells the others.
  struct Offer {
    uint64_t key;
    uint64_t base;  // added to offsets
  };
  struct Registration {
    FidPtr<fid_mr> memory;
    void* descriptor = nullptr;
    std::vector<Offer> offers{};  // by rank
  };
  // Bytes of this rank, and where they go to or come from.
  struct Transfer {
    int peer;
    void* memory;
    void* descriptor;
    uint64_t num_bytes;
    Offer there;
    uint64_t offset;
    bool inject;  // the bytes travel with the call
  };
  using Name = std::array<std::byte, OfiFabric::kMaxAddressBytes>;

  OfiRail(OfiFabric fabric, size_t index, size_t num_ranks)
      : fabric_(std::move(fabric)), index_(index), links_(num_ranks) {}
  ~OfiRail() { close(); }
  OfiRail(const OfiRail&) = delete;
  OfiRail& operator=(const OfiRail&) = delete;

  const OfiFabric& fabric() const { return fabric_; }
  size_t index() const { return index_; }  // among all rails of its owner

  Result<Name> name() const;
  // Peers by rank. Connections are made by the provider, with the first message.
  Status open(std::span<const Name> names);
  // Nothing comes or goes any more.
  void close() { fabric_.endpoint.reset(); }
  Result<Registration> register_memory(void* memory, size_t num_bytes, uint64_t key) const;
  Offer offer(const Registration& registration, void* memory) const {
    return {fi_mr_key(registration.memory.get()),
            fabric_.needs(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(memory) : 0};
  }

  int64_t write(const Transfer& transfer, uint64_t completion_data, const Purpose& purpose);
  int64_t read(const Transfer& transfer);
  int64_t send(int peer, const SignalMessage& message, const Purpose& purpose);
  // True when something had completed, here or from a peer.
  bool poll(Owner& owner);

  // "Again" is all that a provider says while it tries to connect, to a process that ended, for ever. Where nothing is
  // in flight to the peer it has nothing else to wait for.
  bool keeps_refusing(int peer);
  // Was something posted whose completion says nothing about the target?
  bool has_undelivered(int peer) const { return links_[size_t(peer)].has_undelivered; }
  // Of this rank, but to peers that are written off.
  size_t num_in_flight() const { return num_in_flight_; }
  uint64_t bytes_in_flight() const { return bytes_in_flight_.load(std::memory_order_relaxed); }
  // What is in flight to this peer counts no more.
  void write_off(int peer);

 private:
  // One operation under way; libfabric wants its context to stay in place.
  struct Operation {
    fi_context2 context;
    int peer;  // -1: a receive
    uint64_t num_bytes;
    Purpose purpose;
    SignalMessage message;
  };
  struct Link {
    fi_addr_t address = FI_ADDR_UNSPEC;
    uint32_t num_in_flight = 0;
    uint64_t bytes_in_flight = 0;
    bool has_undelivered = false;
    bool is_written_off = false;
    uint64_t refused_since_ns = 0;  // the provider has no way to it; 0: it has
  };

  Operation* take_operation(int peer, uint64_t num_bytes, const Purpose& purpose);
  int64_t posted(int64_t result, Operation* operation);
  void take(const fi_cq_data_entry& entry, Owner& owner);
  void take_failure(Owner& owner);
  Status receive_into(Operation* operation, SignalMessage* buffer);
  void end(Operation* operation);
  void add_bytes_in_flight(uint64_t num_bytes) {
    bytes_in_flight_.store(bytes_in_flight() + num_bytes, std::memory_order_relaxed);
  }

  static constexpr size_t kNumReceives = 256;
  static constexpr uint64_t kConnectLimitNs = 10'000'000'000;

  OfiFabric fabric_;
  const size_t index_;
  std::vector<Link> links_;  // by rank
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::vector<SignalMessage> receive_buffers_ = std::vector<SignalMessage>(kNumReceives);
  size_t num_in_flight_ = 0;
  std::atomic<uint64_t> bytes_in_flight_{0};  // written under the lock; read by anybody, as a hint
};

}  // namespace switchyard
