#include "net/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstring>

#include "base/guarded.hpp"
#include "base/log.hpp"
#include "net/progress.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {

uint64_t hash_payload(const void* bytes, uint64_t num_bytes) { return XXH3_64bits(bytes, num_bytes); }

uint64_t hash_entry(const LedgerEntry& entry, int source, int target) {
  return XXH3_64bits_withSeed(&entry, offsetof(LedgerEntry, entry_hash), uint64_t(source) << 32 | uint32_t(target));
}

ChecksumEndpoint::ChecksumEndpoint(std::unique_ptr<NetEndpoint> inner, Runtime& runtime, int rank, int num_ranks)
    : inner_(std::move(inner)),
      runtime_(runtime),
      rank_(rank),
      layout_{uint64_t(num_ranks)},
      sources_(size_t(num_ranks)),
      targets_(size_t(num_ranks)) {}

Result<std::unique_ptr<ChecksumEndpoint>> ChecksumEndpoint::create(std::unique_ptr<NetEndpoint> inner, Runtime& runtime,
                                                                   int rank, int num_ranks, Deadline deadline) {
  if (runtime.device().kind != DeviceKind::kHost) {
    return Status::invalid_usage("network checksums are for memory of the host; unset SWITCHYARD_NET_CHECKSUM");
  }
  std::unique_ptr<ChecksumEndpoint> endpoint(new ChecksumEndpoint(std::move(inner), runtime, rank, num_ranks));
  const LedgerLayout& layout = endpoint->layout_;
  SWITCHYARD_ASSIGN(void* words, runtime.allocate(layout.words_bytes()));
  endpoint->words_ = static_cast<char*>(words);
  SWITCHYARD_ASSIGN(void* rings, runtime.allocate(layout.rings_bytes()));
  endpoint->rings_ = static_cast<char*>(rings);
  NetEndpoint& beneath = *endpoint->inner_;
  SWITCHYARD_TRY(beneath.register_region(LedgerLayout::kWordsRegion, words, layout.words_bytes(), deadline));
  SWITCHYARD_TRY(beneath.register_region(LedgerLayout::kRingsRegion, rings, layout.rings_bytes(), deadline));
  return endpoint;
}

ChecksumEndpoint::~ChecksumEndpoint() {
  ProgressThreads::instance().remove(*this);
  inner_.reset();  // before the memory that peers put entries into
  for (void* memory : {words_, rings_}) {
    if (memory == nullptr) continue;
    if (const Status freed = runtime_.free(memory); !freed.ok()) log(LogLevel::kWarn, freed.message());
  }
}

// Known here before any peer can know that it may put there.
Status ChecksumEndpoint::register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    regions_.add(id, memory, num_bytes);
  }
  const Status registered = guarded([&] { return inner_->register_region(id, memory, num_bytes, deadline); });
  if (registered.ok()) return {};
  const std::lock_guard lock(mutex_);
  regions_.forget(id);
  return registered;
}

void ChecksumEndpoint::deregister_region(uint32_t id) {
  const std::lock_guard lock(mutex_);
  regions_.retire(id);
  inner_->deregister_region(id);
}

// ---- the source ----

NetPost ChecksumEndpoint::post(const NetPut& put, std::optional<uint64_t> value) {
  const std::lock_guard lock(mutex_);
  if (failed()) return NetPost::kFailed;
  if (!regions_.accepts(put, int(targets_.size()), value.has_value())) return NetPost::kFailed;
  if (put.num_bytes == 0 && put.signal_value == 0) return NetPost::kPosted;
  if (targets_[size_t(put.peer)].is_given_up.load(std::memory_order_relaxed)) return NetPost::kFailed;
  if (targets_[size_t(put.peer)].has_left.load(std::memory_order_relaxed)) {
    count_reusable(put.counter);
    return NetPost::kPosted;
  }
  if (const NetPost room = make_room(put.peer); room != NetPost::kPosted) return room;

  LedgerEntry entry{};
  if (put.num_bytes > 0) {
    NetPut payload = put;
    payload.signal_value = 0;
    const NetPost posted = value ? inner_->put_value(payload, *value) : inner_->put(payload);
    if (posted != NetPost::kPosted) return posted;
    const void* bytes =
        value ? static_cast<const void*>(&*value) : regions_.place(put.from_region, put.from_offset, put.num_bytes);
    entry.to_region = put.to_region;
    entry.to_offset = put.to_offset;
    entry.num_bytes = put.num_bytes;
    entry.payload_hash = hash_payload(bytes, put.num_bytes);
  } else {
    count_reusable(put.counter);  // a signal has no source to wait for
  }
  // From here on the entry goes, at once or later: the payload is underway.
  Target& target = targets_[size_t(put.peer)];
  entry.sequence = target.num_sent;
  entry.signal_region = put.signal_region;
  entry.signal_offset = put.signal_offset;
  entry.signal_value = put.signal_value;
  entry.entry_hash = hash_entry(entry, rank_, put.peer);
  *entry_at(layout_.outgoing(put.peer, target.num_sent++)) = entry;
  target.entry_waits = true;
  send_entry(put.peer);  // what was posted is never told as failed: that the peer is lost the next post says
  return NetPost::kPosted;
}

