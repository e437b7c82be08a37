#include "net/fault.hpp"

#include <algorithm>
#include <cstring>

#include "net/progress.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

NetPut without_signal(NetPut put) {
  put.signal_value = 0;
  return put;
}

NetPut signal_of(NetPut put) {
  put.to_region = put.from_region = 0;
  put.to_offset = put.from_offset = put.num_bytes = 0;
  put.counter = nullptr;
  return put;
}

}  // namespace

const char* fault_name(Fault fault) {
  constexpr const char* kNames[kNumFaults] = {"delay", "drop", "duplicate", "reorder", "truncate", "flip", "cut"};
  return kNames[size_t(fault)];
}

FaultEndpoint* find_faults(NetEndpoint* endpoint) {
  for (; endpoint != nullptr; endpoint = endpoint->inner()) {
    if (auto* found = dynamic_cast<FaultEndpoint*>(endpoint)) return found;
  }
  return nullptr;
}

FaultEndpoint::FaultEndpoint(std::unique_ptr<NetEndpoint> inner, const FaultPlan& plan, int rank, int num_ranks,
                             bool ordered_puts)
    : inner_(std::move(inner)), plan_(plan), rank_(rank), ordered_puts_(ordered_puts), peers_(size_t(num_ranks)) {
  std::seed_seq seeds{uint32_t(plan.seed), uint32_t(plan.seed >> 32), uint32_t(rank)};
  random_.seed(seeds);
  for (const FaultPlan::CutPeer& cut : plan.cut) {
    if (cut.peer >= 0 && cut.peer < num_ranks) schedule_.push_back({cut});
  }
  keep_schedule();
}

FaultEndpoint::~FaultEndpoint() { ProgressThreads::instance().remove(*this); }

void FaultEndpoint::cut(int peer, Cut how) {
  const std::lock_guard lock(mutex_);
  if (peer >= 0 && size_t(peer) < peers_.size()) cut_now(peers_[size_t(peer)], how);
}

void FaultEndpoint::restore(int peer) {
  const std::lock_guard lock(mutex_);
  if (peer >= 0 && size_t(peer) < peers_.size()) restore_now(peers_[size_t(peer)]);
}

void FaultEndpoint::cut_now(Peer& peer, Cut how) {
  peer.cut = how;
  peer.num_lost += peer.queue.size();
  peer.queue.clear();
}

void FaultEndpoint::restore_now(Peer& peer) {
  peer.cut = Cut::kNone;
  peer.num_lost = 0;
}

// Cuts and restores what is due by the plan.
void FaultEndpoint::keep_schedule() {
  if (schedule_.empty()) return;
  const uint64_t elapsed_ns = now_ns() - began_ns_;
  for (Cutting& cutting : schedule_) {
    Peer& peer = peers_[size_t(cutting.plan.peer)];
    if (!cutting.has_begun && elapsed_ns >= cutting.plan.from_ns) {
      cutting.has_begun = true;
      cut_now(peer, cutting.plan.how);
    }
    if (!cutting.is_over && elapsed_ns >= cutting.plan.until_ns) {
      cutting.is_over = true;
      restore_now(peer);
    }
  }
}

uint64_t FaultEndpoint::count_all() const {
  uint64_t sum = 0;
  for (size_t fault = 0; fault < kNumFaults; ++fault) sum += count(Fault(fault));
  return sum;
}

Status FaultEndpoint::register_region(uint32_t id, void* memory, size_t num_bytes, Deadline deadline) {
  SWITCHYARD_TRY(inner_->register_region(id, memory, num_bytes, deadline));
  const std::lock_guard lock(mutex_);
  regions_.add(id, memory, num_bytes);
  return {};
}

// What was held back goes now, as the region is still there; what finds no room is for nobody any more.
void FaultEndpoint::deregister_region(uint32_t id) {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) {
    send_now(peer);
    std::erase_if(peer.queue, [&](const Post& post) {
      const NetPut& put = post.put;
      return put.to_region == id || put.from_region == id || (put.signal_value != 0 && put.signal_region == id);
    });
  }
  regions_.forget(id);
  inner_->deregister_region(id);
}

// ---- posting ----

FaultEndpoint::Fate FaultEndpoint::draw() {
  // The standard says what the engine gives, but not what its distributions make of it.
  const auto hit = [&](double probability) { return double(random_() >> 11) * 0x1p-53 < probability; };
  Fate fate;
  fate.delay = hit(plan_.delay);
  fate.drop = hit(plan_.drop);
  fate.truncate = hit(plan_.truncate);
  fate.flip = hit(plan_.flip);
  fate.duplicate = hit(plan_.duplicate);
  fate.reorder = hit(plan_.reorder);
  fate.delay_ns = random_() % (plan_.max_delay_ns + 1);
  fate.where = random_();
  return fate;
}

