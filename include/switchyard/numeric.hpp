// Conversions between float and the narrow element types, the same bits on CPUs and GPUs.
//
// All rounding is to nearest, ties to even, done in integers, so that neither the rounding mode, nor flush-to-zero,
// nor a compiler's taste for fast conversions can change a bit. Every NaN becomes the one NaN that NVIDIA's conversion
// instructions give (0x7fff, 0x7f, or 6.0 where the type has none): arithmetic leaves sign and payload of a NaN to the
// processor, and results would otherwise differ between machines.
//
// THREADS    pure functions.
// OWNERSHIP  codes are plain integers; load_as() and store_as() touch the one element they are given.
// ERRORS     none: every bit pattern has a defined result.
#pragma once
#include <cstddef>
#include <cstdint>

#include "switchyard/dtype.hpp"
#include "switchyard/platform/hd.hpp"

namespace switchyard {

// A binary format of at most 16 bits. kMax is the largest finite code, kOverflow what greater values turn into,
// kFirstSpecial the first code that is no finite number, kNan what NaN turns into.
struct Fp16 {
  static constexpr int kManBits = 10, kBias = 15, kSignBit = 15;
  static constexpr uint32_t kMax = 0x7bff, kOverflow = 0x7c00, kFirstSpecial = 0x7c00, kInf = 0x7c00, kNan = 0x7fff;
};
// OCP FP8 E4M3 ("FN"): no infinity, largest value 448. Conversion saturates.
struct E4m3 {
  static constexpr int kManBits = 3, kBias = 7, kSignBit = 7;
  static constexpr uint32_t kMax = 0x7e, kOverflow = 0x7e, kFirstSpecial = 0x7f, kInf = 0x100, kNan = 0x7f;
};
// OCP FP8 E5M2: has an infinity, but conversion saturates at 57344, infinities included.
struct E5m2 {
  static constexpr int kManBits = 2, kBias = 15, kSignBit = 7;
  static constexpr uint32_t kMax = 0x7b, kOverflow = 0x7b, kFirstSpecial = 0x7c, kInf = 0x7c, kNan = 0x7f;
};
// OCP FP4 E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; neither infinity nor NaN.
struct E2m1 {
  static constexpr int kManBits = 1, kBias = 1, kSignBit = 3;
  static constexpr uint32_t kMax = 0x7, kOverflow = 0x7, kFirstSpecial = 0x8, kInf = 0x8, kNan = 0x7;
};

constexpr uint32_t kFloatInf = 0x7f800000u;
constexpr uint32_t kFloatNan = 0x7fffffffu;
constexpr uint16_t kBf16Nan = 0x7fff;

// value / 2^shift to the nearest integer, ties to even. REQUIRES 1 <= shift <= 31 and no carry out of 32 bits.
SWITCHYARD_HD uint32_t shift_right_nearest(uint32_t value, int shift) {
  const uint32_t odd = (value >> shift) & 1u;
  return (value + (1u << (shift - 1)) - 1u + odd) >> shift;
}

template <class Format>
SWITCHYARD_HD uint32_t encode_minifloat(float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kFloatInf) return Format::kNan;

  const int exponent = int(magnitude >> 23);
  uint32_t code;
  if (exponent > 127 - Format::kBias) {
    // Normal in both formats: move the exponent's zero; a carry out of the mantissa is the next exponent.
    code = shift_right_nearest(magnitude - (uint32_t(127 - Format::kBias) << 23), 23 - Format::kManBits);
  } else {
    // A multiple of the smallest subnormal. Shifts above 24 leave less than half of it.
    const int shift = 151 - Format::kBias - Format::kManBits - exponent;
    code = shift > 24 ? 0 : shift_right_nearest((magnitude & 0x7fffffu) | 0x800000u, shift);
  }
  if (code > Format::kMax) code = Format::kOverflow;
  return code | ((bits >> 31) << Format::kSignBit);
}

