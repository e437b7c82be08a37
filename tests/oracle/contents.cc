#include "oracle/contents.hpp"

#include <algorithm>
#include <cstring>

#include "oracle/float_formats.hpp"

namespace switchyard::oracle {
namespace {

struct CodeLayout {
  int exponent_bits;
  int mantissa_bits;
  float large;  // sums of 64 of them, weighted, stay inside FP32
};

CodeLayout code_layout(DType dtype) {
  if (dtype == DType::kFloat32) return {8, 23, 0x1p100f};
  if (dtype == DType::kBfloat16) return {8, 7, 0x1p100f};
  return {5, 10, 65504.0f};
}

// A number of magnitude 2^-8..2^8, straight from random bits.
uint32_t ordinary_code(const CodeLayout& layout, uint32_t bits) {
  const uint32_t bias = (1u << (layout.exponent_bits - 1)) - 1;
  const uint32_t sign = bits & 1;
  const uint32_t exponent = bias - 8 + ((bits >> 1) & 15);
  const uint32_t mantissa = (bits >> 5) & ((1u << layout.mantissa_bits) - 1);
  return (((sign << layout.exponent_bits) | exponent) << layout.mantissa_bits) | mantissa;
}

uint32_t denormal_code(const CodeLayout& layout, uint32_t bits) {
  const uint32_t sign = bits & 1;
  return (sign << (layout.exponent_bits + layout.mantissa_bits)) |
         ((bits >> 1) & ((1u << layout.mantissa_bits) - 1));  // zero among them, of either sign
}

}  // namespace

std::vector<uint8_t> random_bytes(Random& random, size_t num_bytes) {
  std::vector<uint8_t> bytes(num_bytes);
  for (size_t first = 0; first < num_bytes; first += sizeof(uint64_t)) {
    const uint64_t word = random.bits();
    std::memcpy(bytes.data() + first, &word, std::min(sizeof word, num_bytes - first));
  }
  return bytes;
}

std::vector<uint8_t> random_row(Random& random, DType dtype, size_t num_elements) {
  constexpr size_t kGroup = 64;  // half a group of kDsFp8, four blocks of kNvfp4: neighbours stay ordinary
  const CodeLayout layout = code_layout(dtype);
  const size_t element_bytes = dtype_bytes(dtype);
  std::vector<uint8_t> row(num_elements * element_bytes);
  bool group_is_denormal = false;
  bool group_is_zero = false;
  for (size_t i = 0; i < num_elements; ++i) {
    if (i % kGroup == 0) {
      group_is_denormal = random.one_in(8);
      group_is_zero = random.one_in(8);
    }
    const uint64_t bits = random.bits();
    const auto low = static_cast<uint32_t>(bits);
    const bool is_denormal = group_is_denormal || (bits >> 32) % 32 == 0;
    uint32_t code = is_denormal ? denormal_code(layout, low) : ordinary_code(layout, low);
    if (group_is_zero) code = 0;
    std::memcpy(row.data() + i * element_bytes, &code, element_bytes);
  }
  if (num_elements != 0 && random.one_in(8)) {  // in few rows: beside a large value all others quantise to 0
    const float large = random.one_in(2) ? layout.large : -layout.large;
    const uint32_t code = encode(dtype, large);
    std::memcpy(row.data() + random.below(static_cast<int>(num_elements)) * element_bytes, &code, element_bytes);
  }
  return row;
}

float random_weight(Random& random) {
  switch (random.below(16)) {
    case 0: return 0.0f;
    case 1: return 1.0f;
    case 2: return -random.unit();
    default: return random.unit();
  }
}

}  // namespace switchyard::oracle
