#include "oracle/quantise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/float_formats.hpp"

namespace switchyard::oracle {
namespace {

constexpr float kFp8Max = 448.0f;
constexpr float kFp8MinAmax = 1e-4f;
constexpr float kNvfp4RowMax = 2688.0f;  // 6 (largest FP4) * 448 (largest E4M3)

float max_magnitude(std::span<const float> values) {
  float amax = 0;
  for (float value : values) amax = std::fmax(amax, std::fabs(value));
  return amax;
}

// Smallest e with 2^e >= value; value is positive.
int log2_rounded_up(float value) {
  const int exponent = std::ilogb(value);
  return std::ldexp(1.0f, exponent) < value ? exponent + 1 : exponent;
}

float flush_subnormal(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}

// Stands in for the GPU's approximate reciprocal, which flushes subnormal arguments and results to zero; the division
// here is exact.
float reciprocal(float value) { return flush_subnormal(1.0f / flush_subnormal(value)); }

std::span<const float> group(std::span<const float> values, size_t first, size_t max_elements) {
  return values.subspan(first, std::min(max_elements, values.size() - first));
}

}  // namespace

Fp8Row quantise_fp8(std::span<const float> values, bool round_scales) {
  Fp8Row row;
  for (size_t first = 0; first < values.size(); first += kFp8GroupElements) {
    const auto elements = group(values, first, kFp8GroupElements);
    const float amax = std::fmax(kFp8MinAmax, max_magnitude(elements));
    float scale = kFp8Max / amax;
    float scale_inv = amax * (1.0f / kFp8Max);
    if (round_scales) {
      const int exponent = log2_rounded_up(scale_inv);
      scale = std::ldexp(1.0f, -exponent);
      scale_inv = std::ldexp(1.0f, exponent);
    }
    row.scales.push_back(scale_inv);
    for (float value : elements) {
      row.codes.push_back(static_cast<uint8_t>(encode(DType::kFloat8E4M3, value * scale)));
    }
  }
  return row;
}

float nvfp4_global_scale(std::span<const float> values) {
  const float scale = kNvfp4RowMax / max_magnitude(values);
  return std::isfinite(scale) ? scale : 0.0f;
}

Nvfp4Row encode_nvfp4(std::span<const float> values, float global_scale) {
  Nvfp4Row row;
  row.global_scale = global_scale;
  for (size_t first = 0; first < values.size(); first += kNvfp4BlockElements) {
    const auto elements = group(values, first, kNvfp4BlockElements);
    const float exact_scale = global_scale * (max_magnitude(elements) * reciprocal(6.0f));
    const uint32_t scale_code = encode(DType::kFloat8E4M3, exact_scale);
    const float stored_scale = decode(DType::kFloat8E4M3, scale_code);
    const float inverse = exact_scale == 0 ? 0.0f : reciprocal(stored_scale * reciprocal(global_scale));
    row.block_scales.push_back(static_cast<uint8_t>(scale_code));
    for (float value : elements) {
      row.codes.push_back(static_cast<uint8_t>(encode(DType::kFloat4x2, value * inverse)));
    }
  }
  return row;
}

void accumulate_nvfp4(const Nvfp4Row& row, float weight, std::span<float> accumulators) {
  const float global_inverse = 1.0f / row.global_scale;
  const float undo_global = std::isinf(global_inverse) ? 1.0f : global_inverse;
  for (size_t i = 0; i < accumulators.size(); ++i) {
    const float block_scale = decode(DType::kFloat8E4M3, row.block_scales[i / kNvfp4BlockElements]);
    const float scale = block_scale * undo_global * weight;
    accumulators[i] = std::fmaf(decode(DType::kFloat4x2, row.codes[i]), scale, accumulators[i]);
  }
}

}  // namespace switchyard::oracle
