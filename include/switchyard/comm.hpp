// The C++ face of the runtime: communicators, symmetric memory, streams.
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
#include <functional>
#include <memory>
#include <string>

#include "switchyard/device/comm.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

class Communicator;
class HostPlatform;
class Stream;
class Window;

// What one rank makes and all ranks need to find each other. It holds the key of the job: keep it private.
using UniqueIdBytes = std::array<std::byte, 128>;
UniqueIdBytes make_unique_id();

class Comm {
 public:
  // COLLECTIVE. Rank, size and meeting point from the launcher's environment (docs/env.md).
  static Comm from_environment();
  // COLLECTIVE. The ranks meet at `store`: file:///absolute/path, or tcp://host:port of rank 0's host, which beyond loopback needs
  // the job's key.
  static Comm from_store(const std::string& store, int rank, int num_ranks, const std::string& job_key = "");
  // COLLECTIVE. BLOCKING: until every rank came, at most SWITCHYARD_TIMEOUT_MS.
  Comm(const UniqueIdBytes& id, int rank, int num_ranks);
  ~Comm();
  Comm(Comm&&) noexcept;
  Comm& operator=(Comm&&) noexcept;

  int rank() const;
  int num_ranks() const;
  int num_nodes() const;

  // COLLECTIVE. Ranks of one colour, ordered by (key, rank). REQUIRES  color >= 0.
  Comm split(int color, int key) const;
  // COLLECTIVE. The same ranks again, with windows and traffic of their own.
  Comm duplicate() const { return split(0, rank()); }
  // COLLECTIVE.
  void barrier() const;
  // COLLECTIVE. Resources for kernels; they live as long as this object.
  DeviceComm device_comm(const DeviceCommRequirements& requirements) const;
  // Ends every wait of this rank; peers are told. Returns at once.
  void abort(const std::string& reason) const;
  // Throws what ended this communicator, if anything did.
  void check_async_error() const;
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
  WindowView view() const;
  const Window& window() const { return *window_; }

 private:
  Communicator* comm_;
  void* data_;
  size_t num_bytes_;
  Window* window_;
};

// An in-order queue with its own worker thread: what a CUDA stream is, on a CPU.
class HostStream {
 public:
  HostStream();
  ~HostStream();
  HostStream(HostStream&&) noexcept;

  // Runs the kernel on the worker, after everything launched before. BLOCKING  never.
  void launch(std::function<void(const HostPlatform&)> kernel);
  // BLOCKING  until everything launched so far has run, at most timeout_ns; throws what failed.
  void synchronize(uint64_t timeout_ns = 60'000'000'000);
  // BLOCKING  as synchronize(), but says whether everything has run, and throws nothing.
  bool wait_for(uint64_t timeout_ns);
  // The first failure so far, which synchronize() throws again and again until somebody takes it.
  Status take_error();
  // How many tasks this stream was ever given (an operation is one or a few), and how many of these have run.
  uint64_t num_posted() const;
  uint64_t num_completed() const;

  Stream* internal() const { return stream_.get(); }

 private:
  std::unique_ptr<Stream> stream_;
};

}  // namespace switchyard
