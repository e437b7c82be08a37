#include "net/progress.hpp"

#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "base/guarded.hpp"
#include "switchyard/platform/backoff.hpp"

namespace switchyard {

ProgressThreads& ProgressThreads::instance() {
  // Never destroyed: endpoints may go while the process exits.
  static ProgressThreads& threads = *new ProgressThreads(size_t(env().progress_threads));
  return threads;
}

Status ProgressThreads::add(Progressed& item) {
  const std::lock_guard life(life_mutex_);
  const auto idle = std::min_element(workers_.begin(), workers_.end(), [](const Worker& a, const Worker& b) {
    return a.items.size() < b.items.size();  // changed under life_mutex_ only
  });
  {
    const std::lock_guard lock(idle->mutex);
    idle->items.push_back({&item, item.num_helped()});
    idle->stopping = false;
    if (idle->items.size() > 1) return {};
  }
  try {
    idle->thread = std::thread([&worker = *idle] { run(worker); });
    return {};
  } catch (const std::system_error& error) {
    const std::lock_guard lock(idle->mutex);
    idle->items.clear();
    return Status(Code::kSystemError, text("cannot start the network's progress thread (", error.what(), "); see ulimit -u"));
  }
}

void ProgressThreads::remove(Progressed& item) {
  const std::lock_guard life(life_mutex_);
  for (Worker& worker : workers_) {
    {
      const std::lock_guard lock(worker.mutex);
      if (std::erase_if(worker.items, [&](const auto& entry) { return entry.what == &item; }) == 0 || !worker.items.empty()) continue;
      worker.stopping = true;
    }
    if (worker.thread.joinable()) worker.thread.join();
  }
}

void ProgressThreads::run(Worker& worker) {
  pthread_setname_np(pthread_self(), "sy-net");
  Backoff backoff;
  for (;;) {
    bool moved = false;
    {
      const std::lock_guard lock(worker.mutex);
      if (worker.stopping) return;
      for (auto& item : worker.items) {
        // Whoever waits for the network is at it: two would only stand in each other's way.
        SWITCHYARD_FAILPOINT("progress.turn");
        const bool is_helped = item.what->num_helped() != item.num_helped;
        // Out of memory for a moment: what was not moved now is next time.
        if (!is_helped) (void)guarded([&] { moved |= item.what->progress(); });
        item.num_helped = item.what->num_helped();
      }
    }
    if (moved) backoff.reset();
    else backoff.pause();
  }
}

}  // namespace switchyard