// Is there an entry for one more put to the peer, and has the last one gone? Of a peer that is lost no news will come.
NetPost ChecksumEndpoint::make_room(int peer) {
  Target& target = targets_[size_t(peer)];
  if (const NetPost sent = send_entry(peer); sent != NetPost::kPosted) return sent;
  const auto has_room = [&] {
    const uint64_t taken = word(layout_.taken(peer));
    if (taken > target.num_sent) {
      fail(Status::remote(text("rank ", rank_, ": rank ", peer, " has taken ", taken, " puts, but only ",
                               target.num_sent, " were sent; the network damages data")));
    }
    return target.num_sent - taken < LedgerLayout::kNumEntries;
  };
  if (has_room()) return NetPost::kPosted;
  inner_->progress();
  const bool room = has_room();
  if (failed() || !inner_->usable(peer)) return NetPost::kFailed;
  return room ? NetPost::kPosted : NetPost::kBusy;
}

// The last entry, if it has not gone yet.
NetPost ChecksumEndpoint::send_entry(int peer) {
  Target& target = targets_[size_t(peer)];
  if (!target.entry_waits) return NetPost::kPosted;
  const uint64_t sequence = target.num_sent - 1;
  const NetPut entry{.peer = peer,
                     .to_region = LedgerLayout::kRingsRegion,
                     .to_offset = layout_.incoming(rank_, sequence),
                     .from_region = LedgerLayout::kRingsRegion,
                     .from_offset = layout_.outgoing(peer, sequence),
                     .num_bytes = sizeof(LedgerEntry),
                     .signal_region = LedgerLayout::kWordsRegion,
                     .signal_offset = layout_.doorbell(rank_),
                     .signal_value = 1};
  const NetPost sent = inner_->put(entry);
  target.entry_waits = sent == NetPost::kBusy;
  return sent;
}

// True when none waits any more.
bool ChecksumEndpoint::send_waiting_entries() {
  bool all_sent = true;
  for (int peer = 0; peer < int(targets_.size()); ++peer) all_sent &= send_entry(peer) != NetPost::kBusy;
  return all_sent;
}

// Entries that wait are those of puts which went before.
NetPost ChecksumEndpoint::deliver(Delivery& delivery) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!lock_within(lock, kSecond / 4)) {
    delivery.is_open.clear();
    return NetPost::kBusy;
  }
  if (failed()) return NetPost::kFailed;
  send_waiting_entries();
  return deliver_beneath(*inner_, delivery, targets_.size(), [&](size_t peer) { return targets_[peer].entry_waits; });
}

NetPost ChecksumEndpoint::flush() {
  const std::lock_guard lock(mutex_);
  if (failed()) return NetPost::kFailed;
  const bool all_sent = send_waiting_entries();
  const NetPost flushed = inner_->flush();
  return flushed == NetPost::kPosted && !all_sent ? NetPost::kBusy : flushed;
}

// ---- the target ----

// Whoever holds the lock to wait for room, this ends.
void ChecksumEndpoint::catch_up() {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!lock_within(lock, kSecond / 4)) return;
  inner_->catch_up();
  if (!failed()) take_all();
}

bool ChecksumEndpoint::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  count_help();
  const bool moved = inner_->progress();
  if (failed()) return moved;
  send_waiting_entries();
  return take_all() || moved;
}

uint64_t ChecksumEndpoint::word(uint64_t offset) const {
  // acquire; pairs with the release with which the inner endpoint applies signals
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(words_ + offset)).load(std::memory_order_acquire);
}

// True when there was an entry.
bool ChecksumEndpoint::take_all() {
  bool any = false;
  for (int source = 0; source < int(sources_.size()); ++source) {
    const uint64_t due = word(layout_.doorbell(source)) - sources_[size_t(source)].num_taken;
    if (due > LedgerLayout::kNumEntries) {
      fail(Status::remote(text("rank ", rank_, ": rank ", source, " announces ", due,
                               " puts, more than can be underway; the network damages data")));
    }
    for (uint64_t i = 0; i < due; ++i) {
      if (failed() || !take(source)) return true;
      any = true;
    }
    tell_taken(source);  // what there was no room for before
  }
  return any;
}

