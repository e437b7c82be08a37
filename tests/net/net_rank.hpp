// One rank of two on two pretended nodes, with a region for data and one for signals, as tests of endpoints use it.
#pragma once
#include <algorithm>
#include <atomic>

#include "platform/host/wait.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {

constexpr size_t kDataBytes = 1 << 20;
constexpr size_t kNumSignals = 16;

// One rank's two regions: data, and signals.
class NetRank {
 public:
  explicit NetRank(Communicator& comm_of_rank, size_t num_bytes = kDataBytes) : comm(comm_of_rank), net(*comm.net()) {
    data_ = comm.runtime().allocate(num_bytes).value();
    signals_ = comm.runtime().allocate(kNumSignals * sizeof(uint64_t)).value();
    data_id = comm.register_window(data_, num_bytes).value()->id();
    signals_id = comm.register_window(signals_, kNumSignals * sizeof(uint64_t)).value()->id();
  }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  int peer() const { return 1 - comm.rank(); }

  NetPut put_of(uint64_t to, uint64_t from, uint64_t num_bytes, int signal = -1, uint64_t value = 1) const {
    return {peer(),
            data_id,
            to,
            data_id,
            from,
            num_bytes,
            signals_id,
            uint64_t(std::max(signal, 0)) * 8,
            signal < 0 ? 0 : value};
  }
  // Posts, helping the network along while it has no room.
  template <class Post>
  NetPost insist(Post post) {
    NetPost result = NetPost::kBusy;
    wait_until([&] { return (result = post()) != NetPost::kBusy; }, Deadline::after_ns(30 * kSecond));
    return result;
  }
  NetPost put(const NetPut& put) {
    return insist([&] { return net.put(put); });
  }
  NetPost flush() {
    return insist([&] { return net.flush(); });
  }
  // All that was posted so far.
  NetPost deliver() {
    Delivery delivery;
    return insist([&] { return net.deliver(delivery); });
  }
  uint64_t signal(int index) const {
    return std::atomic_ref(static_cast<uint64_t*>(signals_)[index]).load(std::memory_order_acquire);
  }
  bool wait_signal(int index, uint64_t value) {
    return wait_until(
               [&] {
                 net.progress();
                 return signal(index) >= value;
               },
               Deadline::after_ns(30 * kSecond)) == WaitResult::kReady;
  }

  Communicator& comm;
  NetEndpoint& net;
  uint32_t data_id, signals_id;

 private:
  void* data_;
  void* signals_;
};

}  // namespace switchyard::testing
