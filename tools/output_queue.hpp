// Bytes on their way to a descriptor that may be slow: a full pipe must not keep the launcher from its signals and
// deadlines, and must not be made non-blocking either, because others share its open file.
//
// THREADS    one at a time.
// OWNERSHIP  the descriptor stays the caller's.
// ERRORS     a failed write closes the queue: closed() is true and what it held is gone.
// BLOCKING   never, on pipes, sockets and files: it writes no more at a time than poll(2) promised room for.
#pragma once
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>

namespace switchyard::tools {

class OutputQueue {
 public:
  // Beyond this the ranks' pipes are left full, which slows the ranks down to the reader's pace.
  static constexpr size_t kFullBytes = size_t{1} << 20;

  explicit OutputQueue(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool closed() const { return closed_; }
  bool empty() const { return pending_.empty(); }
  bool full() const { return pending_.size() >= kFullBytes; }
  // Where to append; REQUIRES flush() afterwards.
  std::string& tail() { return pending_; }
  // What is still here is dropped.
  void close() {
    closed_ = true;
    pending_.clear();
  }

  void flush() {
    size_t written_bytes = 0;
    while (!closed_ && written_bytes < pending_.size() && writable()) {
      const size_t chunk_bytes = std::min<size_t>(PIPE_BUF, pending_.size() - written_bytes);
      const ssize_t num_bytes = write(fd_, pending_.data() + written_bytes, chunk_bytes);
      if (num_bytes >= 0) written_bytes += size_t(num_bytes);
      else if (errno != EINTR && errno != EAGAIN) closed_ = true;
    }
    closed_ ? pending_.clear() : void(pending_.erase(0, written_bytes));
  }

 private:
  bool writable() const {
    pollfd entry{fd_, POLLOUT, 0};
    return poll(&entry, 1, 0) > 0;
  }

  int fd_;
  bool closed_ = false;
  std::string pending_;
};

}  // namespace switchyard::tools
