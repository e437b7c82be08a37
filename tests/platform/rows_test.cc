// Row operations must give the bits of the scalar functions on every instruction set, for every size and alignment, and
// touch nothing beside their rows.
#include "platform/host/rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "platform/rows_targets.hpp"
#include "switchyard/numeric.hpp"

namespace switchyard {
namespace {

constexpr size_t kMargin = 128;

// A row at a given distance from a line's begin, guard bytes on both sides.
class GuardedRow {
 public:
  // Sources and destinations have different guards, or copying one over the other would go unnoticed.
  static constexpr uint8_t kSource = 0x5a, kDestination = 0xa5;
  GuardedRow(size_t bytes, size_t misalignment, uint8_t guard = kDestination)
      : bytes_(bytes), guard_(guard), memory_(bytes + 2 * kMargin + misalignment + 64, guard) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data() + kMargin);
    begin_ = kMargin + size_t(-address % 64) + misalignment;
  }
  uint8_t* data() { return memory_.data() + begin_; }
  std::vector<uint8_t> content() { return {data(), data() + bytes_}; }
  bool guards_intact() const {
    for (size_t i = 0; i < memory_.size(); ++i)
      if ((i < begin_ || i >= begin_ + bytes_) && memory_[i] != guard_) return false;
    return true;
  }

 private:
  size_t bytes_, begin_;
  uint8_t guard_;
  std::vector<uint8_t> memory_;
};

std::vector<uint8_t> random_bytes(size_t bytes, std::mt19937& random) {
  std::vector<uint8_t> result(bytes);
  for (auto& byte : result) byte = uint8_t(random());
  return result;
}

void expect_push_copies(size_t bytes, const std::vector<size_t>& misalignments, size_t src_misalignment) {
  std::mt19937 random(uint32_t(bytes + 1));
  const std::vector<uint8_t> content = random_bytes(bytes, random);
  GuardedRow src(bytes, src_misalignment, GuardedRow::kSource);
  std::copy(content.begin(), content.end(), src.data());
  std::vector<GuardedRow> rows;
  for (const size_t misalignment : misalignments) rows.emplace_back(bytes, misalignment);
  std::vector<void*> dsts;
  for (auto& row : rows) dsts.push_back(row.data());
  rows::push(src.data(), dsts.data(), int(dsts.size()), bytes);
  rows::drain();
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].content(), content) << bytes << " bytes at " << misalignments[i];
    ASSERT_TRUE(rows[i].guards_intact()) << bytes << " bytes at " << misalignments[i];
  }
  ASSERT_EQ(src.content(), content);
}

TEST(Push, CopiesRowsOfEverySizeToEveryDestination) {
  on_every_target([] {
    for (size_t bytes = 0; bytes <= 700; ++bytes) {
      expect_push_copies(bytes, {}, 0);
      expect_push_copies(bytes, {0}, 0);
      expect_push_copies(bytes, {16, 0, 48, 1, 63}, bytes % 64);
    }
    expect_push_copies(14336, {0, 16, 32, 48, 0, 5, 0, 0}, 16);
  });
}

TEST(Push, CopiesToEveryAlignment) {
  on_every_target([] {
    for (size_t misalignment = 0; misalignment < 64; ++misalignment)
      for (const size_t bytes : {15u, 64u, 300u, 1024u}) expect_push_copies(bytes, {misalignment}, misalignment / 2);
  });
}

TEST(Copy, CopiesAndLeavesTheRestAlone) {
  std::mt19937 random(1);
  for (const size_t bytes : {0u, 1u, 100u, 14336u}) {
    const std::vector<uint8_t> content = random_bytes(bytes, random);
    GuardedRow plain(bytes, 3), streamed(bytes, 16);
    rows::copy(plain.data(), content.data(), bytes);
    rows::copy_streaming(streamed.data(), content.data(), bytes);
    rows::drain();
    EXPECT_EQ(plain.content(), content);
    EXPECT_EQ(streamed.content(), content);
    EXPECT_TRUE(plain.guards_intact() && streamed.guards_intact());
  }
}

