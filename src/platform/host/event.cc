#include "platform/host/event.hpp"

#include <atomic>

#include "platform/host/wait.hpp"

namespace switchyard {

struct Event::Mark {
  std::atomic<uint64_t> reached_at_ns{0};

  // acquire; pairs with release in the task of record(): what the stream did before is visible
  uint64_t time_ns() const { return reached_at_ns.load(std::memory_order_acquire); }
  bool reached() const { return time_ns() != 0; }
};

Status Event::record(Stream& stream) {
  auto mark = std::make_shared<Mark>();
  // The mutex is not held while posting, which may block; of two racing records either may be the latest.
  SWITCHYARD_TRY(stream.post([mark] {
    mark->reached_at_ns.store(now_ns(), std::memory_order_release);  // pairs with acquire in Mark::time_ns()
  }));
  const std::lock_guard lock(mutex_);
  latest_ = std::move(mark);
  return {};
}

std::shared_ptr<const Event::Mark> Event::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

bool Event::query() const {
  const auto mark = latest();
  return !mark || mark->reached();
}

Status Event::synchronize(Deadline deadline) const {
  const auto mark = latest();
  if (!mark) return {};
  if (wait_until([&] { return mark->reached(); }, deadline) == WaitResult::kReady) return {};
  return Status::invalid_usage("event: not reached by the deadline; a task before it in its stream waits or computes");
}

Result<float> Event::elapsed_ms(const Event& start, const Event& end) {
  const auto first = start.latest(), second = end.latest();
  if (!first || !second) return Status::invalid_argument("elapsed time: both events must have been recorded");
  if (!first->reached() || !second->reached()) {
    return Status(Code::kInProgress, "elapsed time: an event is not complete yet; synchronize with it first");
  }
  return float(double(int64_t(second->time_ns() - first->time_ns())) / double(kMillisecond));
}

Status Stream::wait(const Event& event) {
  auto mark = event.latest();
  if (!mark || mark->reached()) return {};
  // No deadline of its own: the wait ends when the other stream's tasks before the mark do, and those that can wait
  // have deadlines. A shorter one here would report a slow but healthy stream as failed.
  return post([mark = std::move(mark)] { wait_until([&] { return mark->reached(); }, Deadline::never()); });
}

}  // namespace switchyard
