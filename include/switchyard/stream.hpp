// Streams: in-order queues of work.
//
//   switchyard::HostStream stream;
//   stream.launch([=](const switchyard::HostPlatform& p) { my_kernel(p, device, memory.view()); });
//   handle.dispatch(args, stream);
//   stream.synchronize();
//
// THREADS    one thread posts to a stream at a time; queries from any thread.
// OWNERSHIP  a HostStream owns its worker; a StreamRef owns nothing.
// ERRORS     switchyard::Error.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "switchyard/status.hpp"

namespace switchyard {

class HostPlatform;
class Stream;

// A stream of a communicator's device: a HostStream on CPUs, a cudaStream_t on a GPU.
struct StreamRef {
  void* handle = nullptr;
  bool operator==(const StreamRef&) const = default;
};

// An in-order queue with its own worker thread: what a CUDA stream is, on a CPU.
class HostStream {
 public:
  static constexpr uint64_t kCapacity = 256;  // tasks that wait; who posts more waits for the first of them

  HostStream();
  ~HostStream();
  HostStream(HostStream&&) noexcept;
  operator StreamRef() const { return {stream_.get()}; }  // NOLINT: operations take either kind

  // Runs the kernel on the worker, after everything launched before. BLOCKING  while kCapacity tasks wait.
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

 private:
  std::unique_ptr<Stream> stream_;
};

}  // namespace switchyard