// --- reduce ---------------------------------------------------------------------------------------------------------

// Ordinary values mixed with any bit pattern at all, so that NaN, infinity, subnormals and cancellation occur.
template <DType kType>
std::vector<uint8_t> random_row(size_t num_elements, std::mt19937& random) {
  using Storage = typename Element<kType>::Storage;
  std::vector<uint8_t> row = random_bytes(num_elements * sizeof(Storage), random);
  std::normal_distribution<float> normal(0.0f, 10.0f);
  for (size_t i = 0; i < num_elements; ++i)
    if (random() % 4 != 0) store_as<kType>(row.data(), i, normal(random));
  return row;
}

template <DType kType>
std::vector<uint8_t> expected_sum(const std::vector<const void*>& srcs, const float* weights, size_t num_elements) {
  std::vector<uint8_t> row(num_elements * sizeof(typename Element<kType>::Storage));
  for (size_t i = 0; i < num_elements; ++i) {
    float sum = 0.0f;
    for (size_t s = 0; s < srcs.size(); ++s)
      sum = std::fma(load_as<kType>(srcs[s], i), weights != nullptr ? weights[s] : 1.0f, sum);
    store_as<kType>(row.data(), i, sum);
  }
  return row;
}

template <DType kType>
void expect_reduce_exact(size_t num_elements, size_t num_srcs, bool weighted, size_t misalignment) {
  std::mt19937 random(uint32_t(num_elements * 16 + num_srcs));
  std::vector<std::vector<uint8_t>> contents;
  std::vector<GuardedRow> src_rows;
  std::vector<const void*> srcs;
  std::vector<float> weights;
  for (size_t s = 0; s < num_srcs; ++s) {
    contents.push_back(random_row<kType>(num_elements, random));
    src_rows.emplace_back(contents[s].size(), (misalignment * (s + 1)) % 64, GuardedRow::kSource);
    std::copy(contents[s].begin(), contents[s].end(), src_rows[s].data());
    weights.push_back(std::uniform_real_distribution<float>(-1.0f, 1.0f)(random));
  }
  for (auto& row : src_rows) srcs.push_back(row.data());
  const float* weight_ptr = weighted ? weights.data() : nullptr;
  GuardedRow dst(num_elements * dtype_bytes(kType), misalignment);
  rows::reduce(kType, dst.data(), srcs.data(), weight_ptr, int(num_srcs), num_elements);
  rows::drain();
  ASSERT_EQ(dst.content(), expected_sum<kType>(srcs, weight_ptr, num_elements))
      << dtype_name(kType) << ' ' << num_elements << " elements, " << num_srcs << " sources, at " << misalignment;
  ASSERT_TRUE(dst.guards_intact()) << dtype_name(kType) << ' ' << num_elements << " elements at " << misalignment;
}

template <DType kType>
void expect_reduce_exact_for_all_sizes() {
  on_every_target([] {
    for (size_t num_elements = 0; num_elements <= 300; ++num_elements) {
      expect_reduce_exact<kType>(num_elements, num_elements % 9, true, 0);
      expect_reduce_exact<kType>(num_elements, 3, num_elements % 2 == 0, num_elements % 64);
    }
    expect_reduce_exact<kType>(7168, 8, true, 0);
    expect_reduce_exact<kType>(7168, 64, true, 16);
    expect_reduce_exact<kType>(7168, 0, true, 0);
  });
}

TEST(Reduce, Bf16IsFusedInOrderAndRoundedOnce) { expect_reduce_exact_for_all_sizes<DType::kBfloat16>(); }
TEST(Reduce, Fp16IsFusedInOrderAndRoundedOnce) { expect_reduce_exact_for_all_sizes<DType::kFloat16>(); }
TEST(Reduce, Fp32IsFusedInOrder) { expect_reduce_exact_for_all_sizes<DType::kFloat32>(); }

