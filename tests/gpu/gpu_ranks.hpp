// Ranks as threads of this process that share one GPU: a communicator and a stream each.
//
// THREADS    on_all() from one thread at a time.
// OWNERSHIP  owns communicators and streams.
// ERRORS     fault() says why the ranks could not be made; they are of no use then.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/coordinator.hpp"
#include "platform/runtime.hpp"

namespace switchyard::testing {

inline std::string fault_of(cudaError_t error) { return error == cudaSuccess ? "" : cudaGetErrorString(error); }

class GpuRanks {
 public:
  explicit GpuRanks(int num_ranks) : ranks_(size_t(num_ranks)) {
    const auto id = create_unique_id();
    if (!id.ok()) {
      fault_ = id.status().to_string();
      return;
    }
    const auto runtime = cuda_runtime(0);
    if (!runtime.ok()) {
      fault_ = runtime.status().to_string();
      return;
    }
    const Communicator::Options options{.runtime = runtime.value()};
    fault_ = on_all([&](int rank) -> std::string {
      Rank& mine = ranks_[size_t(rank)];
      // Non-blocking: the default stream would order the ranks' kernels one after another.
      std::string fault = fault_of(cudaStreamCreateWithFlags(&mine.stream, cudaStreamNonBlocking));
      if (!fault.empty()) return fault;
      auto comm = Communicator::create(id.value(), rank, num_ranks, options);
      if (!comm.ok()) return comm.status().to_string();
      mine.comm = std::move(comm).value();
      return "";
    });
  }
  ~GpuRanks() {
    on_all([&](int rank) {
      Rank& mine = ranks_[size_t(rank)];
      mine.comm.reset();
      return mine.stream != nullptr ? fault_of(cudaStreamDestroy(mine.stream)) : "";
    });
  }
  GpuRanks(const GpuRanks&) = delete;
  GpuRanks& operator=(const GpuRanks&) = delete;

  const std::string& fault() const { return fault_; }
  int size() const { return int(ranks_.size()); }
  Communicator& comm(int rank) { return *ranks_[size_t(rank)].comm; }
  cudaStream_t stream(int rank) { return ranks_[size_t(rank)].stream; }
  StreamRef stream_ref(int rank) { return {ranks_[size_t(rank)].stream}; }

  // Runs body(rank) on a thread per rank and waits for all. Returns the first fault that one of them returned.
  std::string on_all(const std::function<std::string(int)>& body) {
    std::mutex mutex;
    std::string first;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        std::string fault = fault_of(cudaSetDevice(0));
        if (fault.empty()) fault = body(rank);
        const std::lock_guard lock(mutex);
        if (first.empty()) first = std::move(fault);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return first;
  }

 private:
  struct Rank {
    std::unique_ptr<Communicator> comm;
    cudaStream_t stream = nullptr;
  };
  std::vector<Rank> ranks_;
  std::string fault_;
};

}  // namespace switchyard::testing
