// One of the two output streams of a child, on its way to ours of the same kind.
//
// THREADS    one at a time.
// OWNERSHIP  source and sink stay the caller's and outlive it.
// ERRORS     a source that can't be read is at its end.
// BLOCKING   never: the source does not block.
#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/fd.hpp"
#include "tools/line_prefixer.hpp"
#include "tools/output_queue.hpp"

namespace switchyard::tools {

struct ChildStream {
  Fd* source;
  LinePrefixer lines;
  OutputQueue* sink;

  bool readable() const { return source->valid() && !sink->full(); }

  // Takes what is there without waiting; at the end of the stream closes it.
  void pull() {
    char buffer[65536];
    while (readable()) {
      const ssize_t num_bytes = read(source->get(), buffer, sizeof(buffer));
      if (num_bytes > 0) {
        lines.feed({buffer, size_t(num_bytes)}, sink->tail());
      } else if (num_bytes == 0 || (errno != EINTR && errno != EAGAIN)) {
        close();
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }
  void close() {
    lines.finish(sink->tail());
    source->reset();
  }
};

}  // namespace switchyard::tools