// The next entry of this source: nothing in it is trusted before it was checked. False: it ended the endpoint.
bool ChecksumEndpoint::take(int source) {
  Source& from = sources_[size_t(source)];
  const LedgerEntry entry = *entry_at(layout_.incoming(source, from.num_taken));
  if (entry.entry_hash != hash_entry(entry, source, rank_) || entry.sequence != from.num_taken) {
    fail(Status::remote(text("rank ", rank_, ": what rank ", source, " says of its put number ", from.num_taken,
                             " is damaged, lost or repeated (checksum); the network damages data")));
    return false;
  }
  if (entry.num_bytes > 0 && !payload_intact(entry, source)) return false;
  uint64_t* signal = entry.signal_value == 0 ? nullptr : regions_.word(entry.signal_region, entry.signal_offset);
  if (entry.signal_value != 0 && signal == nullptr && !regions_.retired(entry.signal_region)) {
    fail(Status::remote(text("rank ", rank_, ": rank ", source, " signals offset ", entry.signal_offset, " of region ",
                             entry.signal_region, ", which does not exist")));
    return false;
  }
  ++from.num_taken;
  tell_taken(source);  // before the signal: afterwards the source may go
  // release; pairs with the acquire in Gin::read_signal() and Barrier::heard()
  if (signal != nullptr) std::atomic_ref<uint64_t>(*signal).fetch_add(entry.signal_value, std::memory_order_release);
  return true;
}

bool ChecksumEndpoint::payload_intact(const LedgerEntry& entry, int source) {
  if (regions_.retired(entry.to_region)) return true;  // nobody looks at it any more
  const char* bytes = regions_.place(entry.to_region, entry.to_offset, entry.num_bytes);
  if (bytes != nullptr && hash_payload(bytes, entry.num_bytes) == entry.payload_hash) return true;
  const std::string what = text("rank ", rank_, ": ", entry.num_bytes, " bytes that rank ", source, " put into region ",
                                entry.to_region, " at offset ", entry.to_offset);
  fail(Status::remote(bytes == nullptr ? what + " are outside of it"
                                       : what + " are damaged (checksum); the network corrupts data"));
  return false;
}

// Returns entries to their source, many at once. Without room for that it is tried again with the next progress.
void ChecksumEndpoint::tell_taken(int source) {
  Source& from = sources_[size_t(source)];
  const uint64_t news = from.num_taken - from.num_told;
  if (news < LedgerLayout::kCreditBatch) return;
  NetPut credit{};
  credit.peer = source;
  credit.signal_region = LedgerLayout::kWordsRegion;
  credit.signal_offset = layout_.taken(rank_);
  credit.signal_value = news;
  if (inner_->put(credit) == NetPost::kPosted) from.num_told = from.num_taken;
}

// ---- the end ----

// Without the lock: who is in the middle of a post may hold it for long, and is let go by this.
void ChecksumEndpoint::give_up(int peer, const std::string& why) {
  inner_->give_up(peer, why);
  Target& target = targets_[size_t(peer)];
  if (target.has_left.load(std::memory_order_relaxed)) return;  // and has died since
  {
    const std::lock_guard lock(error_mutex_);
    if (target.why_given_up.ok()) {
      target.why_given_up = Status::remote(text("rank ", rank_, ": the network lost rank ", peer, ": ", why));
    }
  }
  target.is_given_up.store(true, std::memory_order_release);  // pairs with the acquire in usable()
}

void ChecksumEndpoint::forget(int peer) {
  inner_->forget(peer);
  targets_[size_t(peer)].has_left.store(true, std::memory_order_relaxed);
}

void ChecksumEndpoint::abort() {
  stop(Status::invalid_usage("the network endpoint was aborted"));
  inner_->abort();
}

void ChecksumEndpoint::fail(const Status& why) {
  if (stop(why) && on_failure_) on_failure_(why.message());
}

// True: it had not failed yet. Any thread, with the endpoint's lock or without: abort() must not wait for it.
bool ChecksumEndpoint::stop(const Status& why) {
  const std::lock_guard lock(error_mutex_);
  if (!error_.ok()) return false;
  error_ = why;
  failed_.store(true, std::memory_order_release);
  return true;
}

Status ChecksumEndpoint::own_error() const {
  const std::lock_guard lock(error_mutex_);
  return error_;
}

Status ChecksumEndpoint::error() const {
  const Status own = own_error();
  return own.ok() ? inner_->error() : own;
}

Status ChecksumEndpoint::why_lost(int peer) const {
  if (const Status own = own_error(); !own.ok()) return own;
  if (const Status inner = inner_->why_lost(peer); !inner.ok()) return inner;
  const std::lock_guard lock(error_mutex_);
  return targets_[size_t(peer)].why_given_up;
}

}  // namespace switchyard
