// Conversions, checked against a method that shares nothing with them: decode every code from its definition in double
// precision, then search for the nearest.
#include "switchyard/numeric.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "switchyard/quantise.hpp"

namespace switchyard {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A format as its specification's table gives it.
struct Spec {
  const char* name;
  int exp_bits, man_bits, bias;
  bool has_inf;       // all-ones exponent: infinity and NaNs
  bool has_only_nan;  // E4M3: the all-ones code alone is NaN
  bool saturates;
  uint32_t nan_code;  // what NaN converts to
};
constexpr Spec kBf16Spec{"bf16", 8, 7, 127, true, false, false, 0x7fff};
constexpr Spec kFp16Spec{"fp16", 5, 10, 15, true, false, false, 0x7fff};
constexpr Spec kE4m3Spec{"e4m3", 4, 3, 7, false, true, true, 0x7f};
constexpr Spec kE5m2Spec{"e5m2", 5, 2, 15, true, false, true, 0x7f};
constexpr Spec kE2m1Spec{"e2m1", 2, 1, 1, false, false, true, 0x7};

uint32_t num_magnitudes(const Spec& spec) { return 1u << (spec.exp_bits + spec.man_bits); }

// The value of a code without its sign, by the definition of a binary format.
double spec_value(const Spec& spec, uint32_t magnitude) {
  const uint32_t exponent = magnitude >> spec.man_bits;
  const uint32_t mantissa = magnitude & ((1u << spec.man_bits) - 1);
  const bool all_ones = exponent == (1u << spec.exp_bits) - 1;
  if (spec.has_inf && all_ones) return mantissa == 0 ? kInfinity : std::nan("");
  if (spec.has_only_nan && magnitude == num_magnitudes(spec) - 1) return std::nan("");
  const double fraction = mantissa / std::ldexp(1.0, spec.man_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - spec.bias) : std::ldexp(1 + fraction, int(exponent) - spec.bias);
}

// The finite magnitudes in order, which is the order of their codes.
std::vector<double> finite_values(const Spec& spec) {
  std::vector<double> values;
  for (uint32_t code = 0; code < num_magnitudes(spec); ++code)
    if (const double value = spec_value(spec, code); std::isfinite(value)) values.push_back(value);
  return values;
}

// Nearest code, ties to the even code; beyond the largest one the format's rule decides.
uint32_t nearest_code(const Spec& spec, const std::vector<double>& values, float x) {
  if (std::isnan(x)) return spec.nan_code;
  const uint32_t sign = std::signbit(x) ? num_magnitudes(spec) : 0;
  const double magnitude = std::fabs(double(x));
  const uint32_t above = uint32_t(std::lower_bound(values.begin(), values.end(), magnitude) - values.begin());
  const uint32_t largest = uint32_t(values.size()) - 1;
  if (above > largest) {
    if (spec.saturates) return sign | largest;
    // The next value the format would have were its exponent unbounded: from half way there on it is infinity.
    const double next = values[largest] + (values[largest] - values[largest - 1]);
    return sign | (magnitude >= (values[largest] + next) / 2 ? largest + 1 : largest);
  }
  if (values[above] == magnitude) return sign | above;
  const double middle = (values[above - 1] + values[above]) / 2;
  if (magnitude == middle) return sign | (above % 2 == 0 ? above : above - 1);
  return sign | (magnitude > middle ? above : above - 1);
}

// Every value of the format, every middle between two, and the floats right beside them; then random bit patterns.
std::vector<float> interesting_floats(const std::vector<double>& values) {
  std::vector<float> floats = {INFINITY, -INFINITY, NAN, -NAN, bits_as<float>(0x7f800001u), bits_as<float>(0xff812345u),
                               std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max(), 0.0f, -0.0f};
  const auto add = [&floats](double value) {
    const float x = float(value);
    for (const float y : {x, std::nextafter(x, INFINITY), std::nextafter(x, -INFINITY)}) {
      floats.push_back(y);
      floats.push_back(-y);
    }
  };
  for (size_t i = 0; i < values.size(); ++i) {
    add(values[i]);
    if (i > 0) add((values[i - 1] + values[i]) / 2);
  }
  add(values.back() + (values.back() - values[values.size() - 2]) / 2);
  std::mt19937 random(7);
  for (int i = 0; i < 300'000; ++i) floats.push_back(bits_as<float>(uint32_t(random())));
  for (int i = 0; i < 300'000; ++i)
    floats.push_back(float(values.back() * std::uniform_real_distribution<double>(-1.2, 1.2)(random)));
  return floats;
}

template <class Encode, class Decode>
void check_format(const Spec& spec, Encode encode, Decode decode) {
  const std::vector<double> values = finite_values(spec);
  for (uint32_t code = 0; code < 2 * num_magnitudes(spec); ++code) {
    const double magnitude = spec_value(spec, code % num_magnitudes(spec));
    const double expected = code >= num_magnitudes(spec) ? -magnitude : magnitude;
    const float decoded = decode(code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(decoded)) << spec.name << " code " << code;
      EXPECT_EQ(encode(decoded), spec.nan_code) << spec.name << " code " << code;
      continue;
    }
    EXPECT_EQ(double(decoded), expected) << spec.name << " code " << code;
    EXPECT_EQ(std::signbit(decoded), code >= num_magnitudes(spec)) << spec.name << " code " << code;
    const bool saturated = spec.saturates && std::isinf(expected);
    EXPECT_EQ(encode(decoded), saturated ? code - 1 : code) << spec.name;
  }
  for (const float x : interesting_floats(values))
    ASSERT_EQ(encode(x), nearest_code(spec, values, x))
        << spec.name << " of " << x << " bits " << std::hex << bits_as<uint32_t>(x);
}

TEST(Numeric, Bf16RoundsToTheNearestCode) {
  check_format(kBf16Spec, [](float x) { return uint32_t(float_to_bf16(x)); },
               [](uint32_t code) { return bf16_to_float(uint16_t(code)); });
}

TEST(Numeric, Fp16RoundsToTheNearestCodeAndOverflowsToInfinity) {
  check_format(kFp16Spec, [](float x) { return uint32_t(float_to_fp16(x)); },
               [](uint32_t code) { return fp16_to_float(uint16_t(code)); });
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
}

TEST(Numeric, E4m3RoundsToTheNearestCodeAndSaturates) {
  check_format(kE4m3Spec, [](float x) { return uint32_t(float_to_e4m3(x)); },
               [](uint32_t code) { return e4m3_to_float(uint8_t(code)); });
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(float_to_e4m3(INFINITY), 0x7e);
}

TEST(Numeric, E5m2RoundsToTheNearestCodeAndSaturates) {
  check_format(kE5m2Spec, [](float x) { return uint32_t(float_to_e5m2(x)); },
               [](uint32_t code) { return e5m2_to_float(uint8_t(code)); });
  EXPECT_EQ(e5m2_to_float(0x7b), 57344.0f);
  EXPECT_EQ(float_to_e5m2(-INFINITY), 0xfb);
}

TEST(Numeric, E2m1RoundsToTheNearestCodeAndSaturates) {
  check_format(kE2m1Spec, [](float x) { return uint32_t(float_to_e2m1(x)); },
               [](uint32_t code) { return e2m1_to_float(uint8_t(code)); });
  const std::vector<double> expected = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  EXPECT_EQ(finite_values(kE2m1Spec), expected);
}

TEST(Numeric, StoredFp32NansAreAllTheSame) {
  float stored[2] = {};
  store_as<DType::kFloat32>(stored, 1, -NAN);
  EXPECT_EQ(bits_as<uint32_t>(stored[1]), kFloatNan);
  EXPECT_EQ(stored[0], 0.0f);
}

// --- recipes --------------------------------------------------------------------------------------------------------

TEST(Fp8Recipe, ScaleMapsTheGreatestMagnitudeTo448) {
  const Fp8Scale scale = fp8_scale(7.0f, false);
  EXPECT_EQ(scale.quantise, 64.0f);
  EXPECT_EQ(scale.dequantise, 7.0f * (1.0f / 448.0f));
}

TEST(Fp8Recipe, RoundedScaleIsThePowerOfTwoNotBelowTheExactOne) {
  for (uint32_t code = float_to_bf16(kFp8SmallestAmax) + 1; code < 0x7f80; ++code) {
    const float amax = bf16_to_float(uint16_t(code));
    const double exact = double(amax) / 448.0;
    const Fp8Scale scale = fp8_scale(amax, true);
    ASSERT_EQ(double(scale.dequantise), std::exp2(std::ceil(std::log2(exact)))) << amax;
    ASSERT_EQ(scale.quantise * scale.dequantise, 1.0f) << amax;
  }
}

TEST(Fp8Recipe, RowsComeBackWithinTheFormatsPrecision) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (const size_t num_elements : {1u, 127u, 128u, 129u, 300u}) {
    for (const bool round_scales : {false, true}) {
      std::vector<uint16_t> row(num_elements);
      for (auto& x : row) x = float_to_bf16(normal(random));
      std::vector<uint8_t> codes(num_elements);
      std::vector<float> scales(num_fp8_scales(num_elements), -1.0f);
      quantise_fp8_row(row.data(), codes.data(), scales.data(), num_elements, round_scales);
      for (size_t i = 0; i < num_elements; ++i) {
        const float x = bf16_to_float(row[i]);
        const float scale = scales[i / kFp8Group];
        ASSERT_GT(scale, 0.0f);
        // Half a unit of three mantissa bits, or half the smallest subnormal.
        ASSERT_NEAR(e4m3_to_float(codes[i]) * scale, x, std::fabs(x) / 16 * 1.0001f + scale / 1024) << i;
      }
    }
  }
}

TEST(Fp8Recipe, ZerosInfinitiesAndNansHaveDefinedResults) {
  const uint16_t row[4] = {float_to_bf16(1.0f), kBf16Nan, float_to_bf16(-INFINITY), 0x8000};
  uint8_t codes[4];
  float scale;
  for (const bool round_scales : {false, true}) {
    quantise_fp8_row(row, codes, &scale, 2, round_scales);
    EXPECT_EQ(codes[1], 0x7f);
    EXPECT_TRUE(std::isfinite(scale)) << "NaN must not reach the scale";
    quantise_fp8_row(row, codes, &scale, 4, round_scales);
    EXPECT_EQ(scale, INFINITY);
    EXPECT_EQ(codes[0], 0x00);
    EXPECT_EQ(codes[2], 0x7f) << "infinity times zero";
    EXPECT_EQ(codes[3], 0x80);
  }
}

TEST(Nvfp4Recipe, PacketHasTheSizeOfTheContract) {
  EXPECT_EQ((Nvfp4Layout{7168}.packet_bytes()), 3584u + 448u + 16u);
  EXPECT_EQ((Nvfp4Layout{512}.packet_bytes()), 304u);
}

TEST(Nvfp4Recipe, ReciprocalFlushesSubnormals) {
  EXPECT_EQ(reciprocal_ftz(4.0f), 0.25f);
  EXPECT_EQ(reciprocal_ftz(0.0f), INFINITY);
  EXPECT_EQ(reciprocal_ftz(-0.0f), -INFINITY);
  EXPECT_EQ(reciprocal_ftz(std::numeric_limits<float>::denorm_min()), INFINITY);
  EXPECT_EQ(bits_as<uint32_t>(reciprocal_ftz(-std::numeric_limits<float>::max())), 0x80000000u);
  EXPECT_TRUE(std::isnan(reciprocal_ftz(NAN)));
}

TEST(Nvfp4Recipe, RowsComeBackWithinTheFormatsPrecision) {
  constexpr size_t kNumElements = 512;
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<uint16_t> row(kNumElements);
  for (auto& x : row) x = float_to_bf16(normal(random));
  const float row_scale = 2688.0f / greatest_magnitude(row.data(), kNumElements, 0.0f);
  const Nvfp4Layout layout{kNumElements};
  std::vector<uint8_t> packet(layout.packet_bytes(), 0xee);
  encode_nvfp4_row(row.data(), row_scale, packet.data(), kNumElements);
  for (size_t i = 0; i < kNumElements; ++i) {
    const float amax = greatest_magnitude(&row[i / 16 * 16], 16, 0.0f);
    const float decoded = add_nvfp4_element(layout, packet.data(), i, 1.0f, 0.0f);
    // The widest gap between FP4 values is 2 of 6, the block scale itself is right to one part in 16.
    ASSERT_NEAR(decoded, bf16_to_float(row[i]), amax * (1.0f / 6 + 1.0f / 16)) << i;
  }
  for (size_t i = layout.row_scale_offset() + 4; i < packet.size(); ++i) EXPECT_EQ(packet[i], 0) << "padding";
}

TEST(Nvfp4Recipe, RowOfZerosComesBackAsZeros) {
  const std::vector<uint16_t> row(32, 0);
  const Nvfp4Layout layout{32};
  std::vector<uint8_t> packet(layout.packet_bytes(), 0xee);
  encode_nvfp4_row(row.data(), 0.0f, packet.data(), 32);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(add_nvfp4_element(layout, packet.data(), i, 3.0f, 0.0f), 0.0f);
}

TEST(Nvfp4Recipe, EvenElementLiesInTheLowNibble) {
  std::vector<uint16_t> row(16, 0);
  row[0] = float_to_bf16(6.0f);
  row[1] = float_to_bf16(-3.0f);
  uint8_t packet[16];
  // 2688 / 6 = 448, so that the block scale is 448 and one unit of FP4 is worth one.
  encode_nvfp4_row(row.data(), 448.0f, packet, 16);
  EXPECT_EQ(packet[0], 0x7 | (0xd << 4));
  EXPECT_EQ(packet[8], float_to_e4m3(448.0f));
}

}  // namespace
}  // namespace switchyard