TEST(Reduce, MultiplyAddIsNotRoundedBetween) {
  on_every_target([] {
    // (1 + 2^-12)^2 - 1 loses its last bit if the product is rounded to a float before the addition.
    const float x = 1.0f + 0x1p-12f;
    const std::vector<float> minus_one(64, -1.0f), row(64, x);
    const void* srcs[2] = {minus_one.data(), row.data()};
    const float weights[2] = {1.0f, x};
    std::vector<float> sum(64);
    rows::reduce(DType::kFloat32, sum.data(), srcs, weights, 2, sum.size());
    for (const float value : sum) EXPECT_EQ(value, 0x1p-11f + 0x1p-24f);
  });
}

TEST(Reduce, MayWriteOverOneOfItsSources) {
  on_every_target([] {
    std::mt19937 random(9);
    for (const size_t num_elements : {5u, 64u, 777u}) {
      std::vector<uint8_t> first = random_row<DType::kBfloat16>(num_elements, random);
      const std::vector<uint8_t> second = random_row<DType::kBfloat16>(num_elements, random);
      const std::vector<const void*> srcs = {first.data(), second.data()};
      const std::vector<uint8_t> expected = expected_sum<DType::kBfloat16>(srcs, nullptr, num_elements);
      rows::reduce(DType::kBfloat16, first.data(), srcs.data(), nullptr, 2, num_elements);
      EXPECT_EQ(first, expected);
    }
  });
}

// --- conversions ----------------------------------------------------------------------------------------------------

TEST(Convert, EverySixteenBitCodeWidensAsTheScalarFunctionsDo) {
  on_every_target([] {
    std::vector<uint16_t> codes(65536 + 3);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint16_t(i);
    std::vector<float> bf16(codes.size()), fp16(codes.size());
    rows::bf16_to_fp32(codes.data(), bf16.data(), codes.size());
    rows::fp16_to_fp32(codes.data(), fp16.data(), codes.size());
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(bits_as<uint32_t>(bf16[i]), bits_as<uint32_t>(bf16_to_float(codes[i]))) << i;
      ASSERT_EQ(bits_as<uint32_t>(fp16[i]), bits_as<uint32_t>(fp16_to_float(codes[i]))) << i;
    }
  });
}

TEST(Convert, FloatsNarrowAsTheScalarFunctionsDo) {
  on_every_target([] {
    std::mt19937 random(2);
    std::vector<float> values;
    for (uint32_t code = 0; code < 65536; ++code) {
      // Each FP16 value and the middle to the next, and everything around the BF16 rounding boundary.
      for (const uint32_t low : {0u, 0x1000u, 0x0fffu, 0x1001u, 0x7fffu, 0x8000u, 0x8001u})
        values.push_back(bits_as<float>((code << 16) | low));
      values.push_back(bits_as<float>(uint32_t(random())));
      values.push_back(fp16_to_float(uint16_t(code)) * (1.0f + 0x1p-11f));
    }
    std::vector<uint16_t> bf16(values.size()), fp16(values.size());
    rows::fp32_to_bf16(values.data(), bf16.data(), values.size());
    rows::fp32_to_fp16(values.data(), fp16.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(bf16[i], float_to_bf16(values[i])) << values[i];
      ASSERT_EQ(fp16[i], float_to_fp16(values[i])) << values[i];
    }
  });
}

TEST(Convert, SizesThatAreNoMultipleOfAVectorLeaveTheRestAlone) {
  on_every_target([] {
    for (size_t num_elements = 0; num_elements < 70; ++num_elements) {
      const std::vector<float> values(num_elements, 1.5f);
      std::vector<uint16_t> codes(num_elements + 64, 0xa5a5);
      rows::fp32_to_bf16(values.data(), codes.data(), num_elements);
      for (size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(codes[i], i < num_elements ? 0x3fc0 : 0xa5a5);
      rows::fp32_to_fp16(values.data(), codes.data(), num_elements);
      for (size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(codes[i], i < num_elements ? 0x3e00 : 0xa5a5);
      std::vector<float> back(num_elements + 64, -1.0f);
      rows::fp16_to_fp32(codes.data(), back.data(), num_elements);
      for (size_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], i < num_elements ? 1.5f : -1.0f);
    }
  });
}

}  // namespace
}  // namespace switchyard
