// operator new as one more call that fails, and that is counted: the library asks for ordinary memory in no other way.
// What its dependencies ask malloc() for is left alone: libfabric and hwloc do not take a null pointer everywhere, and
// neither is ours to mend.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "call_faults.hpp"

namespace switchyard::testing {
namespace {

std::atomic<size_t> g_num_blocks{0};

void* allocate(size_t num_bytes, size_t alignment) noexcept {
  if (fault_at(Call::kNew) != 0) return nullptr;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(num_bytes)
                           : std::aligned_alloc(alignment, (num_bytes + alignment - 1) / alignment * alignment);
  if (memory != nullptr) g_num_blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* allocate_or_throw(size_t num_bytes, size_t alignment) {
  void* const memory = allocate(num_bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give_back(void* memory) noexcept {
  if (memory != nullptr) g_num_blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

size_t num_blocks_in_use() { return g_num_blocks.load(std::memory_order_relaxed); }

}  // namespace switchyard::testing

using switchyard::testing::allocate;
using switchyard::testing::allocate_or_throw;
using switchyard::testing::give_back;

// The forms for arrays, and those with a size, call these.
void* operator new(size_t num_bytes) { return allocate_or_throw(num_bytes, 1); }
void* operator new(size_t num_bytes, std::align_val_t alignment) {
  return allocate_or_throw(num_bytes, size_t(alignment));
}
void* operator new(size_t num_bytes, const std::nothrow_t&) noexcept { return allocate(num_bytes, 1); }
void* operator new(size_t num_bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(num_bytes, size_t(alignment));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give_back(memory); }
