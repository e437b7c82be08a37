// What a process holds that it could lose: descriptors, mappings that others may share, threads, memory from operator
// new.
#pragma once
#include <cstddef>
#include <string>

namespace switchyard::testing {

struct Resources {
  size_t num_files = 0;
  size_t num_libfabric_sockets = 0;  // not among these
  size_t num_mappings = 0;
  size_t num_threads = 0;
  size_t num_blocks = 0;  // of operator new

  static Resources now();
  // Of a process that is to hold this much: waits a moment for the kernel, which takes a thread off its list only after
  // whoever joined it went on.
  Resources later() const;
  // In anything but libfabric's sockets: it loses those whose connection fails while it is made. Who closes all that is
  // libfabric's in a life without faults does so in others too.
  bool exceeds(const Resources& other) const;
  std::string to_string() const;
};

}  // namespace switchyard::testing
