#include "net/proxy.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/failpoint.hpp"
#include "base/guarded.hpp"
#include "base/log.hpp"
#include "platform/host/wait.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard {
namespace {

const HostPlatform kHost;
constexpr size_t kBatch = 32;  // descriptors of one ring before the others have their turn

}  // namespace

Result<std::unique_ptr<Proxy>> Proxy::create(Runtime& runtime, NetEndpoint& endpoint, int num_ranks) {
  std::unique_ptr<Proxy> proxy(new Proxy(runtime, endpoint, num_ranks));
  constexpr size_t kNumBytes = sizeof(ProxyRing) * (kNumBulkRings + 1);
  SWITCHYARD_ASSIGN(void* memory, runtime.allocate_shared(kNumBytes));
  proxy->rings_ = static_cast<ProxyRing*>(memory);
  std::memset(memory, 0, kNumBytes);
  for (int i = kNumBulkRings; i >= 0; --i) {
    Lane& lane = proxy->lanes_.emplace_back(*proxy, proxy->rings_[i], i == kNumBulkRings);
    SWITCHYARD_TRY(ProgressThreads::instance().add(lane));
  }
  return proxy;
}

Proxy::~Proxy() {
  // What kernels posted last, a signal perhaps that a peer waits for, still goes out.
  Delivery all;
  if (rings_ != nullptr) (void)guarded([&] { wait_until([&] { return drain(all); }, Deadline::after_ns(kSecond)); });
  for (Lane& lane : lanes_) ProgressThreads::instance().remove(lane);
  if (rings_ == nullptr) return;
  if (const Status freed = runtime_.free_shared(rings_); !freed.ok()) log(LogLevel::kWarn, freed.message());
}

bool Proxy::progress() {
  bool moved = false;
  for (Lane& lane : lanes_) moved |= lane.progress();
  return endpoint_.progress() || moved;
}

bool Proxy::Lane::progress() {
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  count_help();
  return proxy.serve(*this);
}

bool Proxy::drain(Delivery& delivery) {
  if (delivery.num_in_rings.empty()) {
    for (const Lane& lane : lanes_) delivery.num_in_rings.push_back(kHost.load_relaxed(&lane.ring->next_ticket));
  }
  progress();
  bool is_drained = true;
  delivery.is_open.assign(size_t(num_ranks_), false);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    std::unique_lock lock(lane.mutex, std::defer_lock);
    if (!lock_within(lock, kSecond / 4)) {  // who waits for a delivery has a limit
      delivery.is_open.clear();
      return false;
    }
    const bool has_failed = lane.has_failed || kHost.load_relaxed(&lane.ring->failed) != 0;
    if (has_failed || lane.next >= delivery.num_in_rings[i]) continue;
    is_drained = false;
    mark_open(lane, delivery.num_in_rings[i], delivery.is_open);
  }
  return is_drained;
}

// The peers that something in the ring is for, up to this ticket.
void Proxy::mark_open(const Lane& lane, uint64_t end, std::vector<bool>& is_open) const {
  ProxyDescriptor descriptor;
  for (uint64_t ticket = lane.next; ticket < end && lane.ring->take(kHost, ticket, descriptor); ++ticket) {
    if (descriptor.op() == ProxyOp::kFlush || descriptor.op() == ProxyOp::kExtension) continue;
    NetPut put{};
    read_descriptor(descriptor, put);
    if (put.peer < num_ranks_) is_open[size_t(put.peer)] = true;
  }
}

// Under the lane's lock.
bool Proxy::serve(Lane& lane) {
  if (lane.has_failed) return false;
  const uint64_t first = lane.next;
  NetPost result = NetPost::kPosted;
  lane.end = first + kBatch;
  lane.piece_bytes = 0;
  while (lane.next < lane.end && result == NetPost::kPosted) result = step(lane);
  // Once a batch: producers look at this word only when they run out of room.
  if (lane.next != first) lane.ring->done(kHost, lane.next);
  if (lane.next != first && lane.is_reserved) last_signal_ns_.store(now_ns(), std::memory_order_relaxed);
  if (result == NetPost::kFailed) fail(lane);
  return lane.next != first;
}