template <class Format>
SWITCHYARD_HD float decode_minifloat(uint32_t code) {
  const uint32_t sign = ((code >> Format::kSignBit) & 1u) << 31;
  const uint32_t magnitude = code & ((1u << Format::kSignBit) - 1u);
  const uint32_t mantissa = magnitude & ((1u << Format::kManBits) - 1u);
  uint32_t bits;
  if (magnitude >= Format::kFirstSpecial) {
    bits = magnitude == Format::kInf ? kFloatInf : kFloatInf | 0x400000u | (mantissa << (23 - Format::kManBits));
  } else if (magnitude >> Format::kManBits) {
    bits = (magnitude << (23 - Format::kManBits)) + (uint32_t(127 - Format::kBias) << 23);
  } else {
    // Both factors and their product are normal floats or zero, so that the product is exact.
    const float smallest = bits_as<float>(uint32_t(128 - Format::kBias - Format::kManBits) << 23);
    bits = bits_as<uint32_t>(float(int(mantissa)) * smallest);
  }
  return bits_as<float>(sign | bits);
}

SWITCHYARD_HD uint16_t float_to_bf16(float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  if ((bits & 0x7fffffffu) > kFloatInf) return kBf16Nan;
  return uint16_t(shift_right_nearest(bits, 16));
}
SWITCHYARD_HD float bf16_to_float(uint16_t code) { return bits_as<float>(uint32_t(code) << 16); }

SWITCHYARD_HD uint16_t float_to_fp16(float value) { return uint16_t(encode_minifloat<Fp16>(value)); }
SWITCHYARD_HD float fp16_to_float(uint16_t code) { return decode_minifloat<Fp16>(code); }
SWITCHYARD_HD uint8_t float_to_e4m3(float value) { return uint8_t(encode_minifloat<E4m3>(value)); }
SWITCHYARD_HD float e4m3_to_float(uint8_t code) { return decode_minifloat<E4m3>(code); }
SWITCHYARD_HD uint8_t float_to_e5m2(float value) { return uint8_t(encode_minifloat<E5m2>(value)); }
SWITCHYARD_HD float e5m2_to_float(uint8_t code) { return decode_minifloat<E5m2>(code); }
// The code is in the low four bits.
SWITCHYARD_HD uint8_t float_to_e2m1(float value) { return uint8_t(encode_minifloat<E2m1>(value)); }
SWITCHYARD_HD float e2m1_to_float(uint8_t code) { return decode_minifloat<E2m1>(code & 0xfu); }

// The types that a combine can add up: how one element is stored, read and rounded.
template <DType kType>
struct Element;
template <>
struct Element<DType::kFloat32> {
  using Storage = float;
  static SWITCHYARD_HD float decode(float stored) { return stored; }
  static SWITCHYARD_HD float encode(float value) {
    return (bits_as<uint32_t>(value) & 0x7fffffffu) > kFloatInf ? bits_as<float>(kFloatNan) : value;
  }
};
template <>
struct Element<DType::kBfloat16> {
  using Storage = uint16_t;
  static SWITCHYARD_HD float decode(uint16_t stored) { return bf16_to_float(stored); }
  static SWITCHYARD_HD uint16_t encode(float value) { return float_to_bf16(value); }
};
template <>
struct Element<DType::kFloat16> {
  using Storage = uint16_t;
  static SWITCHYARD_HD float decode(uint16_t stored) { return fp16_to_float(stored); }
  static SWITCHYARD_HD uint16_t encode(float value) { return float_to_fp16(value); }
};

// Element idx of a row of kType, at any alignment.
template <DType kType>
SWITCHYARD_HD float load_as(const void* row, size_t idx) {
  typename Element<kType>::Storage stored;
  std::memcpy(&stored, static_cast<const char*>(row) + idx * sizeof(stored), sizeof(stored));
  return Element<kType>::decode(stored);
}
template <DType kType>
SWITCHYARD_HD void store_as(void* row, size_t idx, float value) {
  const typename Element<kType>::Storage stored = Element<kType>::encode(value);
  std::memcpy(static_cast<char*>(row) + idx * sizeof(stored), &stored, sizeof(stored));
}

}  // namespace switchyard
