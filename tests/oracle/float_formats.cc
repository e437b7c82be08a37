#include "oracle/float_formats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace switchyard::oracle {
namespace {

enum class Overflow { kInfinity, kSaturate };

class Format {
 public:
  // num_finite: how many codes without the sign bit are finite numbers; they come first and ascend.
  Format(int exponent_bits, int mantissa_bits, uint32_t num_finite, Overflow overflow)
      : sign_bit_(1u << (exponent_bits + mantissa_bits)) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (uint32_t code = 0; code < num_finite; ++code) {
      const int exponent = static_cast<int>(code >> mantissa_bits);
      const int mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1));
      const int significand = exponent == 0 ? mantissa : (1 << mantissa_bits) + mantissa;
      magnitudes_.push_back(std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits));
    }
    for (uint32_t code = 0; code < sign_bit_; ++code) {
      const bool is_infinity = overflow == Overflow::kInfinity && code == num_finite;
      values_.push_back(code < num_finite ? static_cast<float>(magnitudes_[code])
                        : is_infinity     ? std::numeric_limits<float>::infinity()
                                          : std::numeric_limits<float>::quiet_NaN());
    }
    // IEEE rounds as if the exponent had no end: for the search, infinity is the power of two that would come next.
    if (overflow == Overflow::kInfinity) magnitudes_.push_back(std::ldexp(1.0, bias + 1));
  }

  float decode(uint32_t code) const {
    const float magnitude = values_.at(code & (sign_bit_ - 1));
    return (code & sign_bit_) != 0 ? -magnitude : magnitude;
  }

  uint32_t encode(float value) const {
    if (std::isnan(value)) return sign_bit_ - 1;
    return nearest(std::fabs(static_cast<double>(value))) | (std::signbit(value) ? sign_bit_ : 0);
  }

 private:
  // Doubles hold every midpoint exactly, so a tie is seen as one.
  uint32_t nearest(double magnitude) const {
    const auto above = std::lower_bound(magnitudes_.begin(), magnitudes_.end(), magnitude);
    if (above == magnitudes_.end()) return static_cast<uint32_t>(magnitudes_.size() - 1);
    const auto high_code = static_cast<uint32_t>(above - magnitudes_.begin());
    if (high_code == 0) return 0;
    const double middle = (magnitudes_[high_code - 1] + *above) / 2;
    if (magnitude != middle) return magnitude < middle ? high_code - 1 : high_code;
    return high_code % 2 == 0 ? high_code : high_code - 1;
  }

  uint32_t sign_bit_;
  std::vector<double> magnitudes_;  // by code, ascending
  std::vector<float> values_;       // by code, all codes without the sign bit
};

const Format& format_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: {
      static const Format format(5, 10, 0x7c00, Overflow::kInfinity);
      return format;
    }
    case DType::kBfloat16: {
      static const Format format(8, 7, 0x7f80, Overflow::kInfinity);
      return format;
    }
    case DType::kFloat8E4M3: {
      static const Format format(4, 3, 0x7f, Overflow::kSaturate);
      return format;
    }
    case DType::kFloat4x2: {
      static const Format format(2, 1, 8, Overflow::kSaturate);
      return format;
    }
    default: throw std::invalid_argument(std::string("the oracle does no arithmetic on ") + dtype_name(dtype));
  }
}

}  // namespace

float decode(DType dtype, uint32_t code) {
  return dtype == DType::kFloat32 ? std::bit_cast<float>(code) : format_of(dtype).decode(code);
}

uint32_t encode(DType dtype, float value) {
  return dtype == DType::kFloat32 ? std::bit_cast<uint32_t>(value) : format_of(dtype).encode(value);
}

std::vector<float> decode_row(DType dtype, std::span<const uint8_t> row) {
  const size_t element_bytes = dtype_bytes(dtype);
  std::vector<float> values(row.size() / element_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t code = 0;  // little-endian, as every machine the library runs on
    std::memcpy(&code, row.data() + i * element_bytes, element_bytes);
    values[i] = decode(dtype, code);
  }
  return values;
}

std::vector<uint8_t> encode_row(DType dtype, std::span<const float> values) {
  const size_t element_bytes = dtype_bytes(dtype);
  std::vector<uint8_t> row(values.size() * element_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t code = encode(dtype, values[i]);
    std::memcpy(row.data() + i * element_bytes, &code, element_bytes);
  }
  return row;
}

}  // namespace switchyard::oracle
