#include "oracle/quantise.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "oracle/float_formats.hpp"

namespace switchyard::oracle {
namespace {

TEST(QuantiseFp8, MapsTheLargestMagnitudeOfEachGroupToTheLargestCode) {
  std::vector<float> values(256, 0.0f);
  values[3] = -896.0f;  // group 0: scale 2
  values[4] = 2.0f;
  values[130] = 1.0f;  // group 1: scale 1/448
  const Fp8Row row = quantise_fp8(values, false);
  ASSERT_EQ(row.codes.size(), 256u);
  ASSERT_EQ(row.scales.size(), 2u);
  EXPECT_EQ(row.scales[0], 2.0f);
  EXPECT_EQ(row.scales[1], 1.0f / 448.0f);
  EXPECT_EQ(row.codes[3], 0xfe);
  EXPECT_EQ(row.codes[4], 0x38);
  EXPECT_EQ(row.codes[130], 0x7e);
  EXPECT_EQ(row.codes[0], 0x00);
}

TEST(QuantiseFp8, FloorsTheMagnitudeOfAnEmptyGroup) {
  const Fp8Row row = quantise_fp8(std::vector<float>(128, 0.0f), false);
  EXPECT_EQ(row.scales[0], 1e-4f * (1.0f / 448.0f));
  EXPECT_EQ(row.codes, std::vector<uint8_t>(128, 0));
}

TEST(QuantiseFp8, GivesAShortLastGroupItsOwnScale) {
  std::vector<float> values(136, 448.0f);
  values[135] = 896.0f;
  const Fp8Row row = quantise_fp8(values, false);
  EXPECT_EQ(row.scales, (std::vector<float>{1.0f, 2.0f}));
  EXPECT_EQ(row.codes[134], 0x76);  // 224
  EXPECT_EQ(row.codes[135], 0x7e);
}

TEST(QuantiseFp8, MultipliesByTheRoundedReciprocalOf448) {
  const float value = 1.015625f;  // here dividing by 448 gives another float
  ASSERT_NE(value / 448.0f, value * (1.0f / 448.0f));
  EXPECT_EQ(quantise_fp8(std::vector<float>{value}, false).scales[0], value * (1.0f / 448.0f));
}

TEST(QuantiseFp8, RoundsScalesUpToPowersOfTwo) {
  std::vector<float> values(384, 0.0f);
  values[0] = 448.0f;    // exactly 2^0
  values[128] = 450.0f;  // just above: 2^1
  values[256] = 1.0f;    // 1/448 lies between 2^-9 and 2^-8
  const Fp8Row row = quantise_fp8(values, true);
  EXPECT_EQ(row.scales, (std::vector<float>{1.0f, 2.0f, 0x1p-8f}));
  EXPECT_EQ(row.codes[0], 0x7e);
  EXPECT_EQ(row.codes[128], 0x76);  // 225 is nearest to 224
  EXPECT_EQ(row.codes[256], 0x78);  // 256
}

// The contract takes the exponent from the bits of amax * (1/448) and speaks of amax / 448: for every BF16 magnitude
// both give the same power of two, and so does rounding up by the mantissa.
TEST(QuantiseFp8, RoundedScalesDoNotDependOnHowTheQuotientIsFormed) {
  for (uint32_t code = encode(DType::kBfloat16, 1e-4f) + 1; code < 0x7f80; ++code) {
    const float amax = decode(DType::kBfloat16, code);
    const auto bits = std::bit_cast<uint32_t>(amax / 448.0f);
    const int exponent = static_cast<int>(bits >> 23) - 127 + ((bits & 0x7fffff) != 0 ? 1 : 0);
    ASSERT_EQ(quantise_fp8(std::vector<float>{amax}, true).scales[0], std::ldexp(1.0f, exponent)) << amax;
  }
}

TEST(EncodeNvfp4, KeepsARowOfExactValues) {
  // amax 6: g = 448, block scale = 448 * 6/6, so codes are the values themselves.
  std::vector<float> values = {6, -4, 3, 2, 1.5f, -1, 0.5f, 0, 6, 6, 6, 6, 6, 6, 6, 6};
  ASSERT_EQ(nvfp4_global_scale(values), 448.0f);
  const Nvfp4Row row = encode_nvfp4(values, 448.0f);
  EXPECT_EQ(row.block_scales, (std::vector<uint8_t>{0x7e}));
  EXPECT_EQ(row.codes, (std::vector<uint8_t>{7, 14, 5, 4, 3, 10, 1, 0, 7, 7, 7, 7, 7, 7, 7, 7}));
  std::vector<float> sums(16, 0.0f);
  accumulate_nvfp4(row, 1.0f, sums);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(sums[i], values[i], 1e-6f) << i;
}

TEST(EncodeNvfp4, ScalesEachBlockOnItsOwn) {
  std::vector<float> values(32, 0.0f);
  values[0] = 6.0f;
  values[16] = 0.75f;  // an eighth: block scale 56, code still the largest
  values[17] = 0.375f;
  const Nvfp4Row row = encode_nvfp4(values, 448.0f);
  EXPECT_EQ(row.block_scales, (std::vector<uint8_t>{0x7e, 0x66}));
  EXPECT_EQ(row.codes[16], 7);
  EXPECT_EQ(row.codes[17], 5);
  std::vector<float> sums(32, 100.0f);
  accumulate_nvfp4(row, 2.0f, sums);
  EXPECT_NEAR(sums[0], 112.0f, 1e-4f);
  EXPECT_NEAR(sums[17], 100.75f, 1e-4f);
  EXPECT_EQ(sums[1], 100.0f);
}

TEST(EncodeNvfp4, YieldsZerosForARowOfZeros) {
  const std::vector<float> values(16, 0.0f);
  ASSERT_EQ(nvfp4_global_scale(values), 0.0f);
  const Nvfp4Row row = encode_nvfp4(values, 0.0f);
  EXPECT_EQ(row.block_scales, std::vector<uint8_t>{0});
  EXPECT_EQ(row.codes, std::vector<uint8_t>(16, 0));
  std::vector<float> sums(16, 3.0f);
  accumulate_nvfp4(row, 1.0f, sums);  // 1/g is infinite and counts as 1
  EXPECT_EQ(sums, std::vector<float>(16, 3.0f));
}

TEST(EncodeNvfp4, ABlockTooSmallForItsScaleDecodesToNothing) {
  std::vector<float> values(32, 0.0f);
  values[0] = 6.0f;
  values[16] = 1e-6f;  // the block scale rounds to 0, the unrounded one is not 0: the quotient is infinite
  const Nvfp4Row row = encode_nvfp4(values, 448.0f);
  EXPECT_EQ(row.block_scales[1], 0);
  EXPECT_EQ(row.codes[16], 7);
  std::vector<float> sums(32, 0.0f);
  accumulate_nvfp4(row, 1.0f, sums);
  EXPECT_EQ(sums[16], 0.0f);
}

TEST(EncodeNvfp4, FlushesASubnormalArgumentOfTheReciprocalToZero) {
  // g = 2^120 and a block maximum of 6 * 2^-127 give a block scale of 2^-7, whose share of g is 2^-127: subnormal.
  const Nvfp4Row row = encode_nvfp4(std::vector<float>{0x1.8p-125f, 0x1p-126f}, 0x1p120f);
  EXPECT_EQ(row.block_scales[0], 0x04);
  EXPECT_EQ(row.codes[1], 7);  // times 1/0; unflushed it would be 2
}

TEST(EncodeNvfp4, FlushesASubnormalReciprocalToZero) {
  const float global_scale = 0x1.8p127f;  // its reciprocal is subnormal
  const Nvfp4Row row = encode_nvfp4(std::vector<float>{1.0f, 0.0f}, global_scale);
  EXPECT_EQ(row.block_scales[0], 0x7e);
  EXPECT_EQ(row.codes[1], 7);  // 0 * (1/0) is NaN, which FP4 writes as its largest value; unflushed it would be 0
}

TEST(AccumulateNvfp4, FusesTheMultiplicationWithTheAddition) {
  // Code 3 is 1.5; 1.5 * w does not fit FP32, so that a rounded product would cancel to exactly 0.
  Nvfp4Row row;
  row.codes = {3};
  row.block_scales = {0x38};  // 1
  row.global_scale = 1.0f;
  const float weight = std::nextafter(1.0f, 2.0f);
  std::vector<float> sums = {-(1.5f * weight)};
  accumulate_nvfp4(row, weight, sums);
  EXPECT_NE(sums[0], 0.0f);
  EXPECT_EQ(static_cast<double>(sums[0]), 1.5 * static_cast<double>(weight) - static_cast<double>(1.5f * weight));
}

}  // namespace
}  // namespace switchyard::oracle
