#include "net/progress.hpp"

#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "switchyard/platform/backoff.hpp"

namespace switchyard {

ProgressThread& ProgressThread::instance() {
  static ProgressThread& thread = *new ProgressThread;  // never destroyed: endpoints may go while the process exits
  return thread;
}

Status ProgressThread::add(NetEndpoint& endpoint) {
  const std::lock_guard life(life_mutex_);
  {
    const std::lock_guard lock(mutex_);
    endpoints_.push_back(&endpoint);
    stopping_ = false;
    if (endpoints_.size() > 1) return {};
  }
  try {
    thread_ = std::thread([this] { run(); });
    return {};
  } catch (const std::system_error& error) {
    const std::lock_guard lock(mutex_);
    endpoints_.clear();
    return Status(Code::kSystemError, text("cannot start the network's progress thread (", error.what(), "); see ulimit -u"));
  }
}

void ProgressThread::remove(NetEndpoint& endpoint) {
  const std::lock_guard life(life_mutex_);
  {
    const std::lock_guard lock(mutex_);
    std::erase(endpoints_, &endpoint);
    if (!endpoints_.empty()) return;
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::run() {
  pthread_setname_np(pthread_self(), "sy-net");
  Backoff backoff;
  for (;;) {
    bool moved = false;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (NetEndpoint* endpoint : endpoints_) moved |= endpoint->progress();
    }
    if (moved) backoff.reset();
    else backoff.pause();
  }
}

}  // namespace switchyard
