// Quantisation by vectors must give the bits of the scalar recipes, which numeric_test.cc checks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "platform/host/rows.hpp"
#include "platform/rows_targets.hpp"
#include "switchyard/quantise.hpp"

namespace switchyard {
namespace {

// spread: the standard deviation of the exponents of ordinary values; odd_share: one in how many is any code at all.
std::vector<uint16_t> random_bf16(size_t num_elements, float spread, unsigned odd_share, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<uint16_t> row(num_elements);
  for (auto& code : row) {
    code = float_to_bf16(normal(random) * std::exp2(spread * normal(random)));
    if (odd_share != 0 && random() % odd_share == 0) code = uint16_t(random());
  }
  return row;
}

void expect_fp8_equal(const std::vector<uint16_t>& row, bool round_scales) {
  const size_t num_elements = row.size(), num_scales = num_fp8_scales(num_elements);
  std::vector<uint8_t> expected(num_elements + 64, 0xa5), out(expected);
  std::vector<float> expected_scales(num_scales + 4, -7.0f), scales(expected_scales);
  quantise_fp8_row(row.data(), expected.data(), expected_scales.data(), num_elements, round_scales);
  rows::quantise_fp8(row.data(), out.data(), scales.data(), num_elements, round_scales);
  ASSERT_EQ(out, expected) << num_elements << " elements";
  ASSERT_EQ(std::memcmp(scales.data(), expected_scales.data(), scales.size() * sizeof(float)), 0);
}

TEST(QuantiseFp8, EqualsTheScalarRecipe) {
  on_every_target([] {
    std::mt19937 random(11);
    for (const bool round_scales : {false, true}) {
      for (size_t num_elements = 0; num_elements <= 300; ++num_elements) {
        expect_fp8_equal(random_bf16(num_elements, 0.0f, 0, random), round_scales);
        expect_fp8_equal(random_bf16(num_elements, 6.0f, 50, random), round_scales);
      }
      for (int i = 0; i < 20; ++i) expect_fp8_equal(random_bf16(7168, 4.0f, i % 2 ? 300 : 0, random), round_scales);
      expect_fp8_equal(std::vector<uint16_t>(512, 0), round_scales);
      expect_fp8_equal(std::vector<uint16_t>(512, 0x8001), round_scales);
      expect_fp8_equal(std::vector<uint16_t>(512, 0xffff), round_scales);
    }
  });
}

// Every BF16 code meets scales of one: the vector form of the E4M3 conversion, exhaustively.
TEST(QuantiseFp8, EveryBf16CodeConvertsAsTheScalarFunctionDoes) {
  on_every_target([] {
    std::vector<uint16_t> row;
    for (uint32_t code = 0; code < 65536; ++code) {
      if (row.size() % kFp8Group == 0) row.push_back(float_to_bf16(448.0f));
      if (std::fabs(bf16_to_float(uint16_t(code))) <= 448.0f) row.push_back(uint16_t(code));
    }
    expect_fp8_equal(row, false);
    expect_fp8_equal(row, true);
  });
}

void expect_nvfp4_equal(const std::vector<uint16_t>& row, float row_scale) {
  const Nvfp4Layout layout{row.size()};
  std::vector<uint8_t> expected(layout.packet_bytes() + 32, 0xa5), packet(expected);
  encode_nvfp4_row(row.data(), row_scale, expected.data(), row.size());
  rows::encode_nvfp4(row.data(), row_scale, packet.data(), row.size());
  ASSERT_EQ(packet, expected) << row.size() << " elements, row scale " << row_scale;
}

TEST(EncodeNvfp4, EqualsTheScalarRecipe) {
  on_every_target([] {
    std::mt19937 random(12);
    for (size_t num_elements = 0; num_elements <= 320; num_elements += 16) {
      for (const unsigned odd_share : {0u, 40u}) {
        const std::vector<uint16_t> row = random_bf16(num_elements, 3.0f, odd_share, random);
        const float amax = greatest_magnitude(row.data(), num_elements, 0.0f);
        expect_nvfp4_equal(row, 2688.0f / amax);
        expect_nvfp4_equal(row, 1.0f);
        expect_nvfp4_equal(row, 0.0f);
      }
    }
    expect_nvfp4_equal(random_bf16(7168, 2.0f, 0, random), 500.0f);
  });
}

TEST(ReduceNvfp4, EqualsTheScalarRecipe) {
  on_every_target([] {
    std::mt19937 random(13);
    for (const size_t num_elements : {0u, 16u, 48u, 512u, 7168u}) {
      for (const size_t num_srcs : {0u, 1u, 3u, 8u}) {
        const Nvfp4Layout layout{num_elements};
        std::vector<std::vector<uint8_t>> packets(num_srcs, std::vector<uint8_t>(layout.packet_bytes()));
        std::vector<const void*> srcs;
        std::vector<float> weights;
        for (size_t s = 0; s < num_srcs; ++s) {
          const std::vector<uint16_t> row = random_bf16(num_elements, 1.0f, 0, random);
          const float amax = s == 2 ? 0.0f : greatest_magnitude(row.data(), num_elements, 0.0f);
          encode_nvfp4_row(row.data(), amax == 0.0f ? 0.0f : 2688.0f / amax, packets[s].data(), num_elements);
          // Any payload is a packet: this covers all 16 codes and both signs of zero.
          for (size_t i = 0; i < num_elements / 2; ++i) packets[s][i] = uint8_t(random());
          srcs.push_back(packets[s].data());
          weights.push_back(float(random() % 100) / 64.0f);
        }
        for (const bool weighted : {true, false}) {
          const float* weight_ptr = weighted ? weights.data() : nullptr;
          std::vector<uint16_t> expected(num_elements + 32, 0xa5a5), row(expected);
          for (size_t i = 0; i < num_elements; ++i) {
            float sum = 0.0f;
            for (size_t s = 0; s < num_srcs; ++s)
              sum = add_nvfp4_element(layout, packets[s].data(), i, weight_ptr ? weight_ptr[s] : 1.0f, sum);
            expected[i] = float_to_bf16(sum);
          }
          rows::reduce_nvfp4(row.data(), srcs.data(), weight_ptr, int(num_srcs), num_elements);
          ASSERT_EQ(row, expected) << num_elements << " elements, " << num_srcs << " sources";
        }
      }
    }
  });
}

}  // namespace
}  // namespace switchyard
