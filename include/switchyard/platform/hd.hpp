// SWITCHYARD_HD: functions that run on the host and inside CUDA kernels alike.
// SWITCHYARD_DEVICE: code of kernels; nvcc compiles it for the GPU, a C++ compiler for the CPU (platform/host.hpp).
#pragma once
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#define SWITCHYARD_HD __host__ __device__ __forceinline__
#define SWITCHYARD_DEVICE __device__ __forceinline__
#else
#define SWITCHYARD_HD inline
#define SWITCHYARD_DEVICE inline
#endif

namespace switchyard {

// std::bit_cast is not callable from device code unless the compiler is told to relax constexpr; this is.
template <class To, class From>
SWITCHYARD_HD To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace switchyard
