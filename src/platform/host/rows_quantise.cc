#include <cstring>

#include "platform/host/rows.hpp"
#include "platform/host/rows_targets.hpp"
#include "switchyard/quantise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "platform/host/rows_quantise.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "platform/host/rows_simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchyard::rows::HWY_NAMESPACE {

#if SWITCHYARD_HAVE_SIMD
// greatest_magnitude() of a multiple of the tag's lanes. Magnitudes of BF16 codes order like integers.
template <class D>
HWY_INLINE float greatest_lane(D di, const uint16_t* bf16, size_t num_elements, float floor) {
  const hn::RebindToUnsigned<D> du;
  auto amax = hn::Zero(di);
  for (size_t i = 0; i < num_elements; i += hn::MaxLanes(di)) {
    const auto magnitude = hn::And(hn::BitCast(di, hn::LoadU(du, bf16 + i)), hn::Set(di, 0x7fff));
    amax = hn::Max(amax, hn::IfThenZeroElse(hn::Gt(magnitude, hn::Set(di, 0x7f80)), magnitude));
  }
  const float greatest = bf16_to_float(uint16_t(hn::GetLane(hn::MaxOfLanes(di, amax))));
  return greatest > floor ? greatest : floor;
}
#endif

void quantise_fp8(const uint16_t* bf16_row, uint8_t* out, float* scales, size_t num_elements, bool round_scales) {
  size_t done = 0;
#if SWITCHYARD_HAVE_SIMD
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  for (; done + kFp8Group <= num_elements; done += kFp8Group) {
    const float amax = greatest_lane(hn::ScalableTag<int16_t>(), bf16_row + done, kFp8Group, kFp8SmallestAmax);
    const Fp8Scale scale = fp8_scale(amax, round_scales);
    const auto factor = hn::Set(d, scale.quantise);
    for (size_t i = done; i < done + kFp8Group; i += hn::MaxLanes(d)) {
      const auto codes = encode_lanes<E4m3>(d, hn::Mul(load_bf16(d, bf16_row + i), factor));
      hn::StoreU(hn::DemoteTo(d8, codes), d8, out + i);
    }
    scales[done / kFp8Group] = scale.dequantise;
  }
#endif
  quantise_fp8_row(bf16_row + done, out + done, scales + done / kFp8Group, num_elements - done, round_scales);
}

#if SWITCHYARD_HAVE_SIMD

// Half a block of floats, or as much of it as a vector holds.
using HalfBlock = hn::CappedTag<float, kNvfp4Block / 2>;

void encode_nvfp4(const uint16_t* bf16_row, float row_scale, void* packet, size_t num_elements) {
  const Nvfp4Layout layout{num_elements};
  auto* bytes = static_cast<uint8_t*>(packet);
  const HalfBlock d;
  const hn::Rebind<uint8_t, HalfBlock> d8;
  const hn::Full128<uint16_t> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d_payload;
  for (size_t block_idx = 0; block_idx < layout.num_blocks(); ++block_idx) {
    const uint16_t* block = bf16_row + block_idx * kNvfp4Block;
    const float amax = greatest_lane(hn::Full128<int16_t>(), block, kNvfp4Block, 0.0f);
    const Nvfp4Scale scale = nvfp4_scale(amax, row_scale);
    const auto factor = hn::Set(d, scale.quantise);
    HWY_ALIGN uint8_t codes[kNvfp4Block];
    for (size_t i = 0; i < kNvfp4Block; i += hn::MaxLanes(d)) {
      const auto lanes = encode_lanes<E2m1>(d, hn::Mul(load_bf16(d, block + i), factor));
      hn::StoreU(hn::DemoteTo(d8, lanes), d8, codes + i);
    }
    // Each 16-bit lane holds an even code in its low byte and the odd one in its high byte.
    const auto pairs = hn::BitCast(d16, hn::Load(hn::Full128<uint8_t>(), codes));
    const auto nibbles = hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, 0xff));
    const hn::RebindToSigned<decltype(d16)> di16;
    const auto payload = hn::DemoteTo(d_payload, hn::BitCast(di16, nibbles));
    hn::StoreU(payload, d_payload, bytes + layout.payload_offset(block_idx));
    bytes[layout.scale_offset(block_idx)] = scale.code;
  }
  finish_nvfp4_packet(layout, row_scale, bytes);
}

