// Ranks of a communicator as threads of the test, joined as programs join them: ncclGetUniqueId and ncclCommInitRank,
// one pretended device a rank. Buffers, streams and windows that clean up after themselves.
#pragma once
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace switchyard::testing {

inline void expect_success(ncclResult_t result) { EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr); }
inline void expect_success(cudaError_t error) { EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// Runs body(rank) on a thread per rank, each on a device of its own, and waits for all.
inline void on_ranks(int num_ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      expect_success(cudaSetDevice(rank));
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class CommRanks {
 public:
  explicit CommRanks(int num_ranks) : comms_(size_t(num_ranks), nullptr) {
    ncclUniqueId id;
    expect_success(ncclGetUniqueId(&id));
    on_all([&](int rank) { expect_success(ncclCommInitRank(&comms_[size_t(rank)], num_ranks, id, rank)); });
  }
  ~CommRanks() {
    on_all([&](int rank) { expect_success(ncclCommDestroy(comm(rank))); });
  }
  CommRanks(const CommRanks&) = delete;
  CommRanks& operator=(const CommRanks&) = delete;

  int size() const { return int(comms_.size()); }
  ncclComm_t comm(int rank) const { return comms_[size_t(rank)]; }
  // Ends this rank's communicator; the others' are left to the destructor.
  void abort(int rank) { expect_success(ncclCommAbort(std::exchange(comms_[size_t(rank)], nullptr))); }
  void on_all(const std::function<void(int)>& body) const { on_ranks(size(), body); }

 private:
  std::vector<ncclComm_t> comms_;
};

class StreamOwner {
 public:
  StreamOwner() { expect_success(cudaStreamCreate(&stream_)); }
  ~StreamOwner() { expect_success(cudaStreamDestroy(stream_)); }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: stands for the stream

 private:
  cudaStream_t stream_ = nullptr;
};

// Device memory: plain, or in a window of a communicator.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t num_bytes) : num_bytes_(num_bytes) { expect_success(cudaMalloc(&base_, num_bytes)); }
  // COLLECTIVE, with one window_bytes on all ranks: the buffer begins at kWindowOffset and does not fill the window.
  DeviceBuffer(size_t num_bytes, ncclComm_t comm, size_t window_bytes)
      : num_bytes_(num_bytes), window_bytes_(kWindowOffset + window_bytes + kWindowSlack), comm_(comm) {
    expect_success(ncclMemAlloc(&base_, window_bytes_));
    expect_success(ncclCommWindowRegister(comm, base_, window_bytes_, &window_, NCCL_WIN_COLL_SYMMETRIC));
  }
  ~DeviceBuffer() {
    if (window_ == nullptr) {
      expect_success(cudaFree(base_));
      return;
    }
    expect_success(ncclCommWindowDeregister(comm_, window_));
    expect_success(ncclMemFree(base_));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  static constexpr size_t kWindowOffset = 256, kWindowSlack = 4096;
  size_t size() const { return num_bytes_; }
  size_t window_bytes() const { return window_bytes_; }
  ncclWindow_t window() const { return window_; }
  uint8_t* data() const { return static_cast<uint8_t*>(base_) + (window_ ? kWindowOffset : 0); }

  void fill(uint8_t value) const {
    if (num_bytes_ > 0) expect_success(cudaMemset(data(), value, num_bytes_));
  }
  template <class T>
  void upload(std::span<const T> values) const {
    ASSERT_LE(values.size_bytes(), num_bytes_);
    if (!values.empty()) expect_success(cudaMemcpy(data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  template <class T>
  void upload(const std::vector<T>& values) const {
    upload(std::span<const T>(values));
  }
  template <class T = uint8_t>
  std::vector<T> download() const {
    std::vector<T> values(num_bytes_ / sizeof(T));
    if (!values.empty()) {
      expect_success(cudaMemcpy(values.data(), data(), values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    }
    return values;
  }
  bool holds_only(uint8_t value) const {
    const std::vector<uint8_t> bytes = download();
    return std::all_of(bytes.begin(), bytes.end(), [&](uint8_t byte) { return byte == value; });
  }

 private:
  void* base_ = nullptr;
  size_t num_bytes_;
  size_t window_bytes_ = 0;
  ncclComm_t comm_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

}  // namespace switchyard::testing
