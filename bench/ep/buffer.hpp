// Memory of a tensor: the runtime's, in a window where asked for. Where the host can't address that (CUDA), rows and spans
// are of a copy on the host, which upload() and download() move; on the host there is no copy, and both do nothing.
//
// THREADS    as the communicator's collective calls.
// OWNERSHIP  owns memory and window; peers must be through with it when it goes.
// ERRORS     create() says what could not be had.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "switchyard/ep/tensor.hpp"

namespace switchyard::bench {

class Buffer {
 public:
  // COLLECTIVE with `window`, and of one size then.
  static Result<std::unique_ptr<Buffer>> create(Communicator& comm, size_t num_bytes, bool window = false) {
    const size_t allocated_bytes = std::max<size_t>(num_bytes, 64);
    SWITCHYARD_ASSIGN(void* memory, comm.runtime().allocate(allocated_bytes));
    std::unique_ptr<Buffer> buffer(new Buffer(comm, static_cast<std::byte*>(memory), num_bytes));
    if (comm.runtime().device().kind != DeviceKind::kHost) {
      buffer->copy_.resize(allocated_bytes);
      buffer->host_ = buffer->copy_.data();
    }
    if (window) {
      SWITCHYARD_ASSIGN(buffer->window_, comm.register_window(memory, allocated_bytes));
    }
    return buffer;
  }
  ~Buffer() {
    const auto warn = [](const Status& status) {
      if (!status.ok()) log(LogLevel::kWarn, "while freeing a tensor: ", status.to_string());
    };
    if (window_ != nullptr) warn(comm_.deregister_window(window_));
    warn(comm_.runtime().free(memory_));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  template <class T = std::byte>
  std::span<T> span() const {
    return {reinterpret_cast<T*>(host_), num_bytes_ / sizeof(T)};
  }
  std::byte* row(size_t row_idx, size_t row_bytes) const { return host_ + row_idx * row_bytes; }
  Status upload() const { return copy_.empty() ? Status() : comm_.runtime().upload(memory_, host_, num_bytes_); }
  Status download() const { return copy_.empty() ? Status() : comm_.runtime().download(host_, memory_, num_bytes_); }
  void* device_memory() const { return memory_; }
  // The same row of another rank's buffer. REQUIRES a window, and that load and store reach that rank.
  std::byte* row_at(int rank, size_t row_idx, size_t row_bytes) const {
    return reinterpret_cast<std::byte*>(window_->base(rank)) + row_idx * row_bytes;
  }
  bool in_window() const { return window_ != nullptr; }
  ep::Tensor tensor(DType dtype, std::initializer_list<size_t> sizes) const {
    return window_ ? ep::Tensor::in(*window_, 0, dtype, sizes) : ep::Tensor::of(memory_, dtype, sizes);
  }

 private:
  Buffer(Communicator& comm, std::byte* memory, size_t num_bytes)
      : comm_(comm), memory_(memory), host_(memory), num_bytes_(num_bytes) {}

  Communicator& comm_;
  std::byte* memory_;
  std::byte* host_;
  size_t num_bytes_;
  std::vector<std::byte> copy_;
  Window* window_ = nullptr;
};

}  // namespace switchyard::bench
