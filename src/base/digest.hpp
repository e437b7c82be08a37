// One word that stands for several: whoever computed the same one means the same, almost certainly. No secret: keyed_hash.hpp.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "switchyard/platform/hd.hpp"

namespace switchyard {

// Mixes numbers into one; equal ones give equal words, others hardly ever.
SWITCHYARD_HD uint64_t digest(std::initializer_list<uint64_t> parts) {
  uint64_t mixed = 0;
  for (const uint64_t part : parts) mixed = (mixed ^ part) * 0x9e3779b97f4a7c15u + 1;
  return mixed;
}

}  // namespace switchyard
