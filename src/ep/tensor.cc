#include "switchyard/ep/tensor.hpp"

#include "base/checked.hpp"
#include "comm/window.hpp"
#include "switchyard/status.hpp"

namespace switchyard::ep {

[[gnu::hot]] Tensor Tensor::of(void* data, DType dtype, std::initializer_list<size_t> sizes) {
  if (sizes.size() > size_t(kMaxDims)) {
    throw Error(Status::invalid_argument(text("a tensor of ", sizes.size(), " dimensions, allowed 0..", kMaxDims)));
  }
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = dtype;
  for (const size_t size : sizes) tensor.sizes[size_t(tensor.num_dims++)] = size;
  return tensor;
}

[[gnu::hot]] Tensor Tensor::in(const Window& window, uint64_t offset, DType dtype, std::initializer_list<size_t> sizes) {
  Tensor tensor = of(window.local() + offset, dtype, sizes);
  tensor.window = &window;
  tensor.window_offset = offset;
  return tensor;
}

[[gnu::hot]] bool Tensor::empty() const {
  for (int dim = 0; dim < num_dims; ++dim) {
    if (sizes[size_t(dim)] == 0) return true;
  }
  return false;
}

[[gnu::hot]] std::optional<size_t> Tensor::num_bytes() const {
  std::optional<size_t> bytes = dtype_bytes(dtype);
  for (int dim = 0; dim < num_dims && bytes; ++dim) bytes = checked_mul(*bytes, sizes[size_t(dim)]);
  return bytes;
}

[[gnu::cold]] std::string Tensor::shape_text() const {
  std::string out = "[";
  for (int dim = 0; dim < num_dims; ++dim) out += (dim ? ", " : "") + std::to_string(sizes[size_t(dim)]);
  return out + "] " + dtype_name(dtype);
}

}  // namespace switchyard::ep
