// Where kernels find a window by its number: a peer says which window its tensor is in, and not every rank has a tensor there.
//
// THREADS    a window enters itself before any rank can use it, and goes before its memory does. Who takes a window away sees to it
//            that no kernel uses it any more, neither a peer's nor one of this rank, whose own tensors may be elsewhere.
#pragma once
#include <cstdint>

#include "switchyard/platform/hd.hpp"

namespace switchyard {

struct WindowTable {
  static constexpr uint32_t kNumSlots = 1u << 16;  // numbers are never used twice; windows beyond are not in the table
  char* const* const* slots;                       // [kNumSlots] bases by rank; null: no such window

  static constexpr bool has_slot(uint32_t id) { return id < kNumSlots; }
  // Null: this rank has no such window. The number may be anybody's word.
  SWITCHYARD_HD char* const* find(uint32_t id) const { return id < kNumSlots ? slots[id] : nullptr; }
};

}  // namespace switchyard
