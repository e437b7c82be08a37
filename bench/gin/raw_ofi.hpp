// Plain libfabric calls between ranks, on endpoints of their own: writes with completion data, of the same provider as a
// network's name asks for. What a measurement of ours is compared with.
//
// THREADS    one.
// OWNERSHIP  the endpoint and its memory; the communicator's runtime must outlive it.
// ERRORS     false, after which it is of no use; error() says what libfabric said.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.hpp"

namespace switchyard::bench {

class RawOfi {
 public:
  static constexpr uint64_t kMaxPutBytes = 4u << 20;

  // COLLECTIVE. ERRORS  built without libfabric, or what libfabric said.
  static Result<std::unique_ptr<RawOfi>> create(Communicator& comm, const std::string& net);
  virtual ~RawOfi() = default;

  // Returns when it is on its way.
  virtual bool put(int rank, uint64_t num_bytes) = 0;
  // BLOCKING  until so many puts have arrived here, from anybody and since the beginning.
  virtual bool await(uint64_t num_puts) = 0;
  // BLOCKING  until everything that was put has left.
  virtual bool flush() = 0;
  virtual Status error() const = 0;
};

}  // namespace switchyard::bench
