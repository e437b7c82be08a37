// A window as kernels see it: symmetric memory, addressed by offset.
#pragma once
#include <cstddef>
#include <cstdint>

#include "switchyard/platform/hd.hpp"

namespace switchyard {

struct WindowView {
  char* const* bases;  // by world rank; null where load and store don't reach
  uint64_t num_bytes;
  int32_t rank;  // mine
  uint32_t id;   // equal on all ranks; names the window to the network

  SWITCHYARD_HD char* local(size_t offset) const { return bases[rank] + offset; }
  SWITCHYARD_HD bool reaches(int world_rank) const { return bases[world_rank] != nullptr; }
  // REQUIRES  reaches(world_rank)
  SWITCHYARD_HD char* lsa(size_t offset, int world_rank) const { return bases[world_rank] + offset; }
  template <class T>
  SWITCHYARD_HD T* local_as(size_t offset) const {
    return reinterpret_cast<T*>(local(offset));
  }
  template <class T>
  SWITCHYARD_HD T* lsa_as(size_t offset, int world_rank) const {
    return reinterpret_cast<T*>(lsa(offset, world_rank));
  }
};

}  // namespace switchyard
