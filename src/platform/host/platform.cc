// The rows of the host platform: the SIMD functions of rows.hpp under the names that kernels use.
#include "switchyard/platform/host.hpp"

#include "platform/host/rows.hpp"

namespace switchyard {

void HostPlatform::push(const char* source, char* const* destinations, int num_destinations, size_t bytes) const {
  rows::push(source, reinterpret_cast<void* const*>(destinations), num_destinations, bytes);
}

void HostPlatform::drain() const { rows::drain(); }

void HostPlatform::reduce(DType dtype, char* out, const char* const* sources, const float* weights, int num_sources,
                          size_t num_elements) const {
  rows::reduce(dtype, out, reinterpret_cast<const void* const*>(sources), weights, num_sources, num_elements);
}

void HostPlatform::quantise_fp8(const char* bf16, char* out, char* scales, size_t num_elements,
                                bool round_scales) const {
  rows::quantise_fp8(reinterpret_cast<const uint16_t*>(bf16), reinterpret_cast<uint8_t*>(out),
                     reinterpret_cast<float*>(scales), num_elements, round_scales);
}

void HostPlatform::encode_nvfp4(const char* bf16, char* packet, size_t num_elements, float global_scale) const {
  rows::encode_nvfp4(reinterpret_cast<const uint16_t*>(bf16), global_scale, packet, num_elements);
}

void HostPlatform::reduce_nvfp4(char* out, const char* const* packets, const float* weights, int num_packets,
                                size_t num_elements) const {
  rows::reduce_nvfp4(reinterpret_cast<uint16_t*>(out), reinterpret_cast<const void* const*>(packets), weights,
                     num_packets, num_elements);
}

}  // namespace switchyard
