// Memory for the tensors of tests, plain or in a window, with a watch on what lies around it.
//
// THREADS    a buffer belongs to its rank's thread.
// OWNERSHIP  owns its allocation and its window; the communicator must outlive it.
// ERRORS     made() says why there is no window; memory is expected to be there. What goes wrong later is printed, for
//            the test at hand has its own faults.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "switchyard/ep/tensor.hpp"

namespace switchyard::testing {

// What buffers are filled with: outputs before the library writes them, inputs when it may not read them any more.
inline constexpr uint8_t kUntouched = 0xa5;
inline constexpr uint8_t kOverwritten = 0x11;

// A tensor's memory, of the communicator's runtime. A window starts some way into its allocation, and the tensor lies
// at the window's end, so that its offset differs between ranks where its size does; what is around the tensor is its
// margin, which nobody may write.
// Where the host can't address that memory (CUDA), span() is a copy of it, which to_device() and from_device() move;
// on the host platform there is no copy and both do nothing.
class Buffer {
 public:
  // COLLECTIVE with `window`: one size is agreed on.
  Buffer(Communicator& comm, size_t num_bytes, bool window = false);
  ~Buffer();
  // Ok, or why there is no window. REQUIRES  for all but destruction that it is.
  const Status& made() const { return made_; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void fill(uint8_t value);
  template <class T>
  void load(const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), span<T>().begin());
    to_device();
  }
  void to_device() const;
  void from_device() const;
  template <class T = uint8_t>
  std::span<T> span() const {
    return {reinterpret_cast<T*>(host_ + offset_), num_bytes_ / sizeof(T)};
  }
  ep::Tensor tensor(DType dtype, std::initializer_list<size_t> sizes) const;
  // Empty, or that the margin is no longer what fill() made it.
  std::string margin_fault(const char* name) const;

 private:
  Communicator& comm_;
  size_t num_bytes_;
  size_t allocated_;
  size_t window_start_ = 0;  // in the allocation
  size_t offset_ = 0;        // of the tensor in the allocation
  uint8_t* base_;
  std::unique_ptr<uint8_t[]> copy_;  // null where host_ is base_
  uint8_t* host_;
  uint8_t filled_with_ = 0;
  Window* window_ = nullptr;
  Status made_;
};

}  // namespace switchyard::testing