// One descriptor, or what is left of it. kBusy: there is none, or the network has no room.
NetPost Proxy::step(Lane& lane) {
  if (lane.is_flushing) {
    const NetPost result = endpoint_.flush();
    if (result != NetPost::kPosted) return result;
    lane.is_flushing = false;
    lane.ring->flushed(kHost, ++lane.next);
    return NetPost::kPosted;
  }
  if (!lane.has_put) {
    ProxyDescriptor descriptor;
    if (!lane.ring->take(kHost, lane.next, descriptor)) return NetPost::kBusy;
    SWITCHYARD_FAILPOINT("proxy.descriptor_taken");
    if (descriptor.op() == ProxyOp::kFlush) {
      lane.is_flushing = true;
      return step(lane);
    }
    read_descriptor(descriptor, lane.put);
    if (descriptor.op() == ProxyOp::kExtension) {
      ++lane.next;
      return NetPost::kPosted;
    }
    lane.is_value = descriptor.op() == ProxyOp::kPutValue;
    lane.has_put = true;
  }
  const uint64_t ticket = lane.next;
  const NetPost result = post(lane);
  if (lane.next == ticket) {
    const bool dropped =
        result == NetPost::kFailed && lane.put.peer < num_ranks_ && !endpoint_.usable(lane.put.peer);
    if (!dropped) return result;
    count_reusable(lane.put.counter);
    ++lane.next;
  }
  // Of a chain that was not posted whole the rest is read once more.
  lane.put = {};
  lane.has_put = false;
  return NetPost::kPosted;
}

void Proxy::begin_turn(Lane& lane) {
  const bool signals_come = now_ns() - last_signal_ns_.load(std::memory_order_relaxed) < kSignalsNs;  // a hint
  lane.piece_bytes = signals_come ? kPieceBytes / 2 : kPieceBytes;
  lane.credit_bytes = signals_come ? kCreditBytes / 2 : kCreditBytes;
  lane.bytes_left = lane.piece_bytes;
}

// Moves `next` on past what was posted.
NetPost Proxy::post(Lane& lane) {
  NetPut& put = lane.put;
  if (put.peer >= num_ranks_) return NetPost::kFailed;
  if (lane.is_value) {
    const NetPost result = endpoint_.put_value(put, put.from_offset);
    lane.next += result == NetPost::kPosted;
    return result;
  }
  if (lane.piece_bytes == 0) begin_turn(lane);
  const auto has_credit = [&] { return lane.bytes_left > 0 && endpoint_.bytes_in_flight() < lane.credit_bytes; };
  while (put.num_bytes > lane.piece_bytes) {
    if (!has_credit()) return NetPost::kBusy;
    NetPut piece = put;
    piece.num_bytes = lane.piece_bytes;
    piece.signal_value = 0;
    piece.counter = nullptr;
    const NetPost result = endpoint_.put(piece);
    if (result != NetPost::kPosted) return result;
    put.to_offset += lane.piece_bytes;
    put.from_offset += lane.piece_bytes;
    put.num_bytes -= lane.piece_bytes;
    lane.bytes_left = 0;
  }
  if (!lane.is_reserved && put.num_bytes > 0 && !has_credit()) return NetPost::kBusy;
  return post_chain(lane);
}

// The put at hand, and those behind it that can go along: to the same peer, each within one descriptor and one piece,
// as far as turn and credit go.
NetPost Proxy::post_chain(Lane& lane) {
  std::array<NetPut, kBatch> chain;
  chain[0] = lane.put;
  size_t size = 1;
  uint64_t num_bytes = lane.put.num_bytes;
  const uint64_t in_flight = endpoint_.bytes_in_flight();
  const auto has_credit = [&] {
    return num_bytes == 0 || (num_bytes <= lane.bytes_left && in_flight + num_bytes <= lane.credit_bytes);
  };
  ProxyDescriptor descriptor;
  while (lane.next + size < lane.end && lane.ring->take(kHost, lane.next + size, descriptor) &&
         descriptor.op() == ProxyOp::kPut) {
    NetPut& follower = chain[size] = {};
    read_descriptor(descriptor, follower);
    num_bytes += follower.num_bytes;
    if (follower.peer != lane.put.peer || !has_credit()) break;
    ++size;
  }
  NetPost result;
  const size_t num_posted = endpoint_.put_chain({chain.data(), size}, result);
  SWITCHYARD_FAILPOINT("proxy.chain_posted");
  for (size_t i = 0; i < num_posted; ++i) lane.bytes_left -= std::min(lane.bytes_left, chain[i].num_bytes);
  lane.next += num_posted;
  return result;
}

void Proxy::fail(Lane& lane) {
  lane.has_failed = true;
  kHost.store_relaxed(&lane.ring->failed, uint32_t{1});
  const int peer = lane.put.peer;
  const Status why = peer < num_ranks_ ? endpoint_.why_lost(peer) : Status::invalid_argument("there is no such rank");
  log(LogLevel::kWarn, "the proxy could not post to rank ", peer, ": ",
      why.ok() ? "the operation names memory that is not registered" : why.message());
}

}  // namespace switchyard
