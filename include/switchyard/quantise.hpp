// The two quantisation recipes of expert parallelism, one row at a time, written to be obviously right: the fast
// versions of both platforms must give the same bits.
//
// THREADS    pure functions.
// OWNERSHIP  the caller's rows, which must not overlap.
// ERRORS     none: every input has a defined result. NaN elements don't count towards a group's greatest magnitude.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "switchyard/numeric.hpp"

namespace switchyard {

// The greatest magnitude among floor and the num_elements values, NaN ignored.
SWITCHYARD_HD float greatest_magnitude(const uint16_t* bf16, size_t num_elements, float floor) {
  float amax = floor;
  for (size_t i = 0; i < num_elements; ++i) {
    const float magnitude = bf16_to_float(bf16[i] & 0x7fffu);
    if (magnitude > amax) amax = magnitude;
  }
  return amax;
}

// --- DS FP8: E4M3 with one FP32 scale for every 128 consecutive elements --------------------------------------------

constexpr size_t kFp8Group = 128;
constexpr float kFp8Max = 448.0f;
// Keeps the scale of a group of zeros finite.
constexpr float kFp8SmallestAmax = 1e-4f;

SWITCHYARD_HD size_t num_fp8_scales(size_t num_elements) { return (num_elements + kFp8Group - 1) / kFp8Group; }

struct Fp8Scale {
  float quantise;    // code = e4m3(x * quantise)
  float dequantise;  // x' = code * dequantise; this one travels with the row
};

// round_scales picks powers of two, the dequantising one rounded up, so that it fits an 8-bit exponent.
// REQUIRES amax >= kFp8SmallestAmax.
SWITCHYARD_HD Fp8Scale fp8_scale(float amax, bool round_scales) {
  const float dequantise = amax * (1.0f / kFp8Max);
  if (!round_scales) return {kFp8Max / amax, dequantise};
  const uint32_t bits = bits_as<uint32_t>(dequantise);
  const uint32_t biased = (bits >> 23) + ((bits & 0x7fffffu) != 0);
  // An infinite amax gives the scales of the unrounded recipe; anything finite stays far from both ends.
  if (biased >= 254) return {0.0f, bits_as<float>(kFloatInf)};
  return {bits_as<float>((254 - biased) << 23), bits_as<float>(biased << 23)};
}

// EFFECTS out[num_elements] gets the codes, scales[num_fp8_scales(num_elements)] the dequantising scales; the last
// group may be short.
SWITCHYARD_HD void quantise_fp8_row(const uint16_t* bf16, uint8_t* out, float* scales, size_t num_elements,
                                    bool round_scales) {
  for (size_t begin = 0; begin < num_elements; begin += kFp8Group) {
    const size_t size = num_elements - begin < kFp8Group ? num_elements - begin : kFp8Group;
    const Fp8Scale scale = fp8_scale(greatest_magnitude(bf16 + begin, size, kFp8SmallestAmax), round_scales);
    for (size_t i = begin; i < begin + size; ++i) out[i] = float_to_e4m3(bf16_to_float(bf16[i]) * scale.quantise);
    scales[begin / kFp8Group] = scale.dequantise;
  }
}

// --- NVFP4: E2M1 with an E4M3 scale for every 16 elements and an FP32 scale for the row ------------------------------

constexpr size_t kNvfp4Block = 16;

// Where things lie in the packet of one row: payload (two elements a byte, the even one in the low nibble), block
// scales, the row's scale, zeros up to a multiple of 16 bytes. REQUIRES num_elements % 16 == 0.
struct Nvfp4Layout {
  size_t num_elements;

