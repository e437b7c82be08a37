// Rows of elements on a GPU, one warp a row: copied to many places at once, added up and quantised.
//
// The same bits as on a CPU: every element is computed by the scalar functions of numeric.hpp and quantise.hpp, sums in
// the order of the sources with one explicit fused multiply-add each. Build with --fmad=false, or the compiler may fuse
// where those functions multiply and then add.
//
// THREADS    called by all 32 lanes with equal arguments. Neither reading nor writing is ordered among the lanes:
//            CudaPlatform puts the warp barriers around them.
// OWNERSHIP  the caller's memory, at any alignment that its elements allow; 16 bytes is fast.
// ERRORS     none.
#pragma once
#include <cstddef>
#include <cstdint>

#include "switchyard/dtype.hpp"
#include "switchyard/numeric.hpp"
#include "switchyard/platform/hd.hpp"
#include "switchyard/quantise.hpp"

namespace switchyard::cuda_rows {

constexpr uint32_t kNumLanes = 32;
constexpr int kLoadsInFlight = 8;  // of one lane, before its first store

// Low bits of all addresses a row is at: how much of it can be moved at once.
template <class Pointer>
SWITCHYARD_DEVICE uintptr_t low_bits(const void* first, Pointer const* others, int num_others) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(first);
  for (int i = 0; i < num_others; ++i) bits |= reinterpret_cast<uintptr_t>(others[i]);
  return bits;
}

template <class Vector>
SWITCHYARD_DEVICE void push_vectors(const char* source, char* const* destinations, int num_destinations,
                                    uint32_t num_vectors, uint32_t lane) {
  const auto* from = reinterpret_cast<const Vector*>(source);
  for (uint32_t first = lane; first < num_vectors; first += kLoadsInFlight * kNumLanes) {
    Vector vectors[kLoadsInFlight];
#pragma unroll
    for (uint32_t i = 0; i < kLoadsInFlight; ++i) {
      if (first + i * kNumLanes < num_vectors) vectors[i] = from[first + i * kNumLanes];
    }
    for (int place = 0; place < num_destinations; ++place) {
      auto* to = reinterpret_cast<Vector*>(destinations[place]);
#pragma unroll
      for (uint32_t i = 0; i < kLoadsInFlight; ++i) {
        if (first + i * kNumLanes < num_vectors) to[first + i * kNumLanes] = vectors[i];
      }
    }
  }
}

SWITCHYARD_DEVICE void push(const char* source, char* const* destinations, int num_destinations, size_t bytes,
                            uint32_t lane) {
  if (num_destinations == 0) return;
  const uintptr_t bits = low_bits(source, destinations, num_destinations) | bytes;
  if (bits % sizeof(uint4) == 0) {
    push_vectors<uint4>(source, destinations, num_destinations, uint32_t(bytes / sizeof(uint4)), lane);
  } else if (bits % sizeof(uint32_t) == 0) {
    push_vectors<uint32_t>(source, destinations, num_destinations, uint32_t(bytes / sizeof(uint32_t)), lane);
  } else {
    push_vectors<char>(source, destinations, num_destinations, uint32_t(bytes), lane);
  }
}

// One copy by several threads, of a warp or of many.
template <class Vector>
SWITCHYARD_DEVICE void copy_vectors(char* destination, const char* source, size_t num_vectors, uint32_t thread,
                                    uint32_t num_threads) {
  for (size_t i = thread; i < num_vectors; i += num_threads) {
    reinterpret_cast<Vector*>(destination)[i] = reinterpret_cast<const Vector*>(source)[i];
  }
}
SWITCHYARD_DEVICE void copy(char* destination, const char* source, size_t bytes, uint32_t thread, uint32_t num_threads) {
  const uintptr_t bits = low_bits(source, &destination, 1) | bytes;
  if (bits % sizeof(uint4) == 0) {
    copy_vectors<uint4>(destination, source, bytes / sizeof(uint4), thread, num_threads);
  } else if (bits % sizeof(uint32_t) == 0) {
    copy_vectors<uint32_t>(destination, source, bytes / sizeof(uint32_t), thread, num_threads);
  } else {
    copy_vectors<char>(destination, source, bytes, thread, num_threads);
  }
}

template <DType kType>
SWITCHYARD_DEVICE void reduce(char* out, const char* const* sources, const float* weights, int num_sources,
                              uint32_t num_elements, uint32_t lane) {
  using Storage = typename Element<kType>::Storage;
  constexpr int kVectorSize = 16 / sizeof(Storage);
  struct alignas(16) Vector {
    Storage elements[kVectorSize];
  };
  const bool aligned = low_bits(out, sources, num_sources) % sizeof(Vector) == 0;
  const uint32_t num_vectors = aligned ? num_elements / kVectorSize : 0;
  for (uint32_t vector = lane; vector < num_vectors; vector += kNumLanes) {
    float sums[kVectorSize] = {};
#pragma unroll 4
    for (int source = 0; source < num_sources; ++source) {
      const Vector row = reinterpret_cast<const Vector*>(sources[source])[vector];
#pragma unroll
      for (int i = 0; i < kVectorSize; ++i) {
        sums[i] = fmaf(Element<kType>::decode(row.elements[i]), weights[source], sums[i]);
      }
    }
    Vector result;
#pragma unroll
    for (int i = 0; i < kVectorSize; ++i) result.elements[i] = Element<kType>::encode(sums[i]);
    reinterpret_cast<Vector*>(out)[vector] = result;
  }
  for (uint32_t i = num_vectors * kVectorSize + lane; i < num_elements; i += kNumLanes) {
    float sum = 0.0f;
    for (int source = 0; source < num_sources; ++source) {
      sum = fmaf(load_as<kType>(sources[source], i), weights[source], sum);
    }
    store_as<kType>(out, i, sum);
  }
}

