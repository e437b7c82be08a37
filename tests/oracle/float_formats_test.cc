#include "oracle/float_formats.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace switchyard::oracle {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(FloatFormats, Bfloat16CodesAreTheUpperHalfOfFloatCodes) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float expected = std::bit_cast<float>(code << 16);
    const float actual = decode(DType::kBfloat16, code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected)) << code;
    }
  }
}

TEST(FloatFormats, Bfloat16RoundsAsTheIntegerFormulaDoes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    auto bits = static_cast<uint32_t>(random());
    if (i % 2 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // ties
    if (std::isnan(std::bit_cast<float>(bits))) continue;
    const uint32_t expected = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    ASSERT_EQ(encode(DType::kBfloat16, std::bit_cast<float>(bits)), expected) << std::hex << bits;
  }
}

#ifdef __FLT16_MANT_DIG__
TEST(FloatFormats, Float16AgreesWithTheCompilersOwn) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1'000'000; ++i) {
    auto bits = static_cast<uint32_t>(random());
    bits = (bits & 0x8fffffffu) | (i % 4 == 0 ? 0x40000000u : 0x30000000u);  // exponents around those of FP16
    if (i % 3 == 0) bits = (bits & 0xffffe000u) | 0x1000u;                   // ties
    const float value = std::bit_cast<float>(bits);
    const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(encode(DType::kFloat16, value), expected) << value;
  }
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    ASSERT_EQ(decode(DType::kFloat16, code), static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(code))));
  }
}
#endif

TEST(FloatFormats, Float16HasTheKnownCodes) {
  EXPECT_EQ(encode(DType::kFloat16, 1.0f), 0x3c00u);
  EXPECT_EQ(encode(DType::kFloat16, -2.0f), 0xc000u);
  EXPECT_EQ(encode(DType::kFloat16, 65504.0f), 0x7bffu);
  EXPECT_EQ(encode(DType::kFloat16, 65519.0f), 0x7bffu);
  EXPECT_EQ(encode(DType::kFloat16, 65520.0f), 0x7c00u);
  EXPECT_EQ(encode(DType::kFloat16, -kInf), 0xfc00u);
  EXPECT_EQ(encode(DType::kFloat16, kNan), 0x7fffu);
  EXPECT_EQ(encode(DType::kFloat16, 0x1p-24f), 1u);
  EXPECT_EQ(encode(DType::kFloat16, 0x1p-25f), 0u);
  EXPECT_EQ(encode(DType::kFloat16, 0x1.8p-25f), 1u);
  EXPECT_EQ(decode(DType::kFloat16, 0x3555), 0x1.554p-2f);
}

TEST(FloatFormats, Float8E4M3HasTheKnownCodes) {
  EXPECT_EQ(decode(DType::kFloat8E4M3, 0x7e), 448.0f);
  EXPECT_EQ(decode(DType::kFloat8E4M3, 0x78), 256.0f);
  EXPECT_EQ(decode(DType::kFloat8E4M3, 0x38), 1.0f);
  EXPECT_EQ(decode(DType::kFloat8E4M3, 0x08), 0x1p-6f);
  EXPECT_EQ(decode(DType::kFloat8E4M3, 0x01), 0x1p-9f);
  EXPECT_EQ(decode(DType::kFloat8E4M3, 0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(decode(DType::kFloat8E4M3, 0x7f)));
}

TEST(FloatFormats, Float8E4M3RoundsToEvenAndSaturates) {
  EXPECT_EQ(encode(DType::kFloat8E4M3, 17.0f), 0x58u);  // 16 and 18 are equally near
  EXPECT_EQ(encode(DType::kFloat8E4M3, 19.0f), 0x5au);  // 18 and 20
  EXPECT_EQ(encode(DType::kFloat8E4M3, 17.001f), 0x59u);
  EXPECT_EQ(encode(DType::kFloat8E4M3, 0x1p-10f), 0x00u);
  EXPECT_EQ(encode(DType::kFloat8E4M3, 0x1.8p-10f), 0x01u);
  EXPECT_EQ(encode(DType::kFloat8E4M3, -0x1p-20f), 0x80u);
  EXPECT_EQ(encode(DType::kFloat8E4M3, 1e9f), 0x7eu);
  EXPECT_EQ(encode(DType::kFloat8E4M3, 465.0f), 0x7eu);
  EXPECT_EQ(encode(DType::kFloat8E4M3, -kInf), 0xfeu);
  EXPECT_EQ(encode(DType::kFloat8E4M3, kNan), 0x7fu);
}

TEST(FloatFormats, Float4HasItsEightMagnitudes) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 8; ++code) {
    EXPECT_EQ(decode(DType::kFloat4x2, code), magnitudes[code]);
    EXPECT_EQ(decode(DType::kFloat4x2, code + 8), -magnitudes[code]);
    EXPECT_EQ(encode(DType::kFloat4x2, -magnitudes[code]), code + 8);
  }
}

TEST(FloatFormats, Float4RoundsToEvenAndSaturates) {
  const std::pair<float, uint32_t> expected[] = {{0.25f, 0}, {0.26f, 1}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},
                                                 {2.5f, 4},  {2.51f, 5}, {3.5f, 6},  {5.0f, 6},  {5.01f, 7},
                                                 {100, 7},   {kInf, 7},  {kNan, 7},  {-0.1f, 8}, {-kInf, 15}};
  for (const auto& [value, code] : expected) EXPECT_EQ(encode(DType::kFloat4x2, value), code) << value;
}

TEST(FloatFormats, EveryNumberSurvivesARoundTrip) {
  const std::pair<DType, uint32_t> formats[] = {
      {DType::kFloat16, 1u << 16}, {DType::kBfloat16, 1u << 16}, {DType::kFloat8E4M3, 256}, {DType::kFloat4x2, 16}};
  for (const auto& [dtype, num_codes] : formats) {
    for (uint32_t code = 0; code < num_codes; ++code) {
      const float value = decode(dtype, code);
      if (!std::isnan(value)) {
        ASSERT_EQ(encode(dtype, value), code) << dtype_name(dtype);
      }
    }
  }
}

TEST(FloatFormats, RowsAreLittleEndianInMemory) {
  const std::vector<float> values = {1.0f, -2.0f};
  EXPECT_EQ(encode_row(DType::kBfloat16, values), (std::vector<uint8_t>{0x80, 0x3f, 0x00, 0xc0}));
  EXPECT_EQ(encode_row(DType::kFloat32, values), (std::vector<uint8_t>{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}));
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    EXPECT_EQ(decode_row(dtype, encode_row(dtype, values)), values);
  }
}

TEST(FloatFormats, TypesWithoutArithmeticAreRefused) { EXPECT_THROW(decode(DType::kInt32, 0), std::invalid_argument); }

}  // namespace
}  // namespace switchyard::oracle
