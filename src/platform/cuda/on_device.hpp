// The current CUDA device of a thread: Python, and who has several GPUs, calls from threads whose current device is another.
#pragma once
#include <cuda_runtime_api.h>

namespace switchyard {

// Makes a device the current one of this thread for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = ordinal;
    if (before_ != ordinal) error_ = cudaSetDevice(ordinal);
    changed_ = before_ != ordinal && error_ == cudaSuccess;
  }
  ~OnDevice() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;  // the call that follows fails, too, and says what it was for
};

}  // namespace switchyard
