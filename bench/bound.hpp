// The memory bound: how long this machine needs at least for the bytes that an operation must move, measured by
// the thread that calls, over the operation's own list of rows.
//
// Dispatch must move every row once: copy_list_ns. Combine must read every contribution once and write every token's
// row: read_list_ns. Both take the method of storing; the bound is the faster one (dispatch_bound_ns, ...), because
// streaming stores win on rows that miss the cache and ordinary stores on those that fit.
//
// THREADS    any; each thread measures its own list. Nothing is shared.
// OWNERSHIP  lists point at the caller's memory; destinations are overwritten, so bound a run on scratch memory or
//            on slots that the next iteration overwrites anyway.
// ERRORS     none: REQUIRES valid ranges of any alignment and size; a row's source and destination don't overlap.
// BLOCKING   never.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/clock.hpp"

namespace switchyard::bench {

struct RowMove {
  const void* src;
  void* dst;
  size_t bytes;
};
struct RowRead {
  const void* src;
  size_t bytes;
};
struct RowWrite {
  void* dst;
  size_t bytes;
};

enum class Method {
  kOrdinary,   // memcpy, memset: through the cache
  kStreaming,  // non-temporal stores; equal to kOrdinary where the processor has none that we know
};

namespace detail {

#if defined(__x86_64__)
inline bool has_avx2() { return __builtin_cpu_supports("avx2"); }

// Whole cache lines. REQUIRES dst aligned to 64.
__attribute__((target("avx2"))) inline void stream_lines_avx2(std::byte* dst, const std::byte* src, size_t num_lines) {
  for (size_t i = 0; i < num_lines; i++, dst += 64, src += 64) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + 32), high);
  }
}
inline void stream_lines_sse2(std::byte* dst, const std::byte* src, size_t num_lines) {
  for (size_t i = 0; i < num_lines * 4; i++, dst += 16, src += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(dst), _mm_loadu_si128(reinterpret_cast<const __m128i*>(src)));
  }
}
inline void stream_lines(std::byte* dst, const std::byte* src, size_t num_lines) {
  has_avx2() ? stream_lines_avx2(dst, src, num_lines) : stream_lines_sse2(dst, src, num_lines);
}
inline void stream_fence() { _mm_sfence(); }

__attribute__((target("avx2"))) inline uint64_t read_lines_avx2(const std::byte* src, size_t num_lines) {
  __m256i a = _mm256_setzero_si256(), b = a;
  for (size_t i = 0; i < num_lines; i++, src += 64) {
    a = _mm256_xor_si256(a, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src)));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + 32)));
  }
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_xor_si256(a, b));
  return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}
#else
inline bool has_avx2() { return false; }
inline uint64_t read_lines_avx2(const std::byte*, size_t) { return 0; }
inline void stream_lines(std::byte* dst, const std::byte* src, size_t num_lines) { memcpy(dst, src, num_lines * 64); }
inline void stream_fence() {}
#endif

inline void stream_row(std::byte* dst, const std::byte* src, size_t bytes) {
  const size_t to_line = (64 - std::bit_cast<uintptr_t>(dst) % 64) % 64;
  const size_t head_bytes = std::min(to_line, bytes);
  const size_t num_lines = (bytes - head_bytes) / 64;
  const size_t tail_at = head_bytes + num_lines * 64;
  memcpy(dst, src, head_bytes);
  stream_lines(dst + head_bytes, src + head_bytes, num_lines);
  memcpy(dst + tail_at, src + tail_at, bytes - tail_at);
}

// The exclusive or of 64-bit words: cheaper than any arithmetic a combine could do, so reading is the cost.
inline uint64_t read_bytes(const std::byte* src, size_t bytes) {
  const size_t lines_bytes = has_avx2() ? bytes / 64 * 64 : 0;
  uint64_t sum = has_avx2() ? read_lines_avx2(src, lines_bytes / 64) : 0;
  for (size_t i = lines_bytes; i < bytes; i += 8) {
    uint64_t word = 0;
    memcpy(&word, src + i, std::min<size_t>(8, bytes - i));
    sum ^= word;
  }
  return sum;
}

// Keeps a computed value alive without a store that the measurement would see.
inline void keep(uint64_t value) { asm("" : : "r"(value) : "memory"); }

constexpr size_t kPatternBytes = 4096;

// Writes a row from a pattern that stays in the nearest cache, in pieces that end at cache lines of the destination.
inline void write_row(const RowWrite& row, const std::byte* pattern, Method method) {
  auto* dst = static_cast<std::byte*>(row.dst);
  for (size_t at = 0; at < row.bytes;) {
    const size_t bytes = std::min(kPatternBytes - std::bit_cast<uintptr_t>(dst + at) % 64, row.bytes - at);
    method == Method::kStreaming ? stream_row(dst + at, pattern, bytes) : void(memcpy(dst + at, pattern, bytes));
    at += bytes;
  }
}

}  // namespace detail

// The time to copy every row of the list once.
inline double copy_list_ns(std::span<const RowMove> moves, Method method) {
  const uint64_t begin_ns = now_ns();
  for (const RowMove& move : moves) {
    if (method == Method::kStreaming) {
      detail::stream_row(static_cast<std::byte*>(move.dst), static_cast<const std::byte*>(move.src), move.bytes);
    } else {
      memcpy(move.dst, move.src, move.bytes);
    }
  }
  if (method == Method::kStreaming) detail::stream_fence();
  return double(now_ns() - begin_ns);
}

// The time to read every row of one list and to write every row of the other, writes spread evenly among the reads
// as a combine does it: the rows of a token, then the token's sum. The rows of a token are read side by side, a piece of
// each in turn: about twice as fast as one after the other, because more of them are on their way at a time.
inline double read_list_ns(std::span<const RowRead> reads, std::span<const RowWrite> writes, Method method) {
  constexpr size_t kPieceBytes = 256;
  const uint64_t begin_ns = now_ns();
  alignas(64) std::byte pattern[detail::kPatternBytes] = {};
  uint64_t sum = 0;
  size_t read_idx = 0;
  const auto read_until = [&](size_t end) {
    size_t longest = 0;
    for (size_t i = read_idx; i < end; i++) longest = std::max(longest, reads[i].bytes);
    for (size_t at = 0; at < longest; at += kPieceBytes) {
      for (size_t i = read_idx; i < end; i++) {
        if (at >= reads[i].bytes) continue;
        sum ^= detail::read_bytes(static_cast<const std::byte*>(reads[i].src) + at, std::min(kPieceBytes, reads[i].bytes - at));
      }
    }
    read_idx = end;
  };
  for (size_t write_idx = 0; write_idx < writes.size(); write_idx++) {
    read_until(reads.size() * (write_idx + 1) / writes.size());
    memcpy(pattern, &sum, sizeof(sum));  // a write needs the reads before it, as a sum does
    detail::write_row(writes[write_idx], pattern, method);
  }
  read_until(reads.size());
  detail::keep(sum);
  if (method == Method::kStreaming) detail::stream_fence();
  return double(now_ns() - begin_ns);
}

// The faster method of each, for one pass; take the minimum or the median over passes interleaved with the run.
inline double dispatch_bound_ns(std::span<const RowMove> moves) {
  return std::min(copy_list_ns(moves, Method::kOrdinary), copy_list_ns(moves, Method::kStreaming));
}
inline double combine_bound_ns(std::span<const RowRead> reads, std::span<const RowWrite> writes) {
  return std::min(read_list_ns(reads, writes, Method::kOrdinary), read_list_ns(reads, writes, Method::kStreaming));
}

}  // namespace switchyard::bench
