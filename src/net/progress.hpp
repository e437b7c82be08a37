// The progress threads of a process: software networks move nothing at a target that does not help, so somebody has to, also
// while the program computes. Whoever waits for the network progresses its endpoint itself, under a try-lock
// (NetEndpoint::progress()); then the threads find nothing to do and sleep longer. One thread, or as many as
// SWITCHYARD_PROGRESS_THREADS says.
//
// THREADS    any.
// OWNERSHIP  what is helped along takes part from add() until remove() has returned. A thread lives while it has something to
//            look after.
// ERRORS     add() when no thread can be started.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "switchyard/status.hpp"

namespace switchyard {

class Progressed {
 public:
  virtual ~Progressed() = default;
  // Moves what can be moved; true when something moved. Never waits: does nothing while another thread is at it.
  virtual bool progress() = 0;

  // How often progress() was at it; changes while somebody else helps.
  uint64_t num_helped() const { return num_helped_.load(std::memory_order_relaxed); }

 protected:
  // By who is at it. Where two are, one may go uncounted: what matters is that the number changes.
  void count_help() { num_helped_.store(num_helped() + 1, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> num_helped_{0};
};

class ProgressThreads {
 public:
  static ProgressThreads& instance();

  Status add(Progressed& item);
  void remove(Progressed& item);

 private:
  struct Worker {
    std::mutex mutex;  // held while items are progressed
    struct Item {
      Progressed* what;
      uint64_t num_helped;  // when the worker last looked
    };
    std::vector<Item> items;
    bool stopping = false;
    std::thread thread;
  };
  explicit ProgressThreads(size_t num_workers) : workers_(num_workers) {}
  static void run(Worker& worker);

  std::mutex life_mutex_;  // of the threads: starting and joining
  std::deque<Worker> workers_;
};

}  // namespace switchyard
