// Which instruction sets the row operations are compiled for. Include before any header of Highway.
//
// x86: AVX-512, AVX2 (with FMA and F16C) and plain C++; what lies between has no fused multiply-add, so that it could
// not give the same bits any faster. ARM: NEON; SVE vectors have no size at compile time.
#pragma once
#define HWY_DISABLED_TARGETS                                                                           \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
