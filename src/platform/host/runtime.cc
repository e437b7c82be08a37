#include "platform/runtime.hpp"

#include <cstring>

#include "platform/host/event.hpp"
#include "platform/host/memory.hpp"
#include "platform/host/stream.hpp"

namespace switchyard {
namespace {

Stream& stream_of(StreamRef stream) { return *static_cast<Stream*>(stream.handle); }

class HostRuntime final : public Runtime {
 public:
  DeviceId device() const override { return {}; }

  Result<void*> allocate(size_t num_bytes) override { return DeviceMemory::instance().allocate(num_bytes); }
  Result<void*> allocate_shared(size_t num_bytes) override { return allocate(num_bytes); }
  Status free(void* memory) override { return DeviceMemory::instance().free(memory); }
  Status free_shared(void* memory) override { return free(memory); }

  Status upload(void* to, const void* from, size_t num_bytes) override {
    std::memcpy(to, from, num_bytes);
    return {};
  }
  Status download(void* to, const void* from, size_t num_bytes) override { return upload(to, from, num_bytes); }

  Status copy_async(void* to, const void* from, size_t num_bytes, StreamRef stream) override {
    return stream_of(stream).post([=] { std::memcpy(to, from, num_bytes); });
  }
  Status upload_async(void* to, const void* from, size_t num_bytes, StreamRef stream) override {
    auto copy = std::make_unique<char[]>(num_bytes);
    std::memcpy(copy.get(), from, num_bytes);
    return stream_of(stream).post(
        [to, num_bytes, copy = std::move(copy)]() noexcept { std::memcpy(to, copy.get(), num_bytes); });
  }

  Result<StreamRef> create_stream(const std::string& name) override {
    SWITCHYARD_ASSIGN(std::unique_ptr<Stream> stream, Stream::create({.name = name}));
    return StreamRef{stream.release()};
  }
  Status destroy_stream(StreamRef stream) override {
    delete static_cast<Stream*>(stream.handle);
    return {};
  }
  // A stream that is gone has run all it was given.
  Status synchronize(StreamRef stream, Deadline deadline) override {
    return Stream::exists(stream.handle) ? stream_of(stream).synchronize(deadline) : Status();
  }
  bool has_finished(StreamRef stream) override { return !Stream::exists(stream.handle) || stream_of(stream).idle(); }

  Status order_after(StreamRef later, StreamRef earlier) override {
    if (later == earlier || !Stream::exists(earlier.handle)) return {};
    Event event;
    SWITCHYARD_TRY(event.record(stream_of(earlier)));
    return stream_of(later).wait(event);
  }

  std::shared_ptr<const void> keep(const void* address) override { return DeviceMemory::instance().keep(address); }

  std::optional<Allocation> find(const void* address) override {
    const auto found = DeviceMemory::instance().find(address);
    if (!found) return std::nullopt;
    return Allocation{found->base, found->num_bytes, found->fd};
  }
};

}  // namespace

Runtime& host_runtime() {
  static HostRuntime runtime;
  return runtime;
}

}  // namespace switchyard
