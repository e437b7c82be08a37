// The host platform, but every allocation lies between pages that can't be touched, flush with the second: an access
// past its end faults at once. What alignment leaves free around it is filled, and looked at when the memory is freed.
//
// THREADS    any.
// OWNERSHIP  must outlive what was allocated from it.
// ERRORS     as the host platform's; overruns into the filled rest are counted by num_damaged().
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#include "base/checked.hpp"
#include "platform/runtime.hpp"

namespace switchyard::testing {

class GuardedRuntime final : public Runtime {
 public:
  DeviceId device() const override { return {}; }

  Result<void*> allocate(size_t num_bytes) override {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    const size_t inner_bytes = round_up(num_bytes, page);
    const size_t mapped_bytes = inner_bytes + 2 * page;
    void* mapped = mmap(nullptr, mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return Status::system_error(text("mapping ", mapped_bytes, " guarded bytes"));
    auto* const inner = static_cast<uint8_t*>(mapped) + page;
    if (mprotect(inner, inner_bytes, PROT_READ | PROT_WRITE) != 0) return Status::system_error("opening guarded bytes");
    // Tensors are aligned to 16 bytes.
    uint8_t* const memory = inner + (inner_bytes - num_bytes) / 16 * 16;
    std::memset(inner, kFree, size_t(memory - inner));
    std::memset(memory + num_bytes, kFree, inner_bytes - num_bytes - size_t(memory - inner));
    const std::lock_guard lock(mutex_);
    by_address_[memory] = {mapped, mapped_bytes, inner, inner_bytes, num_bytes};
    return static_cast<void*>(memory);
  }

  Status free(void* memory) override {
    const std::lock_guard lock(mutex_);
    const auto found = by_address_.find(static_cast<uint8_t*>(memory));
    if (found == by_address_.end()) return Status::invalid_argument("this memory is not allocated here");
    const Guarded& guarded = found->second;
    const auto is_free = [](uint8_t byte) { return byte == kFree; };
    const bool intact = std::all_of(guarded.inner, found->first, is_free) &&
                        std::all_of(found->first + guarded.num_bytes, guarded.inner + guarded.inner_bytes, is_free);
    num_damaged_ += !intact;
    munmap(guarded.mapped, guarded.mapped_bytes);
    by_address_.erase(found);
    return {};
  }

  Result<void*> allocate_shared(size_t num_bytes) override { return allocate(num_bytes); }
  Status free_shared(void* memory) override { return free(memory); }

  std::optional<Allocation> find(const void* address) override {
    const std::lock_guard lock(mutex_);
    auto after = by_address_.upper_bound(const_cast<uint8_t*>(static_cast<const uint8_t*>(address)));
    if (after == by_address_.begin()) return std::nullopt;
    const auto& [memory, guarded] = *std::prev(after);
    if (size_t(static_cast<const uint8_t*>(address) - memory) >= guarded.num_bytes) return std::nullopt;
    return Allocation{memory, guarded.num_bytes, -1};
  }

  Status upload(void* to, const void* from, size_t num_bytes) override {
    return host_runtime().upload(to, from, num_bytes);
  }
  Status download(void* to, const void* from, size_t num_bytes) override {
    return host_runtime().download(to, from, num_bytes);
  }
  Status copy_async(void* to, const void* from, size_t num_bytes, StreamRef stream) override {
    return host_runtime().copy_async(to, from, num_bytes, stream);
  }
  Status upload_async(void* to, const void* from, size_t num_bytes, StreamRef stream) override {
    return host_runtime().upload_async(to, from, num_bytes, stream);
  }
  Result<StreamRef> create_stream(const std::string& name) override { return host_runtime().create_stream(name); }
  Status destroy_stream(StreamRef stream) override { return host_runtime().destroy_stream(stream); }
  Status synchronize(StreamRef stream, Deadline deadline) override {
    return host_runtime().synchronize(stream, deadline);
  }
  bool has_finished(StreamRef stream) override { return host_runtime().has_finished(stream); }
  Status order_after(StreamRef later, StreamRef earlier) override { return host_runtime().order_after(later, earlier); }

  size_t num_live() const {
    const std::lock_guard lock(mutex_);
    return by_address_.size();
  }
  size_t num_damaged() const {
    const std::lock_guard lock(mutex_);
    return num_damaged_;
  }

 private:
  static constexpr uint8_t kFree = 0xc3;
  struct Guarded {
    void* mapped;
    size_t mapped_bytes;
    uint8_t* inner;  // what lies between the guards
    size_t inner_bytes;
    size_t num_bytes;
  };
  mutable std::mutex mutex_;
  std::map<uint8_t*, Guarded> by_address_;
  size_t num_damaged_ = 0;
};

}  // namespace switchyard::testing
