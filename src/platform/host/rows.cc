#include "platform/host/rows.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.hpp"
#include "platform/host/rows_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "platform/host/rows.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "platform/host/rows_simd-inl.hpp"

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_write_range(void* address, unsigned long bytes);
#endif

HWY_BEFORE_NAMESPACE();
namespace switchyard::rows::HWY_NAMESPACE {

// The thread sanitizer does not see streaming stores; without this, a race on a row would go unnoticed.
HWY_INLINE void note_write([[maybe_unused]] void* dst, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  __tsan_write_range(dst, bytes);
#endif
}

// Visits the blocks of a row, each once. One or two rows alone don't keep the memory busy, so that their blocks are
// visited as four parts that advance side by side: 10-30 % faster.
template <class Visit>
HWY_INLINE void for_blocks(size_t num_blocks, int num_rows, Visit visit) {
  const size_t part_size = div_up(num_blocks, num_rows <= 2 ? 4 : 1);
  for (size_t i = 0; i < part_size; ++i)
    for (size_t block_idx = i; block_idx < num_blocks; block_idx += part_size) visit(block_idx);
}

// --- push -----------------------------------------------------------------------------------------------------------

constexpr size_t kLine = 64;
// How much goes to one destination before the next has its turn. Small, so that the writes spread over many DRAM pages:
// 256 bytes measured 15-25 % faster than 2 KiB from two destinations on.
constexpr size_t kBlock = 256;

// The whole lines of a destination: [begin, end) of the row. The rest is edges.
struct Lines {
  size_t begin, end;
  HWY_INLINE Lines(const void* dst, size_t bytes) {
    begin = std::min(bytes, size_t(-reinterpret_cast<uintptr_t>(dst) % kLine));
    end = begin + (bytes - begin) / kLine * kLine;
  }
};

// Copies whole lines past the caches. REQUIRES dst aligned to a line.
HWY_INLINE void stream_lines(uint8_t* HWY_RESTRICT dst, const uint8_t* HWY_RESTRICT src, size_t bytes) {
#if SWITCHYARD_HAVE_SIMD
  const hn::ScalableTag<uint8_t> d;
  static_assert(kLine % hn::MaxLanes(d) == 0);
  for (size_t i = 0; i < bytes; i += hn::MaxLanes(d)) hn::Stream(hn::LoadU(d, src + i), d, dst + i);
#else
  std::memcpy(dst, src, bytes);
#endif
}

void push(const void* src, void* const* dsts, int num_dsts, size_t bytes) {
  if (bytes == 0) return;  // pointers of empty rows may be null, which memcpy must not see
  const auto* from = static_cast<const uint8_t*>(src);
  for (int dst_idx = 0; dst_idx < num_dsts; ++dst_idx) {
    auto* to = static_cast<uint8_t*>(dsts[dst_idx]);
    const Lines lines(to, bytes);
    std::memcpy(to, from, lines.begin);
    std::memcpy(to + lines.end, from + lines.end, bytes - lines.end);
    note_write(to, bytes);
  }
  for_blocks(div_up(bytes, kBlock), num_dsts, [=](size_t block_idx) HWY_ATTR {
    for (int dst_idx = 0; dst_idx < num_dsts; ++dst_idx) {
      auto* to = static_cast<uint8_t*>(dsts[dst_idx]);
      const Lines lines(to, bytes);
      const size_t begin = std::min(lines.begin + block_idx * kBlock, lines.end);
      stream_lines(to + begin, from + begin, std::min(kBlock, lines.end - begin));
    }
  });
}

// --- reduce ---------------------------------------------------------------------------------------------------------

#if SWITCHYARD_HAVE_SIMD

// A unit of a row: as many elements as two vectors of floats hold, in an order that only load() and store() know.
template <DType kType, class D>
struct Unit;

// Even elements in one vector, odd ones in the other: a shift and a mask instead of shuffles.
template <class D>
struct Unit<DType::kBfloat16, D> {
  static constexpr D d{};
  static constexpr hn::RebindToUnsigned<D> du{};
  static constexpr hn::Repartition<uint8_t, D> d8{};
  static HWY_INLINE void load(const uint8_t* row, hn::Vec<D>& even, hn::Vec<D>& odd) {
    const auto pairs = hn::BitCast(du, hn::LoadU(d8, row));
    even = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    odd = hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xffff0000u)));
  }
  template <class Store>
  static HWY_INLINE void store(hn::Vec<D> even, hn::Vec<D> odd, uint8_t* row, Store store_bytes) {
    const auto upper = hn::And(round_to_bf16(d, odd), hn::Set(du, 0xffff0000u));
    store_bytes(hn::BitCast(d8, hn::Or(upper, hn::ShiftRight<16>(round_to_bf16(d, even)))), d8, row);
  }
};