// As quantise_fp8_row(): each group is spread over the lanes, and several groups are read before the first is written.
SWITCHYARD_DEVICE void quantise_fp8(const uint16_t* bf16, uint8_t* out, float* scales, uint32_t num_elements,
                                    bool round_scales, uint32_t lane) {
  constexpr uint32_t kPerLane = kFp8Group / kNumLanes;
  constexpr uint32_t kNumGroups = 4;
  constexpr uint32_t kBf16Inf = 0x7f80;
  for (uint32_t first = 0; first < num_elements; first += kNumGroups * kFp8Group) {
    uint16_t codes[kNumGroups][kPerLane];
#pragma unroll
    for (uint32_t i = 0; i < kNumGroups * kPerLane; ++i) {
      const uint32_t idx = first + i * kNumLanes + lane;
      codes[i / kPerLane][i % kPerLane] = idx < num_elements ? bf16[idx] : uint16_t{0};
    }
#pragma unroll
    for (uint32_t group = 0; group < kNumGroups; ++group) {
      const uint32_t begin = first + group * kFp8Group;
      if (begin >= num_elements) break;
      uint32_t greatest = 0;  // BF16 magnitudes compare as integers
#pragma unroll
      for (uint32_t i = 0; i < kPerLane; ++i) {
        const uint32_t magnitude = codes[group][i] & 0x7fffu;
        if (magnitude <= kBf16Inf && magnitude > greatest) greatest = magnitude;
      }
      const float amax = bf16_to_float(uint16_t(__reduce_max_sync(0xffffffffu, greatest)));
      const Fp8Scale scale = fp8_scale(amax > kFp8SmallestAmax ? amax : kFp8SmallestAmax, round_scales);
#pragma unroll
      for (uint32_t i = 0; i < kPerLane; ++i) {
        const uint32_t idx = begin + i * kNumLanes + lane;
        if (idx < num_elements) out[idx] = float_to_e4m3(bf16_to_float(codes[group][i]) * scale.quantise);
      }
      if (lane == 0) scales[begin / kFp8Group] = scale.dequantise;
    }
  }
}

// As encode_nvfp4_row(), a block a lane.
SWITCHYARD_DEVICE void encode_nvfp4(const uint16_t* bf16, uint8_t* packet, size_t num_elements, float row_scale,
                                    uint32_t lane) {
  const Nvfp4Layout layout{num_elements};
  for (size_t block_idx = lane; block_idx < layout.num_blocks(); block_idx += kNumLanes) {
    const uint16_t* block = bf16 + block_idx * kNvfp4Block;
    const Nvfp4Scale scale = nvfp4_scale(greatest_magnitude(block, kNvfp4Block, 0.0f), row_scale);
    encode_nvfp4_block(block, scale, packet + layout.payload_offset(block_idx));
    packet[layout.scale_offset(block_idx)] = scale.code;
  }
  if (lane == 0) finish_nvfp4_packet(layout, row_scale, packet);
}

// As add_nvfp4_element() for every element, a block a lane, so that a packet's factor is worked out once a block.
SWITCHYARD_DEVICE void reduce_nvfp4(uint16_t* out, const char* const* packets, const float* weights, int num_packets,
                                    size_t num_elements, uint32_t lane) {
  const Nvfp4Layout layout{num_elements};
  for (size_t block_idx = lane; block_idx < layout.num_blocks(); block_idx += kNumLanes) {
    float sums[kNvfp4Block] = {};
    for (int source = 0; source < num_packets; ++source) {
      const auto* packet = reinterpret_cast<const uint8_t*>(packets[source]);
      const uint8_t* payload = packet + layout.payload_offset(block_idx);
      const float factor = nvfp4_factor(packet[layout.scale_offset(block_idx)], nvfp4_row_scale(layout, packet));
      const float weight = factor * weights[source];
#pragma unroll
      for (size_t i = 0; i < kNvfp4Block; ++i) {
        const uint32_t code = i % 2 ? payload[i / 2] >> 4 : payload[i / 2] & 0xf;
        sums[i] = fmaf(e2m1_to_float(uint8_t(code)), weight, sums[i]);
      }
    }
#pragma unroll
    for (size_t i = 0; i < kNvfp4Block; ++i) out[block_idx * kNvfp4Block + i] = float_to_bf16(sums[i]);
  }
}

}  // namespace switchyard::cuda_rows
