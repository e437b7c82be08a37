#include "platform/host/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/checked.hpp"
#include "base/retry.hpp"

namespace switchyard {

namespace {

size_t mapped_bytes(size_t num_bytes) { return round_up(num_bytes, size_t(sysconf(_SC_PAGESIZE))); }

}  // namespace

Result<Memory> Memory::create(size_t num_bytes) {
  if (num_bytes == 0 || num_bytes > kMaxBytes) {
    return Status::invalid_argument(text("memory: ", num_bytes, " bytes asked for, allowed 1..", kMaxBytes));
  }
  Fd fd(memfd_create("switchyard", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return Status::system_error("memory: memfd_create failed (each allocation holds a descriptor; see ulimit -n)");
  }
  const size_t length = mapped_bytes(num_bytes);
  if (retry_interrupted([&] { return ftruncate(fd.get(), off_t(length)); }) != 0) {
    return Status::system_error(text("memory: cannot make ", length, " bytes"));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::system_error("memory: cannot seal the size of an allocation");
  }
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (data == MAP_FAILED) return Status::system_error(text("memory: cannot map ", length, " bytes"));
  return Memory(std::move(fd), static_cast<std::byte*>(data), num_bytes);
}

Memory::Memory(Memory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, mapped_bytes(num_bytes_));
}

DeviceMemory& DeviceMemory::instance() {
  // Never destroyed: workers of streams nobody destroyed still use device memory while the process exits.
  static DeviceMemory& registry = *new DeviceMemory;
  return registry;
}

Result<void*> DeviceMemory::allocate(size_t num_bytes, Kind kind, int device_ordinal) {
  SWITCHYARD_ASSIGN(Memory memory, Memory::create(num_bytes));
  std::byte* const base = memory.data();
  const std::lock_guard lock(mutex_);
  by_base_.emplace(base, std::make_shared<const Allocation>(Allocation{std::move(memory), kind, device_ordinal}));
  num_bytes_allocated_ += num_bytes;
  return static_cast<void*>(base);
}

Status DeviceMemory::free(void* base) {
  // Unmapping is left to after the lock: it takes long for large allocations.
  decltype(by_base_)::node_type freed;
  {
    const std::lock_guard lock(mutex_);
    freed = by_base_.extract(static_cast<const std::byte*>(base));
    if (!freed.empty()) num_bytes_allocated_ -= freed.mapped()->memory.size();
  }
  if (freed.empty()) {
    return Status::invalid_argument(text("free: ", base, " is not the start of a device allocation of this process"));
  }
  return {};
}

std::shared_ptr<const DeviceMemory::Allocation> DeviceMemory::find_locked(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  auto after = by_base_.upper_bound(byte);
  if (after == by_base_.begin()) return nullptr;
  const auto& allocation = std::prev(after)->second;
  return size_t(byte - allocation->memory.data()) < allocation->memory.size() ? allocation : nullptr;
}

std::shared_ptr<const void> DeviceMemory::keep(const void* address) const {
  const std::lock_guard lock(mutex_);
  return find_locked(address);
}

std::optional<DeviceMemory::Found> DeviceMemory::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto allocation = find_locked(address);
  if (allocation == nullptr) return std::nullopt;
  const Memory& memory = allocation->memory;
  return Found{memory.data(), memory.size(), memory.fd(), allocation->kind, allocation->device_ordinal};
}

size_t DeviceMemory::num_bytes_allocated() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_allocated_;
}

}  // namespace switchyard