template <class D>
struct Unit<DType::kFloat16, D> {
  static constexpr D d{};
  static constexpr hn::Repartition<uint16_t, D> d16{};
  static constexpr hn::Repartition<uint8_t, D> d8{};
  static HWY_INLINE void load(const uint8_t* row, hn::Vec<D>& first, hn::Vec<D>& second) {
    first = load_fp16(d, row);
    second = load_fp16(d, row + hn::MaxLanes(d) * sizeof(uint16_t));
  }
  template <class Store>
  static HWY_INLINE void store(hn::Vec<D> first, hn::Vec<D> second, uint8_t* row, Store store_bytes) {
    store_bytes(hn::BitCast(d8, hn::Combine(d16, round_to_fp16(d, second), round_to_fp16(d, first))), d8, row);
  }
};

template <class D>
struct Unit<DType::kFloat32, D> {
  static constexpr D d{};
  static constexpr hn::Repartition<uint8_t, D> d8{};
  static constexpr size_t kVectorBytes = hn::MaxLanes(d) * sizeof(float);
  static HWY_INLINE void load(const uint8_t* row, hn::Vec<D>& first, hn::Vec<D>& second) {
    first = hn::BitCast(d, hn::LoadU(d8, row));
    second = hn::BitCast(d, hn::LoadU(d8, row + kVectorBytes));
  }
  template <class Store>
  static HWY_INLINE void store(hn::Vec<D> first, hn::Vec<D> second, uint8_t* row, Store store_bytes) {
    const auto nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kFloatNan));
    store_bytes(hn::BitCast(d8, hn::IfThenElse(hn::IsNaN(first), nan, first)), d8, row);
    store_bytes(hn::BitCast(d8, hn::IfThenElse(hn::IsNaN(second), nan, second)), d8, row + kVectorBytes);
  }
};

struct StoreCached {
  template <class V, class D>
  HWY_INLINE void operator()(V v, D d, uint8_t* to) const { hn::StoreU(v, d, to); }
};
struct StoreStreaming {
  template <class V, class D>
  HWY_INLINE void operator()(V v, D d, uint8_t* to) const { hn::Stream(v, d, to); }
};

// Adds up the whole chunks of kNumUnits units within [begin, end); returns where it stopped. The sums stay in registers
// while the sources take turns: many rows are read side by side, which the memory serves twice as fast as one after the
// other. Software prefetches made it slower at every distance tried.
template <DType kType, size_t kNumUnits, class D, class Store>
HWY_INLINE size_t reduce_chunks(D d, uint8_t* dst, const void* const* srcs, const float* weights, int num_srcs,
                                size_t begin, size_t end, Store store_bytes) {
  constexpr size_t kUnitBytes = 2 * hn::MaxLanes(D()) * sizeof(typename Element<kType>::Storage);
  constexpr size_t kChunkBytes = kNumUnits * kUnitBytes;
  const size_t num_chunks = (end - begin) / kChunkBytes;
  for_blocks(num_chunks, num_srcs, [=](size_t chunk_idx) HWY_ATTR {
    const size_t offset = begin + chunk_idx * kChunkBytes;
    // Without the unrolling the compiler keeps the sums in memory.
    hn::Vec<D> sums[2 * kNumUnits];
#pragma GCC unroll 8
    for (auto& sum : sums) sum = hn::Zero(d);
    for (int src_idx = 0; src_idx < num_srcs; ++src_idx) {
      const auto weight = hn::Set(d, weights != nullptr ? weights[src_idx] : 1.0f);
      const auto* src = static_cast<const uint8_t*>(srcs[src_idx]) + offset;
#pragma GCC unroll 4
      for (size_t i = 0; i < kNumUnits; ++i) {
        hn::Vec<D> first, second;
        Unit<kType, D>::load(src + i * kUnitBytes, first, second);
        sums[2 * i] = hn::MulAdd(first, weight, sums[2 * i]);
        sums[2 * i + 1] = hn::MulAdd(second, weight, sums[2 * i + 1]);
      }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < kNumUnits; ++i)
      Unit<kType, D>::store(sums[2 * i], sums[2 * i + 1], dst + offset + i * kUnitBytes, store_bytes);
  });
  return begin + num_chunks * kChunkBytes;
}

#endif  // SWITCHYARD_HAVE_SIMD

template <DType kType>
void reduce_row(void* dst, const void* const* srcs, const float* weights, int num_srcs, size_t num_elements) {
  constexpr size_t kElementBytes = sizeof(typename Element<kType>::Storage);
  size_t done = 0;
#if SWITCHYARD_HAVE_SIMD
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 4> narrow;  // rows are multiples of 16 bytes, so that little remains after these
  constexpr size_t kChunkBytes = 2 * kLine;
  constexpr size_t kNumUnits = kChunkBytes / (2 * hn::MaxLanes(wide) * kElementBytes);
  auto* to = static_cast<uint8_t*>(dst);
  const size_t bytes = num_elements * kElementBytes;
  note_write(dst, bytes);
  done = reinterpret_cast<uintptr_t>(dst) % kLine == 0
             ? reduce_chunks<kType, kNumUnits>(wide, to, srcs, weights, num_srcs, 0, bytes, StoreStreaming())
             : reduce_chunks<kType, kNumUnits>(wide, to, srcs, weights, num_srcs, 0, bytes, StoreCached());
  done = reduce_chunks<kType, 1>(narrow, to, srcs, weights, num_srcs, done, bytes, StoreCached());
#endif
  for (size_t i = done / kElementBytes; i < num_elements; ++i) {
    float sum = 0.0f;
    for (int src_idx = 0; src_idx < num_srcs; ++src_idx)
      sum = std::fmaf(load_as<kType>(srcs[src_idx], i), weights != nullptr ? weights[src_idx] : 1.0f, sum);
    store_as<kType>(dst, i, sum);
  }
}

