#include "platform/host/stream.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/env.hpp"
#include "base/log.hpp"
#include "platform/host/futex.hpp"
#include "platform/host/wait.hpp"

namespace switchyard {

// Both sleeps below (the worker for work, synchronize() for completion) use one handshake. The sleeper writes its word
// with a read-modify-write and then looks at the sequence once more; the other side advances the sequence and then
// reads the word with a read-modify-write. Read-modify-writes of one word are totally ordered, so whichever comes
// second sees what the other wrote before its own: no wake-up is lost, and the futex call is made only when somebody
// sleeps. (Plain loads would need a full fence on both sides: store, then load of another word.)
namespace {

// A sequence number as a nonzero word: its low 31 bits, compared in rolling arithmetic.
uint32_t wake_ticket(uint64_t sequence) { return uint32_t(sequence) << 1 | 1u; }
bool ticket_reached(uint32_t ticket, uint64_t completed) { return int32_t(wake_ticket(completed) - ticket) >= 0; }

// Naps of Backoff are 20-200 us; the default slack would add 50 us to each.
constexpr unsigned long kTimerSlackNs = 1'000;
constexpr uint64_t kMaxIdleNapNs = 1'000'000;

}  // namespace

// Streams that exist. A group remembers the streams it used, and callers may destroy those before the group.
class Stream::Living {
 public:
  static Living& instance() {
    static Living& living = *new Living;  // never destroyed: streams may go while the process exits
    return living;
  }
  void add(const void* stream) {
    const std::lock_guard lock(mutex_);
    streams_.insert(stream);
  }
  void remove(const void* stream) {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  bool has(const void* stream) {
    const std::lock_guard lock(mutex_);
    return streams_.contains(stream);
  }

 private:
  std::mutex mutex_;
  std::set<const void*> streams_;
};

bool Stream::exists(const void* stream) { return Living::instance().has(stream); }

Result<std::unique_ptr<Stream>> Stream::create(StreamOptions options) {
  const std::string name = options.name;
  std::unique_ptr<Stream> stream(new Stream(std::move(options)));
  Living::instance().add(stream.get());
  try {
    stream->worker_ = std::thread([self = stream.get()] { self->work(); });
    return stream;
  } catch (const std::system_error& error) {  // the only way std::thread has to refuse
    return Status(Code::kSystemError,
                  text("stream ", name, ": cannot start its worker thread (", error.what(), "); see ulimit -u"));
  }
}

Stream::Stream(StreamOptions options)
    : options_(std::move(options)),
      ring_(std::make_unique_for_overwrite<Slot[]>(kCapacity)) {}

Stream::~Stream() {
  Living::instance().remove(this);
  if (!worker_.joinable()) return;
  stopping_.store(true, std::memory_order_release);  // pairs with acquire in work()
  // acq_rel; pairs with the exchange in sleep_until_posted()
  if (worker_sleeps_.exchange(0, std::memory_order_acq_rel) != 0) futex_wake_all(worker_sleeps_);
  worker_.join();
}

[[gnu::hot]] Status Stream::enqueue(const TaskType& type, void* callable) {
  if (try_enqueue(type, callable)) return {};
  const uint64_t limit_ms = env().timeout_ms;
  const WaitResult result =
      wait_until([&] { return try_enqueue(type, callable); }, Deadline::after_ns(limit_ms * kMillisecond));
  if (result == WaitResult::kReady) return {};
  return Status::invalid_usage(text("stream ", name(), ": its ", kCapacity, " slots stayed full for ", limit_ms,
                                    " ms; a task in it does not end, or a task posts to its own full stream"));
}

[[gnu::hot]] bool Stream::try_enqueue(const TaskType& type, void* callable) {
  {
    const std::lock_guard lock(post_mutex_);
    const uint64_t sequence = posted_.load(std::memory_order_relaxed);  // written under this mutex only
    if (sequence - completed() == kCapacity) return false;
    Slot& slot = ring_[sequence % kCapacity];
    slot.type = &type;
    type.move_to(slot.payload, callable);
    // release; pairs with acquire in posted(), called by poll_for_task(): the slot is filled
    posted_.store(sequence + 1, std::memory_order_release);
  }
  // acq_rel; pairs with the exchange in sleep_until_posted()
  if (worker_sleeps_.exchange(0, std::memory_order_acq_rel) != 0) futex_wake_all(worker_sleeps_);
  return true;
}

void Stream::work() {
  pthread_setname_np(pthread_self(), name().substr(0, 15).c_str());
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  if (env().pin && !options_.share.none()) {
    if (const Status pinned = pin_current_thread(options_.share); !pinned.ok()) {
      log(LogLevel::kWarn, "stream ", name(), " runs unpinned: ", pinned.to_string());
    }
  }
  for (;;) {
    if (poll_for_task()) {
      run_next();
    } else if (stopping_.load(std::memory_order_acquire)) {  // pairs with release in ~Stream(): all posts are visible
      if (idle()) return;                                    // and since nobody posts any more, the ring stays empty
    } else {
      sleep_until_posted(Deadline::never());  // ends with the next post or the stream's end
    }
  }
}

// True when there is a task; false after SWITCHYARD_POLL_US without one, or when the stream is to end. As long as there are
// steps to take while idle, it naps instead: a post ends a nap.
bool Stream::poll_for_task() {
  const uint64_t next = completed_.load(std::memory_order_relaxed);  // written by this thread only
  const uint64_t limit_ns = env().poll_us * 1'000;
  Backoff backoff;
  // acquire inside posted(); pairs with release in try_enqueue()
  while (posted() == next) {
    if (stopping_.load(std::memory_order_relaxed)) return false;
    if (step_while_idle()) {
      backoff.reset();
      continue;
    }
    if (backoff.waited_ns() >= limit_ns && backoff.now_ns() != 0) {
      if (idle_steps_.empty()) return false;
      sleep_until_posted(Deadline::after_ns(std::clamp(backoff.waited_ns() / 8, Backoff::kMinNapNs, kMaxIdleNapNs)));
    }
    backoff.spin();
  }
  return true;
}

// One step of each; true when one of them moved.
bool Stream::step_while_idle() {
  bool moved = false;
  std::erase_if(idle_steps_, [&](const std::function<IdleResult()>& step) {
    const IdleResult result = step();
    moved |= result == IdleResult::kMoved;
    return result == IdleResult::kOver;
  });
  return moved;
}

void Stream::sleep_until_posted(Deadline deadline) {
  // acq_rel; pairs with the exchanges in try_enqueue() and ~Stream(). Only they clear the word: a plain store here
  // would break the chain of read-modify-writes, and a 1 left behind costs no more than one needless wake-up.
  worker_sleeps_.exchange(1, std::memory_order_acq_rel);
  while (idle() && !stopping_.load(std::memory_order_relaxed) && worker_sleeps_.load(std::memory_order_relaxed) != 0 &&
         !deadline.expired()) {
    futex_wait(worker_sleeps_, 1, deadline);
  }
}

void Stream::run_next() {
  const uint64_t sequence = completed_.load(std::memory_order_relaxed);
  Slot& slot = ring_[sequence % kCapacity];
  slot.type->run_and_destroy(slot.payload, *this);
  // release; pairs with acquire in completed(): the task's effects are visible, and its slot may be reused
  completed_.store(sequence + 1, std::memory_order_release);
  // acq_rel; pairs with the compare-exchange in sleep_until_completed()
  const uint32_t ticket = wake_at_.fetch_or(0, std::memory_order_acq_rel);
  if (ticket != 0 && ticket_reached(ticket, sequence + 1)) {
    wake_at_.store(0, std::memory_order_release);  // pairs with the same compare-exchange, which may read this 0
    num_wakes_.fetch_add(1, std::memory_order_release);  // pairs with the acquire in sleep_until_completed()
    futex_wake_all(num_wakes_);
  }
}

Status Stream::synchronize(Deadline deadline) {
  if (on_worker()) return Status::invalid_usage(text("stream ", name(), ": a task of it waits for itself"));
  const uint64_t sequence = posted();
  Backoff backoff;
  while (completed() < sequence) {
    if (backoff.now_ns() >= deadline.at_ns()) {
      return Status::invalid_usage(text("stream ", name(), ": ", sequence - completed(), " of ", sequence,
                                        " tasks have not run by the deadline; a task still waits or computes"));
    }
    if (backoff.waited_ns() < Backoff::kYieldNs) {
      backoff.spin();
    } else {
      sleep_until_completed(sequence, deadline);
      backoff.spin();
    }
  }
  const std::lock_guard lock(error_mutex_);
  return error_;
}

// Sleeps until the worker passes the sequence, the deadline comes, or somebody else's wake-up ends it early.
void Stream::sleep_until_completed(uint64_t sequence, Deadline deadline) {
  // acquire; pairs with the release in run_next(). Read before the ticket is set, so that whoever takes it away counts.
  const uint32_t num_wakes = num_wakes_.load(std::memory_order_acquire);
  const uint32_t mine = wake_ticket(sequence);
  uint32_t seen = wake_at_.load(std::memory_order_relaxed);
  uint32_t wanted;
  do {
    const bool mine_is_earlier = seen == 0 || int32_t(seen - mine) > 0;
    wanted = mine_is_earlier ? mine : seen;  // whoever is woken too early comes back here and asks again
    // acq_rel; pairs with the fetch_or in run_next()
  } while (!wake_at_.compare_exchange_weak(seen, wanted, std::memory_order_acq_rel, std::memory_order_relaxed));
  if (completed() < sequence) futex_wait(num_wakes_, num_wakes, deadline);
}

void Stream::fail(Status error) {
  const std::lock_guard lock(error_mutex_);
  if (!error_.ok()) return;
  log(LogLevel::kError, "stream ", name(), ": ", error.to_string());
  error_ = std::move(error);
}

Status Stream::take_error() {
  const std::lock_guard lock(error_mutex_);
  return std::exchange(error_, Status());
}

}  // namespace switchyard
