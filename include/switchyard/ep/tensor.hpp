// A tensor as the caller described it: dense, row-major, plain memory or a place in a window.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "switchyard/dtype.hpp"

namespace switchyard {
class Window;
}

namespace switchyard::ep {

struct Tensor {
  static constexpr int kMaxDims = 4;

  void* data = nullptr;  // resolved: for a window tensor, its address here
  DType dtype = DType::kUint8;
  int num_dims = 0;
  std::array<size_t, kMaxDims> sizes{};
  const Window* window = nullptr;
  uint64_t window_offset = 0;

  // THROWS  switchyard::Error for more than kMaxDims sizes.
  static Tensor of(void* data, DType dtype, std::initializer_list<size_t> sizes);
  // REQUIRES  offset inside the window.  THROWS  as of().
  static Tensor in(const Window& window, uint64_t offset, DType dtype, std::initializer_list<size_t> sizes);

  bool present() const { return num_dims > 0; }
  bool empty() const;
  // Nothing if the product does not fit.
  std::optional<size_t> num_bytes() const;
  // Bytes of the last dimension.
  size_t row_bytes() const { return sizes[size_t(num_dims - 1)] * dtype_bytes(dtype); }
  // "[128, 7168] bfloat16"
  std::string shape_text() const;
};

}  // namespace switchyard::ep