  SWITCHYARD_HD size_t num_blocks() const { return num_elements / kNvfp4Block; }
  SWITCHYARD_HD size_t payload_offset(size_t block_idx) const { return block_idx * (kNvfp4Block / 2); }
  SWITCHYARD_HD size_t scale_offset(size_t block_idx) const { return num_elements / 2 + block_idx; }
  SWITCHYARD_HD size_t row_scale_offset() const { return scale_offset(num_blocks()); }
  SWITCHYARD_HD size_t packet_bytes() const { return (row_scale_offset() + sizeof(float) + 15) / 16 * 16; }
};

// 1/x with subnormal arguments and results flushed to zero, like the GPU's approximate reciprocal, from whose result
// this correctly rounded one may differ by a unit in the last place.
SWITCHYARD_HD float reciprocal_ftz(float x) {
  constexpr uint32_t kSmallestNormal = 0x00800000u, kSign = 0x80000000u;
  const uint32_t bits = bits_as<uint32_t>(x);
  if ((bits & ~kSign) < kSmallestNormal) return bits_as<float>((bits & kSign) | kFloatInf);
  const uint32_t result = bits_as<uint32_t>(1.0f / x);
  return bits_as<float>((result & ~kSign) < kSmallestNormal ? result & kSign : result);
}

struct Nvfp4Scale {
  uint8_t code;    // e4m3, travels with the row
  float quantise;  // code = e2m1(x * quantise)
};

// amax: the block's greatest magnitude; row_scale: 2688 / (the row's greatest magnitude), or 0 for a row of zeros.
SWITCHYARD_HD Nvfp4Scale nvfp4_scale(float amax, float row_scale) {
  const float exact = row_scale * (amax * reciprocal_ftz(6.0f));
  const uint8_t code = float_to_e4m3(exact);
  if (exact == 0.0f) return {code, 0.0f};
  return {code, reciprocal_ftz(e4m3_to_float(code) * reciprocal_ftz(row_scale))};
}

// What one unit of a block's FP4 codes is worth, before the receiver's weight: x' = code * (factor * weight).
SWITCHYARD_HD float nvfp4_factor(uint8_t scale_code, float row_scale) {
  const float inverse = 1.0f / row_scale;
  const bool infinite = (bits_as<uint32_t>(inverse) & 0x7fffffffu) == kFloatInf;
  return e4m3_to_float(scale_code) * (infinite ? 1.0f : inverse);
}

SWITCHYARD_HD void encode_nvfp4_block(const uint16_t* bf16, Nvfp4Scale scale, uint8_t* payload) {
  for (size_t i = 0; i < kNvfp4Block; i += 2) {
    const uint8_t even = float_to_e2m1(bf16_to_float(bf16[i]) * scale.quantise);
    const uint8_t odd = float_to_e2m1(bf16_to_float(bf16[i + 1]) * scale.quantise);
    payload[i / 2] = uint8_t(even | (odd << 4));
  }
}

// Writes what follows the blocks: the row's scale and the padding.
SWITCHYARD_HD void finish_nvfp4_packet(Nvfp4Layout layout, float row_scale, uint8_t* packet) {
  const size_t offset = layout.row_scale_offset();
  std::memset(packet + offset, 0, layout.packet_bytes() - offset);
  std::memcpy(packet + offset, &row_scale, sizeof(row_scale));
}

// EFFECTS packet[Nvfp4Layout{num_elements}.packet_bytes()] is written whole.
SWITCHYARD_HD void encode_nvfp4_row(const uint16_t* bf16, float row_scale, uint8_t* packet, size_t num_elements) {
  const Nvfp4Layout layout{num_elements};
  for (size_t block_idx = 0; block_idx < layout.num_blocks(); ++block_idx) {
    const uint16_t* block = bf16 + block_idx * kNvfp4Block;
    const Nvfp4Scale scale = nvfp4_scale(greatest_magnitude(block, kNvfp4Block, 0.0f), row_scale);
    encode_nvfp4_block(block, scale, packet + layout.payload_offset(block_idx));
    packet[layout.scale_offset(block_idx)] = scale.code;
  }
  finish_nvfp4_packet(layout, row_scale, packet);
}

SWITCHYARD_HD float nvfp4_row_scale(Nvfp4Layout layout, const uint8_t* packet) {
  float row_scale;
  std::memcpy(&row_scale, packet + layout.row_scale_offset(), sizeof(row_scale));
  return row_scale;
}

// Adds element idx of a packet, times weight, to sum: how a receiver accumulates.
SWITCHYARD_HD float add_nvfp4_element(Nvfp4Layout layout, const uint8_t* packet, size_t idx, float weight, float sum) {
  const size_t block_idx = idx / kNvfp4Block;
  const uint8_t pair = packet[idx / 2];
  const float code = e2m1_to_float(uint8_t(idx % 2 ? pair >> 4 : pair & 0xf));
  const float factor = nvfp4_factor(packet[layout.scale_offset(block_idx)], nvfp4_row_scale(layout, packet));
  return fmaf(code, factor * weight, sum);
}

}  // namespace switchyard
