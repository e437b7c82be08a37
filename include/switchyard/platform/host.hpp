// A CPU as a device: what a kernel of the protocol headers sees when a C++ compiler builds it.
//
// A warp has width 1 here, so lane-strided loops, broadcasts and warp barriers collapse to plain code that the
// compiler vectorises; nothing is emulated lane by lane. A stream's worker is one warp of a grid of one.
// Memory that peers also touch is accessed through the methods below only: words with an explicit order, plain data
// with read() and write(), rows with push() and reduce(). The same kernels then run over other platforms: CUDA
// (platform/cuda.hpp) and the model checker's memory.
//
// THREADS  a value; every worker has its own.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "switchyard/device/comm.hpp"
#include "switchyard/dtype.hpp"
#include "switchyard/platform/backoff.hpp"
#include "switchyard/platform/hd.hpp"

namespace switchyard {

class HostPlatform {
 public:
  static constexpr int kLanes = 1;

  int lane() const { return 0; }
  int warp_idx() const { return 0; }
  int num_warps() const { return 1; }
  void sync_warp() const {}

  // Words that several threads or processes share. Every order is explicit; each use names its partner.
  template <class T>
  T load_acquire(const T* word) const {
    return std::atomic_ref<T>(*const_cast<T*>(word)).load(std::memory_order_acquire);
  }
  template <class T>
  T load_relaxed(const T* word) const {
    return std::atomic_ref<T>(*const_cast<T*>(word)).load(std::memory_order_relaxed);
  }
  template <class T>
  void store_release(T* word, T value) const {
    std::atomic_ref<T>(*word).store(value, std::memory_order_release);
  }
  template <class T>
  void store_relaxed(T* word, T value) const {
    std::atomic_ref<T>(*word).store(value, std::memory_order_relaxed);
  }
  // acq_rel: the adder has seen what earlier adders did before they added.
  uint64_t fetch_add(uint64_t* word, uint64_t value) const {
    return std::atomic_ref<uint64_t>(*word).fetch_add(value, std::memory_order_acq_rel);
  }
  // Stores only if the word is still 0: the first one wins, and is told so.
  bool store_once(uint64_t* word, uint64_t value) const {
    uint64_t expected = 0;
    return std::atomic_ref<uint64_t>(*word).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  }
  // Has the host raised this flag? The answer may come late: where a look crosses a bus, only some calls look.
  bool raised(const uint32_t* flag) const { return load_relaxed(flag) != 0; }

  // The same for one thread of a cooperative group (device/coop.hpp), without the warp.
  template <class T>
  void store_relaxed_thread(T* word, T value) const {
    store_relaxed(word, value);
  }
  void add_release_thread(uint64_t* word, uint64_t value) const {
    std::atomic_ref<uint64_t>(*word).fetch_add(value, std::memory_order_acq_rel);
  }