void reduce(DType dtype, void* dst, const void* const* srcs, const float* weights, int num_srcs, size_t num_elements) {
  switch (dtype) {
    case DType::kBfloat16: return reduce_row<DType::kBfloat16>(dst, srcs, weights, num_srcs, num_elements);
    case DType::kFloat16: return reduce_row<DType::kFloat16>(dst, srcs, weights, num_srcs, num_elements);
    default: return reduce_row<DType::kFloat32>(dst, srcs, weights, num_srcs, num_elements);
  }
}

// --- conversions ----------------------------------------------------------------------------------------------------

// Runs lanes(i) on whole vectors of floats, then one(i) on what remains.
template <class Lanes, class One>
HWY_INLINE void for_elements(size_t num_elements, [[maybe_unused]] Lanes lanes, One one) {
  size_t i = 0;
#if SWITCHYARD_HAVE_SIMD
  constexpr size_t kStep = hn::MaxLanes(hn::ScalableTag<float>());
  for (; i + kStep <= num_elements; i += kStep) lanes(hn::ScalableTag<float>(), i);
#endif
  for (; i < num_elements; ++i) one(i);
}

void bf16_to_fp32(const uint16_t* src, float* dst, size_t num_elements) {
  for_elements(
      num_elements, [&](auto d, size_t i) HWY_ATTR { hn::StoreU(load_bf16(d, src + i), d, dst + i); },
      [&](size_t i) { dst[i] = bf16_to_float(src[i]); });
}

void fp32_to_bf16(const float* src, uint16_t* dst, size_t num_elements) {
  for_elements(
      num_elements, [&](auto d, size_t i) HWY_ATTR { store_bf16(d, hn::LoadU(d, src + i), dst + i); },
      [&](size_t i) { dst[i] = float_to_bf16(src[i]); });
}

void fp16_to_fp32(const uint16_t* src, float* dst, size_t num_elements) {
  for_elements(
      num_elements,
      [&](auto d, size_t i) HWY_ATTR {
        hn::StoreU(load_fp16(d, reinterpret_cast<const uint8_t*>(src + i)), d, dst + i);
      },
      [&](size_t i) { dst[i] = fp16_to_float(src[i]); });
}

void fp32_to_fp16(const float* src, uint16_t* dst, size_t num_elements) {
  for_elements(
      num_elements,
      [&](auto d, size_t i) HWY_ATTR {
        hn::StoreU(round_to_fp16(d, hn::LoadU(d, src + i)), hn::Rebind<uint16_t, decltype(d)>(), dst + i);
      },
      [&](size_t i) { dst[i] = float_to_fp16(src[i]); });
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace switchyard::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchyard::rows {

HWY_EXPORT(push);
HWY_EXPORT(reduce);
HWY_EXPORT(bf16_to_fp32);
HWY_EXPORT(fp32_to_bf16);
HWY_EXPORT(fp16_to_fp32);
HWY_EXPORT(fp32_to_fp16);
HWY_EXPORT(target_name);

void push(const void* src, void* const* dsts, int num_dsts, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(push)(src, dsts, num_dsts, bytes);
}

void copy(void* dst, const void* src, size_t bytes) {
  if (bytes != 0) std::memcpy(dst, src, bytes);
}

// Streaming stores are weakly ordered even on x86; pairs with the release store that publishes the rows.
void drain() { hwy::FlushStream(); }

void reduce(DType dtype, void* dst, const void* const* srcs, const float* weights, int num_srcs, size_t num_elements) {
  HWY_DYNAMIC_DISPATCH(reduce)(dtype, dst, srcs, weights, num_srcs, num_elements);
}

void bf16_to_fp32(const uint16_t* src, float* dst, size_t num_elements) {
  HWY_DYNAMIC_DISPATCH(bf16_to_fp32)(src, dst, num_elements);
}
void fp32_to_bf16(const float* src, uint16_t* dst, size_t num_elements) {
  HWY_DYNAMIC_DISPATCH(fp32_to_bf16)(src, dst, num_elements);
}
void fp16_to_fp32(const uint16_t* src, float* dst, size_t num_elements) {
  HWY_DYNAMIC_DISPATCH(fp16_to_fp32)(src, dst, num_elements);
}
void fp32_to_fp16(const float* src, uint16_t* dst, size_t num_elements) {
  HWY_DYNAMIC_DISPATCH(fp32_to_fp16)(src, dst, num_elements);
}

const char* target_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace switchyard::rows
#endif  // HWY_ONCE
