// FaultEndpoint: a network that gets things wrong, over any plugin's endpoint (docs/networks.md).
//
// Every post draws its fate from one stream of random numbers per rank, so that a seed gives the same faults to the
// same posts. What a plugin promises besides is kept: posts to one peer go out in their order but where the capability
// row leaves that open, and no signal overtakes an earlier put.
//
// THREADS    as NetEndpoint; cut(), restore() and the counts from any thread.
// OWNERSHIP  owns the endpoint it decorates. Reads the memory of registered regions, which must be the host's.
// ERRORS     a post to a peer that was cut off fails; error() says so until it is restored. A dropped post never
//            completes: flush() stays kBusy.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "net/fault_plan.hpp"
#include "net/region_table.hpp"

namespace switchyard {

enum class Fault { kDelay, kDrop, kDuplicate, kReorder, kTruncate, kFlip, kCut };
constexpr size_t kNumFaults = 7;
const char* fault_name(Fault fault);

class FaultEndpoint final : public NetEndpoint {
 public:
  // `ordered_puts`: of the plugin's capabilities; then nothing is reordered.
  FaultEndpoint(std::unique_ptr<NetEndpoint> inner, const FaultPlan& plan, int rank, int num_ranks, bool ordered_puts);
  ~FaultEndpoint() override;

  // From now on, until restore(); what was held back for the peer is lost.
  void cut(int peer, Cut how);
  // Later posts arrive again; what was lost stays so, and flush() no longer waits for it.
  void restore(int peer);
  // How many posts were really changed so, and how many a cut kept back.
  uint64_t count(Fault fault) const {
    return counts_[size_t(fault)].load(std::memory_order_relaxed);  // a statistic
  }
  uint64_t count_all() const;

  Status register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) override;
  void deregister_region(uint32_t id) override;
  NetPost put(const NetPut& put) override { return post({put, std::nullopt}); }
  NetPost put_value(const NetPut& put, uint64_t value) override { return post({put, value}); }
  NetPost flush() override;
  NetPost deliver(Delivery& delivery) override;
  bool progress() override;
  void catch_up() override;
  uint64_t bytes_in_flight() const override { return inner_->bytes_in_flight(); }
  bool usable(int peer) const override;
  void give_up(int peer, const std::string& why) override;
  void forget(int peer) override;
  void abort() override;
  Status error() const override;
  Status why_lost(int peer) const override;
  NetEndpoint* inner() override { return inner_.get(); }

 private:
  struct Post {
    NetPut put;
    std::optional<uint64_t> value;  // none: from a region
    uint64_t due_ns = 0;            // not to be sent before
    bool swaps = false;             // waits for the next one, to go after it
  };
  struct Peer {
    std::deque<Post> queue;  // taken and not sent yet, in order
    Cut cut = Cut::kNone;
    uint64_t num_lost = 0;  // taken and never to be sent
    bool is_gone = false;   // left, or lost below: nobody waits for what is underway to it
  };
  // Drawn for every post, all of it, so that the next one's fate depends on none of the circumstances.
  struct Fate {
    bool delay, drop, truncate, flip, duplicate, reorder;
    uint64_t delay_ns, where;
  };

  void cut_now(Peer& peer, Cut how);
  void restore_now(Peer& peer);
  void keep_schedule();
  NetPost post(const Post& wanted);
  Fate draw();
  void add_damaged(std::vector<Post>& pieces, const Post& wanted, const Fate& fate);
  void add_flipped(std::vector<Post>& pieces, const Post& wanted, uint64_t bit);
  void enqueue(Peer& peer, std::vector<Post> pieces, bool swaps);
  bool send(Peer& peer);
  bool send_all();
  NetPost give(const Post& post);
  void send_now(Peer& peer);
  void part_with(Peer& peer);
  void lose_queues();
  // Something for it is held back, or was dropped.
  static bool owes(const Peer& peer) { return peer.num_lost > 0 || !peer.queue.empty(); }
  Status why_cut(size_t peer) const;
  Status why_failed() const;
  void counted(Fault fault) { counts_[size_t(fault)].fetch_add(1, std::memory_order_relaxed); }

  static constexpr size_t kMaxQueued = 64;  // to a peer

  const std::unique_ptr<NetEndpoint> inner_;
  const FaultPlan plan_;
  const int rank_;
  const bool ordered_puts_;
  const uint64_t began_ns_ = now_ns();
  std::array<std::atomic<uint64_t>, kNumFaults> counts_{};
  std::atomic<bool> aborted_{false};

  mutable std::mutex mutex_;  // of what follows
  std::mt19937_64 random_;
  std::vector<Peer> peers_;
  struct Cutting {
    FaultPlan::CutPeer plan;
    bool has_begun = false, is_over = false;
  };
  std::vector<Cutting> schedule_;
  RegionTable regions_;
  bool failed_ = false;  // the plugin's endpoint refused what this one had taken
};

// The one among an endpoint and those it decorates; null if there is none.
FaultEndpoint* find_faults(NetEndpoint* endpoint);

}  // namespace switchyard
