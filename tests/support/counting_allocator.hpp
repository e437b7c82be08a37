// A caller's allocator that hands out dirty memory and knows what it gave away.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/checked.hpp"
#include "switchyard/ep/config.hpp"

namespace switchyard::testing {

class CountingAllocator {
 public:
  // REQUIRES  that this lives as long as the group that gets it.
  ep::AllocConfig config() { return {&allocate, &free, this}; }
  int num_allocated() const { return num_allocated_; }
  int num_live() const { return num_live_; }

 private:
  static int allocate(void** memory, size_t num_bytes, void* context) {
    *memory = aligned_alloc(64, round_up(std::max<size_t>(num_bytes, 1), 64));
    std::memset(*memory, 0xcd, num_bytes);
    auto* const self = static_cast<CountingAllocator*>(context);
    ++self->num_allocated_;
    ++self->num_live_;
    return 0;
  }
  static int free(void* memory, void* context) {
    ::free(memory);
    --static_cast<CountingAllocator*>(context)->num_live_;
    return 0;
  }

  int num_allocated_ = 0;
  int num_live_ = 0;
};

}  // namespace switchyard::testing