// The 16 elements of a block as BF16 codes: FP4 values fit, and two table look-ups give their bytes.
HWY_INLINE void decode_nvfp4_block(const uint8_t* payload, uint16_t* bf16) {
  alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                                     0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
  alignas(16) static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                                     0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
  const hn::Full128<uint8_t> d8;
  const hn::Full128<uint16_t> d16;
  const auto pairs = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<uint8_t, decltype(d16)>(), payload));
  const auto spread = hn::Or(hn::And(pairs, hn::Set(d16, 0x0f)), hn::ShiftLeft<4>(hn::And(pairs, hn::Set(d16, 0xf0))));
  const auto codes = hn::BitCast(d8, spread);
  const auto upper = hn::TableLookupBytes(hn::Load(d8, kUpper), codes);
  const auto lower = hn::TableLookupBytes(hn::Load(d8, kLower), codes);
  hn::Store(hn::BitCast(d16, hn::InterleaveLower(d8, lower, upper)), d16, bf16);
  hn::Store(hn::BitCast(d16, hn::InterleaveUpper(d8, lower, upper)), d16, bf16 + 8);
}

void reduce_nvfp4(uint16_t* bf16_row, const void* const* packets, const float* weights, int num_srcs,
                  size_t num_elements) {
  const Nvfp4Layout layout{num_elements};
  const HalfBlock d;
  constexpr size_t kNumVectors = kNvfp4Block / hn::MaxLanes(d);
  for (size_t block_idx = 0; block_idx < layout.num_blocks(); ++block_idx) {
    hn::Vec<HalfBlock> sums[kNumVectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (int src_idx = 0; src_idx < num_srcs; ++src_idx) {
      const auto* packet = static_cast<const uint8_t*>(packets[src_idx]);
      const float factor = nvfp4_factor(packet[layout.scale_offset(block_idx)], nvfp4_row_scale(layout, packet));
      const auto weight = hn::Set(d, factor * (weights != nullptr ? weights[src_idx] : 1.0f));
      alignas(16) uint16_t block[kNvfp4Block];
      decode_nvfp4_block(packet + layout.payload_offset(block_idx), block);
      for (size_t i = 0; i < kNumVectors; ++i)
        sums[i] = hn::MulAdd(load_bf16(d, block + i * hn::MaxLanes(d)), weight, sums[i]);
    }
    for (size_t i = 0; i < kNumVectors; ++i)
      store_bf16(d, sums[i], bf16_row + block_idx * kNvfp4Block + i * hn::MaxLanes(d));
  }
}

#else  // no SIMD

void encode_nvfp4(const uint16_t* bf16_row, float row_scale, void* packet, size_t num_elements) {
  encode_nvfp4_row(bf16_row, row_scale, static_cast<uint8_t*>(packet), num_elements);
}

void reduce_nvfp4(uint16_t* bf16_row, const void* const* packets, const float* weights, int num_srcs,
                  size_t num_elements) {
  const Nvfp4Layout layout{num_elements};
  for (size_t i = 0; i < num_elements; ++i) {
    float sum = 0.0f;
    for (int src_idx = 0; src_idx < num_srcs; ++src_idx) {
      const auto* packet = static_cast<const uint8_t*>(packets[src_idx]);
      sum = add_nvfp4_element(layout, packet, i, weights != nullptr ? weights[src_idx] : 1.0f, sum);
    }
    bf16_row[i] = float_to_bf16(sum);
  }
}

#endif  // SWITCHYARD_HAVE_SIMD

}  // namespace switchyard::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchyard::rows {

HWY_EXPORT(quantise_fp8);
HWY_EXPORT(encode_nvfp4);
HWY_EXPORT(reduce_nvfp4);

void quantise_fp8(const uint16_t* bf16_row, uint8_t* out, float* scales, size_t num_elements, bool round_scales) {
  HWY_DYNAMIC_DISPATCH(quantise_fp8)(bf16_row, out, scales, num_elements, round_scales);
}
void encode_nvfp4(const uint16_t* bf16_row, float row_scale, void* packet, size_t num_elements) {
  HWY_DYNAMIC_DISPATCH(encode_nvfp4)(bf16_row, row_scale, packet, num_elements);
}
void reduce_nvfp4(uint16_t* bf16_row, const void* const* packets, const float* weights, int num_srcs,
                  size_t num_elements) {
  HWY_DYNAMIC_DISPATCH(reduce_nvfp4)(bf16_row, packets, weights, num_srcs, num_elements);
}

}  // namespace switchyard::rows
#endif  // HWY_ONCE
