// The progress thread of a process: software networks move nothing at a target that does not help, so somebody has to,
// also while the program computes. Whoever waits for the network progresses its endpoint itself, under a try-lock
// (NetEndpoint::progress()); then the thread finds nothing to do and sleeps longer.
//
// THREADS    any.
// OWNERSHIP  an endpoint takes part from add() until remove() has returned. The thread lives while there is an endpoint.
// ERRORS     add() when no thread can be started.
#pragma once
#include <mutex>
#include <thread>
#include <vector>

#include "net/net.hpp"

namespace switchyard {

class ProgressThread {
 public:
  static ProgressThread& instance();

  Status add(NetEndpoint& endpoint);
  void remove(NetEndpoint& endpoint);

 private:
  void run();

  std::mutex mutex_;  // held while endpoints are progressed
  std::vector<NetEndpoint*> endpoints_;
  std::mutex life_mutex_;  // of the thread: starting and joining
  std::thread thread_;
  bool stopping_ = false;  // guarded by mutex_
};

}  // namespace switchyard