NetPost FaultEndpoint::post(const Post& wanted) {
  const std::lock_guard lock(mutex_);
  if (failed_ || aborted_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  if (!regions_.accepts(wanted.put, int(peers_.size()), wanted.value.has_value())) return NetPost::kFailed;
  keep_schedule();
  Peer& peer = peers_[size_t(wanted.put.peer)];
  if (peer.is_gone) return give(wanted);
  if (peer.cut != Cut::kNone) {
    counted(Fault::kCut);
    if (peer.cut == Cut::kRefuse) return NetPost::kFailed;
    ++peer.num_lost;
    return NetPost::kPosted;
  }
  send(peer);
  if (peer.is_gone) return give(wanted);
  if (peer.queue.size() >= kMaxQueued) return NetPost::kBusy;

  const Fate fate = draw();
  if (fate.drop) {
    counted(Fault::kDrop);
    ++peer.num_lost;
    return NetPost::kPosted;
  }
  std::vector<Post> pieces;
  add_damaged(pieces, wanted, fate);
  if (pieces.empty()) return NetPost::kPosted;  // all of it was cut away
  for (Post& piece : pieces) piece.put.counter = nullptr;
  pieces.back().put.counter = wanted.put.counter;  // once, whatever it was made into
  if (fate.delay) {
    counted(Fault::kDelay);
    pieces.front().due_ns = now_ns() + fate.delay_ns;  // those behind it wait for it
  }
  enqueue(peer, std::move(pieces), fate.reorder && !fate.delay);
  send(peer);
  return NetPost::kPosted;  // whatever became of it: that the peer is lost the next post says
}

// What goes out in place of the post: at most one kind of damage.
void FaultEndpoint::add_damaged(std::vector<Post>& pieces, const Post& wanted, const Fate& fate) {
  const uint64_t num_bytes = wanted.put.num_bytes;
  if (fate.truncate && num_bytes > 0) {
    counted(Fault::kTruncate);
    Post shorter = wanted;
    shorter.put.num_bytes = fate.where % num_bytes;
    if (shorter.put.num_bytes == 0) shorter = {signal_of(wanted.put), std::nullopt};
    if (shorter.put.num_bytes > 0 || shorter.put.signal_value != 0) pieces.push_back(shorter);
  } else if (fate.flip && num_bytes > 0) {
    counted(Fault::kFlip);
    add_flipped(pieces, wanted, fate.where % (num_bytes * 8));
  } else {
    pieces.push_back(wanted);
    if (!fate.duplicate) return;
    counted(Fault::kDuplicate);
    pieces.push_back(wanted);
  }
}

// The bytes before, the wrong one by value, the bytes after; the signal with the last.
void FaultEndpoint::add_flipped(std::vector<Post>& pieces, const Post& wanted, uint64_t bit) {
  if (wanted.value) {
    pieces.push_back({wanted.put, *wanted.value ^ uint64_t{1} << bit});
    return;
  }
  const auto part = [&](uint64_t begin, uint64_t end) {
    NetPut put = without_signal(wanted.put);
    put.to_offset += begin;
    put.from_offset += begin;
    put.num_bytes = end - begin;
    return put;
  };
  const uint64_t wrong = bit / 8;
  const auto* source =
      reinterpret_cast<const uint8_t*>(regions_.place(wanted.put.from_region, wanted.put.from_offset + wrong, 1));
  if (wrong > 0) pieces.push_back({part(0, wrong), std::nullopt});
  pieces.push_back({part(wrong, wrong + 1), uint64_t(*source ^ 1u << bit % 8)});
  if (wrong + 1 < wanted.put.num_bytes) pieces.push_back({part(wrong + 1, wanted.put.num_bytes), std::nullopt});
  pieces.back().put.signal_value = wanted.put.signal_value;
}

// Behind what is queued; but a post that waits for one to change places with goes behind this one's data, and before
// its signal.
void FaultEndpoint::enqueue(Peer& peer, std::vector<Post> pieces, bool swaps) {
  std::optional<Post> earlier;
  if (!peer.queue.empty() && peer.queue.back().swaps) {
    Post& waiting = peer.queue.back();
    waiting.swaps = false;
    waiting.due_ns = 0;
    if (pieces.front().put.num_bytes > 0) {
      earlier = waiting;
      peer.queue.pop_back();
    }
  }
  if (earlier) {
    counted(Fault::kReorder);
    std::vector<Post> signals;
    for (Post& piece : pieces) {
      if (piece.put.signal_value != 0) signals.push_back({signal_of(piece.put), std::nullopt});
      piece.put = without_signal(piece.put);
    }
    pieces.push_back(*earlier);
    pieces.insert(pieces.end(), signals.begin(), signals.end());
  } else if (swaps && !ordered_puts_ && pieces.size() == 1 && pieces.front().put.signal_value == 0) {
    pieces.front().swaps = true;
    pieces.front().due_ns = now_ns() + plan_.max_delay_ns;
  }
  peer.queue.insert(peer.queue.end(), pieces.begin(), pieces.end());
}

NetPost FaultEndpoint::give(const Post& post) {
  return post.value ? inner_->put_value(post.put, *post.value) : inner_->put(post.put);
}

// Sends what is due, in order; true when something went.
bool FaultEndpoint::send(Peer& peer) {
  bool moved = false;
  while (!failed_ && !peer.queue.empty()) {
    const Post& first = peer.queue.front();
    if (first.due_ns != 0 && first.due_ns > now_ns()) break;
    const int rank = first.put.peer;
    const NetPost sent = give(first);
    if (sent == NetPost::kBusy) break;
    moved = true;
    if (sent == NetPost::kPosted) peer.queue.pop_front();
    else if (!inner_->usable(rank) && inner_->usable(rank_)) part_with(peer);
    else lose_queues();
  }
  return moved;
}

void FaultEndpoint::send_now(Peer& peer) {
  for (Post& post : peer.queue) post.due_ns = 0;
  send(peer);
}

// It alone is lost, or has left. The sources of what was held back for it may be reused.
void FaultEndpoint::part_with(Peer& peer) {
  peer.is_gone = true;
  for (const Post& post : peer.queue) count_reusable(post.put.counter);
  peer.queue.clear();
  peer.num_lost = 0;
}

void FaultEndpoint::lose_queues() {
  failed_ = true;
  for (Peer& peer : peers_) {
    for (const Post& post : peer.queue) count_reusable(post.put.counter);
    peer.queue.clear();
  }
}

bool FaultEndpoint::send_all() {
  bool moved = false;
  for (Peer& peer : peers_) moved |= send(peer);
  return moved;
}

NetPost FaultEndpoint::flush() {
  const std::lock_guard lock(mutex_);
  send_all();
  const NetPost flushed = inner_->flush();
  if (failed_ || flushed == NetPost::kFailed) return NetPost::kFailed;
  return std::any_of(peers_.begin(), peers_.end(), owes) ? NetPost::kBusy : flushed;
}

// What is held back was taken before, and goes first; what others post meanwhile has to wait for it, too.
NetPost FaultEndpoint::deliver(Delivery& delivery) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!lock_within(lock, kSecond / 4)) {
    delivery.is_open.clear();
    return NetPost::kBusy;
  }
  send_all();
  if (failed_ || aborted_.load(std::memory_order_relaxed)) return NetPost::kFailed;
  return deliver_beneath(*inner_, delivery, peers_.size(), [&](size_t peer) {
    return peers_[peer].cut != Cut::kRefuse && owes(peers_[peer]);
  });
}

