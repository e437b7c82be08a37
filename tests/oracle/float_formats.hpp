// The oracle's own float formats, by table search instead of bit tricks: a code is whatever value the format's
// definition gives it, and encoding picks the nearest value, of two equally near ones the even code.
//
// THREADS    pure functions; the tables behind them are built once and never change.
// OWNERSHIP  results are values.
// ERRORS     a DType that is no float of the contract throws std::invalid_argument, which fails the calling test.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "switchyard/dtype.hpp"

namespace switchyard::oracle {

// Codes sit in the low bits: 32 (kFloat32), 16 (kFloat16, kBfloat16), 8 (kFloat8E4M3) or 4 (kFloat4x2: one FP4 value).
float decode(DType dtype, uint32_t code);

// Round to nearest, ties to even. kFloat16 and kBfloat16 overflow to infinity; kFloat8E4M3 and kFloat4x2 saturate at
// their largest finite value, as the conversion instructions do with satfinite. NaN becomes the code with every bit
// below the sign set, which in FP4 is the largest value.
uint32_t encode(DType dtype, float value);

// Whole rows of kFloat32, kFloat16 or kBfloat16 elements, as they lie in memory.
std::vector<float> decode_row(DType dtype, std::span<const uint8_t> row);
std::vector<uint8_t> encode_row(DType dtype, std::span<const float> values);

}  // namespace switchyard::oracle