  template <class T>
  T load_acquire_thread(const T* word) const {
    return load_acquire(word);
  }
  template <class T>
  T load_relaxed_thread(const T* word) const {
    return load_relaxed(word);
  }
  template <class T>
  void store_release_thread(T* word, T value) const {
    store_release(word, value);
  }
  uint64_t fetch_add_thread(uint64_t* word, uint64_t value) const { return fetch_add(word, value); }
  // Between two looks of one thread that waits for the host: whoever it waits for may need this very core. Naps after some,
  // since a ring that is full has work for longer than that.
  void pause_thread(uint32_t num_pauses) const {
    constexpr uint32_t kNumYields = 16;
    constexpr timespec kNap{0, 50'000};
    if (num_pauses < kNumYields) sched_yield();
    else clock_nanosleep(CLOCK_MONOTONIC, 0, &kNap, nullptr);
  }

  // Plain data, ordered by the words around it.
  template <class T>
  T read(const T* place) const {
    return *place;
  }
  template <class T>
  void write(T* place, T value) const {
    *place = value;
  }

  // Rows (src/platform/host/platform.cc). A row is read once and stored to every destination, past the cache.
  void push(const char* source, char* const* destinations, int num_destinations, size_t bytes) const;
  // One copy by all threads of a cooperative group, which is one thread here.
  template <class Coop>
  void copy_together(Coop /*coop*/, char* destination, const char* source, size_t bytes) const {
    push(source, &destination, 1, bytes);
  }
  // Orders earlier push()es before a later store_release() or fetch_add().
  void drain() const;
  // out = round(sum of weight * row, in order, FP32 fused multiply-add).
  void reduce(DType dtype, char* out, const char* const* sources, const float* weights, int num_sources,
              size_t num_elements) const;
  // One row of BF16 to E4M3 with a scale per 128 elements; NVFP4 packets (switchyard/quantise.hpp).
  void quantise_fp8(const char* bf16, char* out, char* scales, size_t num_elements, bool round_scales) const;
  void encode_nvfp4(const char* bf16, char* packet, size_t num_elements, float global_scale) const;
  void reduce_nvfp4(char* out, const char* const* packets, const float* weights, int num_packets,
                    size_t num_elements) const;

  // The network, called by the kernel's own thread.
  bool net_put(const NetPath& net, const NetPut& put) const { return net.calls->put(net.target, put); }
  bool net_put_value(const NetPath& net, const NetPut& put, uint64_t value) const {
    return net.calls->put_value(net.target, put, value);
  }
  bool net_flush(const NetPath& net) const { return net.calls->flush(net.target); }
  void net_progress(const NetPath& net) const {
    if (net.exists() && net.calls->progress(net.target)) net_is_busy_ = true;
  }
  bool net_usable(const NetPath& net, int peer) const { return !net.exists() || net.calls->usable(net.target, peer); }

  // Deterministic scans of one warp, in index order.
  //
  // For each key >= 0: out = its ordinal among equal keys, counted on from counts[key], which advances. With
  // `capacity` > 0 the result is key * capacity + ordinal instead, and ordinals past it become -1 and are not counted;
  // false if there were such. Keys < 0 give -1. keys == out is allowed.
  bool stable_ranks(const int32_t* keys, int num_keys, int32_t* counts, int32_t* out, int32_t capacity = 0) const {
    bool all_fit = true;
    for (int i = 0; i < num_keys; ++i) {
      const int32_t key = keys[i];
      if (key < 0) {
        out[i] = -1;
      } else if (capacity > 0 && counts[key] >= capacity) {
        out[i] = -1;
        all_fit = false;
      } else {
        out[i] = (capacity > 0 ? key * capacity : 0) + counts[key]++;
      }
    }
    return all_fit;
  }
  void exclusive_scan(int32_t* values, int num_values) const {
    int32_t sum = 0;
    for (int i = 0; i < num_values; ++i) {
      const int32_t value = values[i];
      values[i] = sum;
      sum += value;
    }
  }

  // Nanoseconds of a clock that only grows.
  uint64_t now_ns() const { return switchyard::now_ns(); }

  // Waiting between steps (device/roles.hpp). pause() is false once the deadline has passed or `abort` was raised.
  class Waiter {
   public:
    Waiter(const HostPlatform& /*platform*/, uint64_t timeout_ns, const uint32_t* abort)
        : timeout_ns_(timeout_ns), abort_(abort) {}
    void reset() { backoff_.reset(); }
    bool pause(const HostPlatform& platform) {
      if (platform.load_relaxed(abort_) != 0) return false;
      // While bytes move they need this thread: it does not nap.
      if (platform.net_is_busy_) backoff_.reset();
      platform.net_is_busy_ = false;
      backoff_.pause();
      uint64_t now = backoff_.now_ns();
      // A network may be busy for ever: who does not nap looks at the clock now and then.
      if (now == 0 && ++num_spins_ % kSpinsPerLook != 0) return true;
      if (now == 0) now = switchyard::now_ns();
      // The limit runs from the first real wait of the operation and is not renewed by progress.
      if (deadline_ns_ == 0) deadline_ns_ = timeout_ns_ > ~now ? ~uint64_t{0} : now + timeout_ns_;
      return now < deadline_ns_;
    }

   private:
    static constexpr uint32_t kSpinsPerLook = 256;

    Backoff backoff_;
    uint32_t num_spins_ = 0;
    uint64_t timeout_ns_;
    uint64_t deadline_ns_ = 0;
    const uint32_t* abort_;
  };

 private:
  mutable bool net_is_busy_ = false;  // as net_progress() saw it last
};

}  // namespace switchyard
