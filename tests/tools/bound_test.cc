#include "bench/bound.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace switchyard::bench {
namespace {

constexpr size_t kGuardBytes = 128;

std::vector<std::byte> pattern(size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; i++) data[i] = std::byte(i * 131 + i / 256 + 1);
  return data;
}

class BoundMethod : public testing::TestWithParam<Method> {};

TEST_P(BoundMethod, CopiesRowsOfAnySizeAndAlignmentAndNothingBeside) {
  for (size_t bytes = 0; bytes < 300; bytes++) {
    for (const size_t shift : {0, 1, 16, 63}) {
      const auto src = pattern(bytes + 7);
      std::vector<std::byte> dst(bytes + 2 * kGuardBytes, std::byte{0xee});
      std::vector<std::byte> expected = dst;
      const size_t at = kGuardBytes / 2 + shift;
      std::copy_n(src.begin() + 7, bytes, expected.begin() + ptrdiff_t(at));
      const RowMove move{src.data() + 7, dst.data() + at, bytes};
      copy_list_ns({&move, 1}, GetParam());
      ASSERT_EQ(dst, expected) << bytes << " bytes, shift " << shift;
    }
  }
}

TEST_P(BoundMethod, WritesWholeRowsAndNothingBeside) {
  for (const size_t bytes : {0, 1, 64, 100, 4095, 4096, 4097, 14336}) {
    for (const size_t shift : {0, 3, 16}) {
      std::vector<std::byte> dst(bytes + 2 * kGuardBytes, std::byte{0xee});
      std::vector<std::byte> expected = dst;
      const size_t at = kGuardBytes / 2 + shift;
      std::fill_n(expected.begin() + ptrdiff_t(at), bytes, std::byte{0});
      const RowWrite write{dst.data() + at, bytes};
      read_list_ns({}, {&write, 1}, GetParam());  // nothing read: the sum is 0
      ASSERT_EQ(dst, expected) << bytes << " bytes, shift " << shift;
    }
  }
}

TEST_P(BoundMethod, SumsUpWhatItReads) {
  // The first word written is the sum of all reads before it, so none can have been skipped.
  std::vector<std::byte> src(1003, std::byte{0});
  src[1002] = std::byte{0x42};
  uint64_t row[8] = {};
  const RowRead read{src.data(), src.size()};
  const RowWrite write{row, sizeof(row)};
  read_list_ns({&read, 1}, {&write, 1}, GetParam());
  EXPECT_EQ(row[0], uint64_t{0x42} << 16);  // byte 1002 is byte 2 of its word
}

TEST_P(BoundMethod, TakesAtLeastTheTimeThatMemoryNeeds) {
  // 64 MiB within 100 us would be 670 GB/s by one thread: the work would have been optimised away.
  constexpr size_t kBytes = size_t{64} << 20, kRowBytes = 16384;
  const auto src = std::make_unique<std::byte[]>(kBytes), dst = std::make_unique<std::byte[]>(kBytes);
  std::vector<RowMove> moves;
  std::vector<RowRead> reads;
  for (size_t at = 0; at < kBytes; at += kRowBytes) {
    moves.push_back({src.get() + at, dst.get() + at, kRowBytes});
    reads.push_back({src.get() + at, kRowBytes});
  }
  EXPECT_GT(copy_list_ns(moves, GetParam()), 100'000);
  EXPECT_GT(read_list_ns(reads, {}, GetParam()), 100'000);
}

INSTANTIATE_TEST_SUITE_P(Methods, BoundMethod, testing::Values(Method::kOrdinary, Method::kStreaming));

TEST(Bound, ReadsAllWhateverTheNumberOfWrites) {
  std::vector<std::byte> src(64, std::byte{0});
  uint64_t rows[3][8];
  std::vector<RowWrite> writes;
  for (auto& row : rows) writes.push_back({row, sizeof(row)});
  const std::vector<RowRead> no_reads, one_read{{src.data(), src.size()}};
  EXPECT_GE(read_list_ns(no_reads, writes, Method::kOrdinary), 0);
  EXPECT_GE(read_list_ns(one_read, writes, Method::kOrdinary), 0);
  src[0] = std::byte{9};
  read_list_ns(one_read, writes, Method::kOrdinary);
  EXPECT_EQ(rows[2][0], 9u);  // one read for three writes comes before the last
}

}  // namespace
}  // namespace switchyard::bench
