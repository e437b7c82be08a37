// ChecksumEndpoint: no signal from bytes that the network damaged, over any other endpoint (docs/networks.md).
//
// Every put is followed by an entry in a ledger that its source keeps at the target: what was put where, the hash of
// the bytes, and the signal that goes with it. The target takes entries in their order, compares the hash with what has
// landed, and only then gives the signal. Entries lost, repeated or damaged are found by their number and their own
// hash. A source has at most kNumEntries entries underway; the target tells it how many it has taken.
//
// What is found: damage to bytes of a put until its signal is given. Not: damage done later; a peer that lies. Puts that
// overlap without a signal between them may look damaged.
//
// THREADS    as NetEndpoint.
// OWNERSHIP  owns the endpoint it decorates and the ledger. Reads the memory of registered regions, which must be the
//            host's.
// ERRORS     the first damage ends the endpoint: posts fail, no further signal is given, error() names source and
//            place.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "net/region_table.hpp"

namespace switchyard {

struct LedgerEntry {
  uint64_t sequence;  // from 0, by source and target
  uint64_t to_offset;
  uint64_t num_bytes;  // 0: a signal only
  uint64_t payload_hash;
  uint64_t signal_offset;
  uint64_t signal_value;  // 0: no signal
  uint32_t to_region;
  uint32_t signal_region;
  uint64_t entry_hash;  // of all before it, and of who sent it to whom
};
static_assert(sizeof(LedgerEntry) == 64);

uint64_t hash_payload(const void* bytes, uint64_t num_bytes);
uint64_t hash_entry(const LedgerEntry& entry, int source, int target);

// The ledger's two regions, equal on all ranks. The words are apart and come first, so that plugins which number a
// limited number of words number these.
struct LedgerLayout {
  static constexpr uint32_t kWordsRegion = 0xffff'fff0;  // ids that no window gets
  static constexpr uint32_t kRingsRegion = 0xffff'fff1;
  static constexpr uint64_t kNumEntries = 256;
  static constexpr uint64_t kCreditBatch = 64;

  uint64_t num_ranks;

  uint64_t words_bytes() const { return 2 * num_ranks * sizeof(uint64_t); }
  // How many entries this source has sent here; how many of mine this target has taken.
  uint64_t doorbell(int source) const { return uint64_t(source) * sizeof(uint64_t); }
  uint64_t taken(int target) const { return (num_ranks + uint64_t(target)) * sizeof(uint64_t); }

  uint64_t rings_bytes() const { return 2 * num_ranks * kNumEntries * sizeof(LedgerEntry); }
  // Where entries of a source arrive, and where those for a target lie until they are taken.
  uint64_t incoming(int source, uint64_t sequence) const { return entry(uint64_t(source), sequence); }
  uint64_t outgoing(int target, uint64_t sequence) const { return entry(num_ranks + uint64_t(target), sequence); }

 private:
  static uint64_t entry(uint64_t ring, uint64_t sequence) {
    return (ring * kNumEntries + sequence % kNumEntries) * sizeof(LedgerEntry);
  }
};

class ChecksumEndpoint final : public NetEndpoint {
 public:
  // COLLECTIVE.
  static Result<std::unique_ptr<ChecksumEndpoint>> create(std::unique_ptr<NetEndpoint> inner, Runtime& runtime,
                                                          int rank, int num_ranks, Deadline deadline);
  // Called once, when it fails, with the reason; not where it is aborted. BEFORE  it is used by several threads.
  void on_failure(std::function<void(const std::string& why)> handler) { on_failure_ = std::move(handler); }
  ~ChecksumEndpoint() override;

  Status register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) override;
  void deregister_region(uint32_t id) override;
  NetPost put(const NetPut& put) override { return post(put, std::nullopt); }
  NetPost put_value(const NetPut& put, uint64_t value) override { return post(put, value); }
  NetPost flush() override;
  NetPost deliver(Delivery& delivery) override;
  bool progress() override;
  void catch_up() override;
  uint64_t bytes_in_flight() const override { return inner_->bytes_in_flight(); }
  bool usable(int peer) const override {
    // acquire; pairs with the release in give_up()
    return !failed() && !targets_[size_t(peer)].is_given_up.load(std::memory_order_acquire) && inner_->usable(peer);
  }
  void give_up(int peer, const std::string& why) override;
  void forget(int peer) override;
  void abort() override;
  Status error() const override;
  Status why_lost(int peer) const override;
  NetEndpoint* inner() override { return inner_.get(); }

 private:
  struct Source {
    uint64_t num_taken = 0;
    uint64_t num_told = 0;  // of those, how many the source knows of
  };
  struct Target {
    uint64_t num_sent = 0;
    bool entry_waits = false;  // the last one: its payload went, but there was no room for it
    std::atomic<bool> has_left{false};     // what is posted to it goes nowhere
    std::atomic<bool> is_given_up{false};  // what is posted to it fails
    Status why_given_up{};                 // of error_mutex_
  };

  ChecksumEndpoint(std::unique_ptr<NetEndpoint> inner, Runtime& runtime, int rank, int num_ranks);

  NetPost post(const NetPut& put, std::optional<uint64_t> value);
  NetPost make_room(int peer);
  NetPost send_entry(int peer);
  bool send_waiting_entries();
  bool take_all();
  bool take(int source);
  bool payload_intact(const LedgerEntry& entry, int source);
  void tell_taken(int source);
  uint64_t word(uint64_t offset) const;
  LedgerEntry* entry_at(uint64_t offset) const { return reinterpret_cast<LedgerEntry*>(rings_ + offset); }
  void fail(const Status& why);
  bool stop(const Status& why);
  Status own_error() const;
  // acquire; pairs with the release in stop(): who sees the network's end sees the abort's word
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  std::unique_ptr<NetEndpoint> inner_;
  Runtime& runtime_;
  const int rank_;
  std::function<void(const std::string& why)> on_failure_;
  const LedgerLayout layout_;
  char* words_ = nullptr;
  char* rings_ = nullptr;

  std::mutex mutex_;  // of what follows
  RegionTable regions_;
  std::vector<Source> sources_;
  std::vector<Target> targets_;

  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  Status error_;
};

}  // namespace switchyard
