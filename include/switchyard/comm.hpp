// The C++ face of the runtime: communicators and symmetric memory.
//
//   switchyard::Comm comm = switchyard::Comm::from_environment();      // switchyard run, mpirun, torchrun, Slurm
//   switchyard::SymmetricMemory memory(comm, num_bytes);               // every rank; reachable from every rank's kernels
//   const switchyard::DeviceComm device = comm.device_comm({.num_barriers = 1});
//   switchyard::HostStream stream;
//   stream.launch([=](const switchyard::HostPlatform& p) { my_kernel(p, device, memory.view()); });
//   stream.synchronize();
//
// THREADS    COLLECTIVE calls are made by all ranks in the same order, one at a time; abort() and queries from any thread.
// OWNERSHIP  values that own; movable. Memory and device communicators must not outlive their Comm.
// ERRORS     switchyard::Error, naming the rank, the argument and what is allowed.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "switchyard/device/comm.hpp"
#include "switchyard/device_id.hpp"
#include "switchyard/status.hpp"
#include "switchyard/stream.hpp"

namespace switchyard {

class Communicator;
class Window;

// What one rank makes and all ranks need to find each other. It holds the key of the job: keep it private.
using UniqueIdBytes = std::array<std::byte, 128>;
UniqueIdBytes make_unique_id();

class Comm {
 public:
  // COLLECTIVE. Rank, size and meeting point from the launcher's environment (docs/env.md). What runs on the ranks of a communicator runs
  // on their devices, all of one kind; tensors and streams must be of that device.
  static Comm from_environment(DeviceId device = {});
  // COLLECTIVE. The ranks meet at `store`: file:///absolute/path, or tcp://host:port of rank 0's host, which beyond loopback needs
  // the job's key.
  static Comm from_store(const std::string& store, int rank, int num_ranks, const std::string& job_key = "",
                         DeviceId device = {});
  // COLLECTIVE. BLOCKING: until every rank came, at most SWITCHYARD_TIMEOUT_MS.
  Comm(const UniqueIdBytes& id, int rank, int num_ranks, DeviceId device = {});
  ~Comm();
  Comm(Comm&&) noexcept;
  Comm& operator=(Comm&&) noexcept;

  int rank() const;
  int num_ranks() const;
  int num_nodes() const;
  DeviceId device() const;

  // COLLECTIVE. Ranks of one colour, ordered by (key, rank). REQUIRES  color >= 0.
  Comm split(int color, int key) const;
  // COLLECTIVE. The same ranks again, with windows and traffic of their own.
  Comm duplicate() const { return split(0, rank()); }
  // COLLECTIVE. After it what any rank had put before is there.
  void barrier() const;
  // COLLECTIVE. Resources for kernels; they live as long as this object.
  DeviceComm device_comm(const DeviceCommRequirements& requirements) const;
  // Ends every wait of this rank; peers are told. Returns at once.
  void abort(const std::string& reason) const;
  // Throws what ended this communicator, if anything did.
  void check_async_error() const;
  // BLOCKING  until everything posted to a stream of this communicator's device so far has run, at most timeout_ns. Says
  // whether it has; throws what is wrong with the device.
  bool wait_for(StreamRef stream, uint64_t timeout_ns) const;
  // Streams that the calling thread makes from now on are pinned as this rank's (SWITCHYARD_PIN). The thread that made the
  // communicator needs no call.
  void claim_thread() const;

  Communicator& internal() const { return *comm_; }

 private:
  explicit Comm(std::unique_ptr<Communicator> comm);
  std::unique_ptr<Communicator> comm_;
};

// COLLECTIVE to make: zeroed memory of one size on all ranks, mapped by every rank of the node.
class SymmetricMemory {
 public:
  SymmetricMemory(const Comm& comm, size_t num_bytes);
  ~SymmetricMemory();
  SymmetricMemory(SymmetricMemory&& other) noexcept;
  SymmetricMemory& operator=(SymmetricMemory&&) = delete;

  void* data() const { return data_; }
  size_t size() const { return num_bytes_; }
  DeviceId device() const;
  WindowView view() const;
  const Window& window() const { return *window_; }

 private:
  Communicator* comm_;
  void* data_;
  size_t num_bytes_;
  Window* window_;
};

}  // namespace switchyard
