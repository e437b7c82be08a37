// A tensor as the caller described it: dense, row-major, plain memory or a place in a window.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/checked.hpp"
#include "comm/window.hpp"
#include "switchyard/dtype.hpp"
#include "switchyard/status.hpp"

namespace switchyard::ep {

struct Tensor {
  static constexpr int kMaxDims = 4;

  void* data = nullptr;  // resolved: for a window tensor, its address here
  DType dtype = DType::kUint8;
  int num_dims = 0;
  std::array<size_t, kMaxDims> sizes{};
  const Window* window = nullptr;
  uint64_t window_offset = 0;

  static Tensor of(void* data, DType dtype, std::initializer_list<size_t> sizes) {
    Tensor tensor;
    tensor.data = data;
    tensor.dtype = dtype;
    for (const size_t size : sizes) tensor.sizes[size_t(tensor.num_dims++)] = size;
    return tensor;
  }
  static Tensor in(const Window& window, uint64_t offset, DType dtype, std::initializer_list<size_t> sizes) {
    Tensor tensor = of(window.local() + offset, dtype, sizes);
    tensor.window = &window;
    tensor.window_offset = offset;
    return tensor;
  }

  bool present() const { return num_dims > 0; }
  bool empty() const {
    for (int dim = 0; dim < num_dims; ++dim) {
      if (sizes[size_t(dim)] == 0) return true;
    }
    return false;
  }
  // Nothing if the product does not fit.
  std::optional<size_t> num_bytes() const {
    std::optional<size_t> bytes = dtype_bytes(dtype);
    for (int dim = 0; dim < num_dims && bytes; ++dim) bytes = checked_mul(*bytes, sizes[size_t(dim)]);
    return bytes;
  }
  // Bytes of the last dimension.
  size_t row_bytes() const { return sizes[size_t(num_dims - 1)] * dtype_bytes(dtype); }
  std::string shape_text() const {
    std::string out = "[";
    for (int dim = 0; dim < num_dims; ++dim) out += (dim ? ", " : "") + std::to_string(sizes[size_t(dim)]);
    return out + "] " + dtype_name(dtype);
  }
};

}  // namespace switchyard::ep
