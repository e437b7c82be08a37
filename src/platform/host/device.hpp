// A pretended device: what the CUDA runtime's "current device" is on a machine without one.
//
// A device owns streams and nothing else; all devices share the machine's cores and memory. The rules are CUDA's: each
// thread has a current device, 0 until it sets another, and synchronizing a device waits for the streams of that device
// alone. Ranks that are threads of one process therefore call set_current(local_rank), as they must on GPUs, and each
// sees a device of its own. (Not chosen: a private device 0 for every thread that sets none. It would let a helper
// thread's cudaDeviceSynchronize() return before the main thread's work is done, silently.)
//
// The default stream has CUDA's "legacy" order: its work starts after all earlier work of the device's blocking
// streams, and their later work starts after it. Programs rely on this when they mix cudaMemset() with a stream. Hence
// also: waiting for the default stream waits for all blocking streams, if it was looked up with stream_for_post().
//
// THREADS    any.
// OWNERSHIP  the process owns the devices and never destroys them, because at exit workers may still run; a device owns
//            its streams until destroy_stream().
// ERRORS     as Status; an unknown ordinal or handle is an invalid argument.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "platform/host/stream.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

enum class StreamOrder {
  kBlocking,     // ordered with the default stream
  kNonBlocking,  // ordered with nothing but itself
};

class Device {
 public:
  // More than the ranks one machine can sensibly run, so that "device = local rank" always works.
  static constexpr int kNumDevices = 64;

  static Device& current();
  static Status set_current(int ordinal);
  // Nothing if there is no such device.
  static Device* find(int ordinal);

  // The live stream behind an opaque handle, of whichever device; null is the current device's default stream.
  static Result<Stream*> find_stream(const void* handle);
  // The same for one who is about to post: first queues the waits that the legacy order asks for.
  static Result<Stream*> stream_for_post(const void* handle);
  // Returns at once; a stream that still works is let go when it is done.
  static Status destroy_stream(const void* handle);

  int ordinal() const { return ordinal_; }
  Result<Stream*> create_stream(StreamOrder order);

  // Waits for everything posted so far to the streams of this device; takes their errors and returns the first.
  Status synchronize(Deadline deadline);

  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  // Shared: synchronize() waits outside the lock, while another thread may destroy the stream it waits for.
  using StreamPtr = std::shared_ptr<Stream>;
  struct Entry {
    StreamPtr stream;
    StreamOrder order;
  };
  struct All;  // the devices of this process
  struct Located {
    Device* owner;
    Stream* stream;
    StreamOrder order;
  };

  Device() = default;
  static All& all();
  static Result<Located> locate(const void* handle);
  Result<StreamPtr> start_stream(const std::string& role);
  Result<Stream*> default_stream();
  Status queue_legacy_order(Stream& stream);
  // Created streams, retired ones included, at most as loosely ordered as that. REQUIRES  mutex_ held.
  std::vector<StreamPtr> created_streams(StreamOrder loosest) const;
  // Retired streams that have become idle; whoever drops the result ends their workers (so, not under the lock).
  std::vector<StreamPtr> take_finished();

  int ordinal_ = 0;
  mutable std::mutex mutex_;
  uint64_t num_created_ = 0;
  StreamPtr default_stream_;              // made by its first use
  std::map<const void*, Entry> streams_;  // by handle
  std::vector<Entry> retired_;            // destroyed by their user while they still worked
};

}  // namespace switchyard
