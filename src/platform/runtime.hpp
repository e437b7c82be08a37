// What the host side of the library asks of a platform: memory and streams. Kernels are launched by the layer that
// owns them (ep/ll_launch.hpp), because a platform does not know what runs on it.
//
// THREADS    any.
// OWNERSHIP  a Runtime outlives everything made through it.
// ERRORS     as Status, naming the size or the call.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "switchyard/device_id.hpp"
#include "switchyard/status.hpp"
#include "switchyard/stream.hpp"

namespace switchyard {

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual DeviceId device() const = 0;

  // Zero-filled memory that kernels use, and memory that host and kernels both see (flags, counters).
  virtual Result<void*> allocate(size_t num_bytes) = 0;
  virtual Result<void*> allocate_shared(size_t num_bytes) = 0;
  virtual Status free(void* memory) = 0;
  virtual Status free_shared(void* memory) = 0;

  // Blocking copies between the host and kernel memory.
  virtual Status upload(void* to, const void* from, size_t num_bytes) = 0;
  virtual Status download(void* to, const void* from, size_t num_bytes) = 0;
  // Stream-ordered copies; `from` of upload_async is read before the call returns.
  virtual Status copy_async(void* to, const void* from, size_t num_bytes, StreamRef stream) = 0;
  virtual Status upload_async(void* to, const void* from, size_t num_bytes, StreamRef stream) = 0;

  // A stream that waits for no other stream unless told to. Its owner destroys it when nothing runs on it any more.
  virtual Result<StreamRef> create_stream(const std::string& name) = 0;
  virtual Status destroy_stream(StreamRef stream) = 0;
  virtual Status synchronize(StreamRef stream, Deadline deadline) = 0;
  // Has everything posted so far run, well or not?
  virtual bool has_finished(StreamRef stream) = 0;
  // What is posted to `later` from now on runs after what was posted to `earlier` before.
  virtual Status order_after(StreamRef later, StreamRef earlier) = 0;

  // The allocation around an address, with a descriptor that another process can map; nothing if it has none.
  struct Allocation {
    void* base;
    size_t num_bytes;
    int fd;  // -1: only threads of this process can share it
  };
  virtual std::optional<Allocation> find(const void* address) = 0;
  // While the result lives, the memory around the address stays in place, even if it is freed. Null: not offered here.
  virtual std::shared_ptr<const void> keep(const void* /*address*/) { return nullptr; }
};

Runtime& host_runtime();
#if defined(SWITCHYARD_HAVE_CUDA)
Result<Runtime*> cuda_runtime(int ordinal);
#endif

inline Result<Runtime*> find_runtime(DeviceId device) {
  if (device.kind == DeviceKind::kHost) return &host_runtime();
#if defined(SWITCHYARD_HAVE_CUDA)
  return cuda_runtime(device.ordinal);
#else
  return Status::invalid_usage("this library was built without CUDA: build it with -DSWITCHYARD_CUDA=ON, or run on the host");
#endif
}

}  // namespace switchyard
