// Proxy: the host's side of GIN's proxy backend. Takes what kernels write into the rings and gives it to the network.
//
// The reserved ring comes first; bulk data follows in pieces, as long as what is on its way does not exceed the
// credit. The credit is small next to what a transport would queue, so that a signal never stands behind much; while
// signals come it is half of that. Small puts to one peer that lie side by side in a ring are posted as a chain.
// Each ring is a matter of its own to the progress threads, so that several share them; and whoever waits for the
// network serves them all.
//
// THREADS    progress(): any; a ring is served by one thread at a time.
// OWNERSHIP  owns the rings; the endpoint outlives it.
// ERRORS     what goes to a peer that is lost is dropped: who waits for such a peer asks the endpoint. A ring with an
//            operation that can't be, or whose network is lost, fails: its producers are told with their next call,
//            and the log says why.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "net/net.hpp"
#include "net/progress.hpp"
#include "platform/runtime.hpp"

namespace switchyard {

class Proxy {
 public:
  static constexpr int kNumBulkRings = 4;
  // On loopback TCP this much reaches the bandwidth of more, and a signal behind it takes thrice its idle time; pieces of
  // 64 KiB lose a third of the bandwidth of 1 MiB puts (docs/figures.md).
  static constexpr uint64_t kCreditBytes = 512u << 10;
  static constexpr uint64_t kPieceBytes = 256u << 10;
  static constexpr uint64_t kSignalsNs = 2 * kMillisecond;  // signals come if one did so long ago

  static Result<std::unique_ptr<Proxy>> create(Runtime& runtime, NetEndpoint& endpoint, int num_ranks);
  ~Proxy();

  ProxyRing* rings() const { return rings_; }
  const NetEndpoint& endpoint() const { return endpoint_; }
  bool progress();
  // True when everything that was in the rings at the first call with this one is with the network, or never will be; else
  // moves what can be moved.
  bool drain(Delivery& delivery);

 private:
  // One ring as its worker sees it.
  struct Lane final : Progressed {
    Lane(Proxy& owner, ProxyRing& served, bool reserved) : proxy(owner), ring(&served), is_reserved(reserved) {}
    bool progress() override;

    Proxy& proxy;
    ProxyRing* const ring;
    const bool is_reserved;
    std::mutex mutex;  // of what follows
    uint64_t next = 0;        // ticket
    NetPut put{};             // under construction, or posted in part
    bool has_put = false;     // `put` waits for the network; it is the descriptor at next
    bool is_value = false;    // of put_value(); the value is in from_offset
    bool is_flushing = false;
    // Of this turn.
    uint64_t end = 0;  // ticket: the others' turn, then
    uint64_t piece_bytes = 0, credit_bytes = 0;  // once it has something to put
    uint64_t bytes_left = 0;  // so much bulk data, and then the reserved ring is looked at again
    bool has_failed = false;
  };

  Proxy(Runtime& runtime, NetEndpoint& endpoint, int num_ranks)
      : runtime_(runtime), endpoint_(endpoint), num_ranks_(num_ranks) {}
  bool serve(Lane& lane);
  NetPost step(Lane& lane);
  void mark_open(const Lane& lane, uint64_t end, std::vector<bool>& is_open) const;
  void begin_turn(Lane& lane);
  NetPost post(Lane& lane);
  NetPost post_chain(Lane& lane);
  void fail(Lane& lane);

  Runtime& runtime_;
  NetEndpoint& endpoint_;
  const int num_ranks_;
  ProxyRing* rings_ = nullptr;
  std::deque<Lane> lanes_;  // the reserved ring first
  std::atomic<uint64_t> last_signal_ns_{0};
};

}  // namespace switchyard
