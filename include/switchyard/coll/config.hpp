// What callers of collectives choose.
#pragma once
#include <cstddef>
#include <cstdint>

namespace switchyard::coll {

enum class ReduceOp : int32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

// What an all-to-all-v sends to one rank, or gets from it, in elements of the buffer.
struct Part {
  size_t offset;
  size_t num_elements;
};

}  // namespace switchyard::coll
