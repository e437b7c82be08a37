// libfabric itself, loaded when the first network asks for it rather than with the program. Of the libraries that it
// brings along, one (libinfinipath) puts handlers of its own on SIGINT, SIGTERM and the signals of crashes as soon as
// it is there, and a process that has loaded them takes 0.2 s longer to end. Who needs no such network has neither; who
// does keeps its handlers.
//
// THREADS    load() and get() any.
// OWNERSHIP  what was loaded stays until the process ends.
// ERRORS     load() says what is missing and how to install it; it may be called again.
#pragma once
#include <rdma/fabric.h>
#include <signal.h>

#include <array>
#include <mutex>

#include "switchyard/status.hpp"

namespace switchyard {

// The functions that libfabric exports; all others are called through what these make.
struct OfiLibrary {
  decltype(&::fi_getinfo) getinfo;
  decltype(&::fi_dupinfo) dupinfo;
  decltype(&::fi_freeinfo) freeinfo;
  decltype(&::fi_fabric) fabric;
  decltype(&::fi_strerror) strerror;

  static Status load();
  // REQUIRES  load() was successful, in this thread or before something that this thread has acquired.
  static const OfiLibrary& get();
};

// While it lives whatever happens to the process's signal handlers is undone, at its end. One at a time: a second one
// would take the first one's guests for what was there before.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers();
  ~KeptSignalHandlers();
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;
  KeptSignalHandlers& operator=(const KeptSignalHandlers&) = delete;

 private:
  const std::lock_guard<std::mutex> lock_;
  std::array<struct sigaction, NSIG> before_{};
};

}  // namespace switchyard
