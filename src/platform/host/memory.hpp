// Memory of the pretended device: anonymous shared memory with a descriptor, so that any of it can later be mapped by
// another process, and a registry that leads from a plain pointer back to that descriptor.
//
// THREADS    a Memory belongs to one thread at a time; DeviceMemory may be used from any.
// OWNERSHIP  a Memory owns its mapping and descriptor; the pages live until the last process that maps them lets go.
//            DeviceMemory owns what it allocated until free(), together with those who asked to keep() it.
// ERRORS     say how much was asked for and what the limit is.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/fd.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

// A mapped memfd of fixed size: sealed, so that nobody who receives the descriptor can shrink it under a reader
// (which would be a SIGBUS there). Zero-filled; a page costs nothing until it is touched.
class Memory {
 public:
  static constexpr size_t kMaxBytes = size_t(1) << 46;  // half the address space of a process on x86-64

  // REQUIRES  1 <= num_bytes <= kMaxBytes. The mapping is page-aligned and rounded up to whole pages.
  static Result<Memory> create(size_t num_bytes);

  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  std::byte* data() const { return data_; }
  size_t size() const { return num_bytes_; }  // as asked for
  int fd() const { return fd_.get(); }

 private:
  Memory(Fd fd, std::byte* data, size_t num_bytes) : fd_(std::move(fd)), data_(data), num_bytes_(num_bytes) {}

  Fd fd_;
  std::byte* data_;
  size_t num_bytes_;
};

// Device allocations by address.
class DeviceMemory {
 public:
  enum class Kind { kDevice, kPinnedHost };
  // What is known of the allocation that an address lies in; valid until that allocation is freed.
  struct Found {
    std::byte* base;
    size_t num_bytes;
    int fd;
    Kind kind;
    int device_ordinal;
  };

  // The registry of this process. Process-wide, because the C API hands out plain pointers: any rank may be given one
  // that another thread allocated, and has nothing but the address to find its descriptor with.
  static DeviceMemory& instance();

  Result<void*> allocate(size_t num_bytes, Kind kind = Kind::kDevice, int device_ordinal = 0);
  // REQUIRES  a pointer that allocate() returned, not one into the middle.
  Status free(void* base);
  // Shared ownership of the allocation around an address: its mapping outlives free() until all keepers are gone. For
  // ranks that are threads of one process and use each other's memory: one may fail and free its own while another's
  // operation still runs. Null for memory that is not ours.
  std::shared_ptr<const void> keep(const void* address) const;
  // Interior pointers too; nothing for memory that is not ours.
  std::optional<Found> find(const void* address) const;

  size_t num_bytes_allocated() const;

 private:
  struct Allocation {
    Memory memory;
    Kind kind;
    int device_ordinal;
  };
  std::shared_ptr<const Allocation> find_locked(const void* address) const;

  mutable std::mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<const Allocation>, std::less<>> by_base_;  // shared with keepers
  size_t num_bytes_allocated_ = 0;
};

}  // namespace switchyard
