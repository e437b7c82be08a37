// Rows of elements on a CPU: copied to many places at once, added up, converted and quantised.
//
// The instruction set is chosen at run time (AVX-512, AVX2 or plain C++; NEON on ARM); results are the same bits on all
// of them: every element is computed as the scalar functions of switchyard/numeric.hpp and quantise.hpp would.
//
// THREADS    no shared state. Rows that push() and reduce() wrote may still sit in the processor's write-combining
//            buffers, where a release store does not order them: call drain() on the writing thread first.
// OWNERSHIP  the caller's memory. Pointers to void may have any alignment; 64 bytes is fastest. A destination overlaps
//            neither a source nor another destination, except that reduce() may write over one of its sources.
// ERRORS     none. REQUIRES valid pointers; a size of 0 touches nothing.
#pragma once
#include <cstddef>
#include <cstdint>

#include "switchyard/dtype.hpp"

namespace switchyard::rows {

// EFFECTS copies src to each of dsts, reading it from memory once, past the caches: for rows that another core reads
// later. Needs drain().
void push(const void* src, void* const* dsts, int num_dsts, size_t bytes);
inline void copy_streaming(void* dst, const void* src, size_t bytes) { push(src, &dst, 1, bytes); }
// EFFECTS copies through the caches: for rows that this core reads soon.
void copy(void* dst, const void* src, size_t bytes);
// EFFECTS every row written so far by this thread comes before whatever it stores next.
void drain();

// EFFECTS dst[i] = the sum over s of srcs[s][i] * weights[s], in FP32 with fused multiply-add, in the order of s,
// beginning with 0, rounded once; no sources give zeros. Without weights each is 1. Needs drain().
// REQUIRES dtype is kBfloat16, kFloat16 or kFloat32.
void reduce(DType dtype, void* dst, const void* const* srcs, const float* weights, int num_srcs, size_t num_elements);

// As quantise_fp8_row().
void quantise_fp8(const uint16_t* bf16_row, uint8_t* out, float* scales, size_t num_elements, bool round_scales);

// As encode_nvfp4_row(). REQUIRES num_elements % 16 == 0.
void encode_nvfp4(const uint16_t* bf16_row, float row_scale, void* packet, size_t num_elements);
// EFFECTS as reduce() to BF16, but each source is the packet of a row. REQUIRES num_elements % 16 == 0.
void reduce_nvfp4(uint16_t* bf16_row, const void* const* packets, const float* weights, int num_srcs,
                  size_t num_elements);

void bf16_to_fp32(const uint16_t* src, float* dst, size_t num_elements);
void fp32_to_bf16(const float* src, uint16_t* dst, size_t num_elements);
void fp16_to_fp32(const uint16_t* src, float* dst, size_t num_elements);
void fp32_to_fp16(const float* src, uint16_t* dst, size_t num_elements);

// The instruction set in use, e.g. "AVX3"; for reports.
const char* target_name();

}  // namespace switchyard::rows
