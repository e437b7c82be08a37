// The signals that a launcher receives as data, and what its children must get back.
//
// THREADS    construct it in the main thread before any other exists: threads inherit the blocked mask.
// OWNERSHIP  owns the descriptor; the mask stays blocked until the process ends, as the launcher handles one job.
// ERRORS     open() fails when the process is out of descriptors.
#pragma once
#include <signal.h>
#include <sys/signalfd.h>

#include <optional>

#include "base/fd.hpp"
#include "switchyard/status.hpp"

namespace switchyard::tools {

class SignalSource {
 public:
  static Result<SignalSource> open() {
    // Inherited as ignored, it would make the kernel reap our children, and their exit codes would be lost.
    signal(SIGCHLD, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGPIPE}) sigaddset(&set, signal_number);
    SignalSource source;
    if (sigprocmask(SIG_BLOCK, &set, &source.original_) != 0) return Status::system_error("blocking signals");
    source.fd_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!source.fd_.valid()) return Status::system_error("opening a signal descriptor");
    return source;
  }

  int fd() const { return fd_.get(); }
  // The mask from before; a child must restore it before it executes its program.
  const sigset_t& original_mask() const { return original_; }
  // The next pending signal, or nothing.
  std::optional<int> next() {
    signalfd_siginfo info;
    if (read(fd_.get(), &info, sizeof(info)) != ssize_t(sizeof(info))) return std::nullopt;
    return int(info.ssi_signo);
  }

 private:
  SignalSource() = default;
  Fd fd_;
  sigset_t original_{};
};

}  // namespace switchyard::tools
