// Random contents, the same for the same seed everywhere (std::mt19937_64 alone; the standard fixes its output, unlike
// the distributions').
//
// THREADS    a Random belongs to one thread.
// OWNERSHIP  results are values.
// ERRORS     none.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "switchyard/dtype.hpp"

namespace switchyard::oracle {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t bits() { return engine_(); }
  // The remainder's bias is of no consequence here.
  int below(int bound) { return static_cast<int>(engine_() % static_cast<uint64_t>(bound)); }
  bool one_in(int chances) { return below(chances) == 0; }
  float unit() { return static_cast<float>(engine_() >> 40) * 0x1p-24f; }  // [0, 1)

 private:
  std::mt19937_64 engine_;
};

std::vector<uint8_t> random_bytes(Random& random, size_t num_bytes);

// Finite numbers, mostly of magnitude 2^-8..2^8, with groups of zeros and of denormals and now and then a large one
// among them; sums of 64 such rows, weighted, stay inside FP32.
std::vector<uint8_t> random_row(Random& random, DType dtype, size_t num_elements);

// Of either sign, 0 and 1 among them.
float random_weight(Random& random);

}  // namespace switchyard::oracle