void FaultEndpoint::catch_up() {
  progress();
  inner_->catch_up();
}

bool FaultEndpoint::usable(int peer) const {
  const std::lock_guard lock(mutex_);
  return !failed_ && peers_[size_t(peer)].cut != Cut::kRefuse && inner_->usable(peer);
}

bool FaultEndpoint::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  count_help();
  keep_schedule();
  const bool sent = send_all();
  return inner_->progress() || sent;
}

// Below first: who is in the middle of a post to it is let go there.
void FaultEndpoint::give_up(int peer, const std::string& why) {
  inner_->give_up(peer, why);
  const std::lock_guard lock(mutex_);
  part_with(peers_[size_t(peer)]);
}

void FaultEndpoint::forget(int peer) {
  inner_->forget(peer);
  const std::lock_guard lock(mutex_);
  send_now(peers_[size_t(peer)]);  // whoever waits for the sources is told
  part_with(peers_[size_t(peer)]);
}

void FaultEndpoint::abort() {
  aborted_.store(true, std::memory_order_relaxed);  // carries nothing; the reason is the inner endpoint's
  inner_->abort();
}

Status FaultEndpoint::why_cut(size_t peer) const {
  if (peers_[peer].cut != Cut::kRefuse) return {};
  return Status::remote(text("rank ", rank_, ": the network to rank ", peer, " was cut (injected fault)"));
}

Status FaultEndpoint::why_failed() const {
  if (!failed_) return {};
  return Status::remote(text("rank ", rank_, ": the network refused a put that was held back (injected fault)"));
}

Status FaultEndpoint::error() const {
  if (const Status inner = inner_->error(); !inner.ok()) return inner;
  const std::lock_guard lock(mutex_);
  for (size_t peer = 0; peer < peers_.size(); ++peer) SWITCHYARD_TRY(why_cut(peer));
  return why_failed();
}

Status FaultEndpoint::why_lost(int peer) const {
  if (const Status inner = inner_->why_lost(peer); !inner.ok()) return inner;
  const std::lock_guard lock(mutex_);
  SWITCHYARD_TRY(why_cut(size_t(peer)));
  return why_failed();
}

}  // namespace switchyard
