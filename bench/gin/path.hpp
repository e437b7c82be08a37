// A way to move bytes to the other of two ranks and to tell it: what is measured, ours and raw, through one interface.
//
// THREADS    one.
// OWNERSHIP  the memory it moves.
// ERRORS     false, after which the path is of no use; why() says what happened.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "switchyard/status.hpp"

namespace switchyard::bench {

constexpr uint64_t kMaxGinBytes = 4u << 20;

class GinPath {
 public:
  virtual ~GinPath() = default;
  // Moves so many bytes to the peer and tells it. Returns when that is on its way.
  virtual bool put(uint64_t num_bytes) = 0;
  // BLOCKING  until the peer has told this rank so many times, since the beginning.
  virtual bool await(uint64_t num_told) = 0;
  // BLOCKING  until everything that was put has left: who turns to another path does not help this one any more.
  virtual bool flush() = 0;
  virtual std::string why() const = 0;
};

using GinPathPtr = std::unique_ptr<GinPath>;

// COLLECTIVE over the two ranks.
// Gin, on a context of its own.
Result<GinPathPtr> make_gin_path(Communicator& comm, const DeviceComm& device, int context);
// Copies and flags in shared memory. REQUIRES  both ranks on one node.
Result<GinPathPtr> make_store_path(Communicator& comm);
// Plain libfabric calls (raw_ofi.hpp).
Result<GinPathPtr> make_ofi_path(Communicator& comm, const std::string& net);

}  // namespace switchyard::bench
