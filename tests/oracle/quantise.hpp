// The two quantisation recipes of the contract, one row at a time, in plain FP32 steps.
//
// THREADS    pure functions.
// OWNERSHIP  results are values.
// ERRORS     none; any float is accepted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace switchyard::oracle {

inline constexpr int kFp8GroupElements = 128;
inline constexpr int kNvfp4BlockElements = 16;

struct Fp8Row {
  std::vector<uint8_t> codes;  // E4M3, one an element
  std::vector<float> scales;   // one a group of 128 elements (the last may be shorter); multiply to dequantise
};

// round_scales: every scale is a power of two, rounded up.
Fp8Row quantise_fp8(std::span<const float> values, bool round_scales);

struct Nvfp4Row {
  std::vector<uint8_t> codes;         // FP4, one an element, unpacked: what a packet looks like is not observable
  std::vector<uint8_t> block_scales;  // E4M3, one a block of 16 elements
  float global_scale = 0;             // the caller's g
};

// What a caller passes for a row: 2688 / max|x|, or 0 where that is no finite number.
float nvfp4_global_scale(std::span<const float> values);

Nvfp4Row encode_nvfp4(std::span<const float> values, float global_scale);

// accumulators[i] = fma(q[i], s * (1/g) * weight, accumulators[i]): the receiver's side.
void accumulate_nvfp4(const Nvfp4Row& row, float weight, std::span<float> accumulators);

}  // namespace switchyard::oracle
