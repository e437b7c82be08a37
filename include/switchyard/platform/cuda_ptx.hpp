// All PTX of the CUDA platform: words that other multiprocessors, other GPUs or the host share, and the clock.
//
// Every access has system scope: a peer's kernel may run on this GPU, on another one or, for the words of the host
// runtime, on the CPU. There is no fence instruction of its own: each release below covers what the other lanes of the
// warp did before the __syncwarp() that precedes it (PTX orders are cumulative over barriers), and each acquire covers
// what they do after the __syncwarp() that follows it. All accesses are of the generic proxy.
//
// THREADS  every function is executed by the calling lane alone.
// ERRORS   none. REQUIRES naturally aligned words of 4 or 8 bytes.
#pragma once
#include <cstdint>

#include "switchyard/platform/hd.hpp"

namespace switchyard::ptx {

// acquire; pairs with store_release() and fetch_add() of a peer's warp, and with the host's release stores.
template <class T>
SWITCHYARD_DEVICE T load_acquire(const T* word) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return bits_as<T>(value);
  } else {
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return bits_as<T>(value);
  }
}

template <class T>
SWITCHYARD_DEVICE T load_relaxed(const T* word) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return bits_as<T>(value);
  } else {
    uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return bits_as<T>(value);
  }
}

// release; pairs with load_acquire() of a peer's warp.
SWITCHYARD_DEVICE void store_release(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

template <class T>
SWITCHYARD_DEVICE void store_relaxed(T* word, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(bits_as<uint32_t>(value)) : "memory");
  } else {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(word), "l"(bits_as<uint64_t>(value)) : "memory");
  }
}

// acq_rel; pairs with the other adders of the word: the last one has seen what all did before they added.
SWITCHYARD_DEVICE uint64_t fetch_add(uint64_t* word, uint64_t value) {
  uint64_t before;
  asm volatile("atom.acq_rel.sys.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(word), "l"(value) : "memory");
  return before;
}

// Returns what the word held.
SWITCHYARD_DEVICE uint64_t compare_exchange_relaxed(uint64_t* word, uint64_t expected, uint64_t value) {
  uint64_t before;
  asm volatile("atom.relaxed.sys.cas.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(word), "l"(expected), "l"(value)
               : "memory");
  return before;
}

// Nanoseconds of wall time, one clock for the whole GPU; ticks coarsely (up to a microsecond).
SWITCHYARD_DEVICE uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace switchyard::ptx
