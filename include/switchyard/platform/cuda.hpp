// A GPU as a device: what a kernel of the protocol headers sees when nvcc builds it. The mirror of platform/host.hpp,
// where the meaning of every method is told; here is what a warp of 32 lanes adds to it.
//
// Collective methods are called by all lanes of a warp with equal arguments, and give all of them the same answer,
// because what the protocol decides must be decided once for the warp: load_acquire, load_relaxed, store_release,
// fetch_add, raised, rows, scans and Waiter::pause. A lane may call read, write, store_relaxed and store_once alone.
// Every collective method that writes leaves its results visible to all lanes; store_release and fetch_add cover what
// any lane wrote before them, load_acquire and fetch_add order what any lane reads after them.
//
// REQUIRES  a one-dimensional grid, blocks of whole warps, all of them resident at once: warps wait for each other.
// THREADS   a value; every thread has its own.
#pragma once
#include "switchyard/device/comm.hpp"
#include "switchyard/platform/cuda_ptx.hpp"
#include "switchyard/platform/cuda_rows.hpp"

namespace switchyard {

class CudaPlatform {
 public:
  static constexpr int kLanes = 32;

  SWITCHYARD_DEVICE int lane() const { return int(threadIdx.x % kLanes); }
  // Consecutive warps are in different blocks, so that few rows, too, are spread over all multiprocessors of the grid.
  SWITCHYARD_DEVICE int warp_idx() const { return int(threadIdx.x / kLanes * gridDim.x + blockIdx.x); }
  SWITCHYARD_DEVICE int num_warps() const { return int(gridDim.x * (blockDim.x / kLanes)); }
  SWITCHYARD_DEVICE void sync_warp() const { __syncwarp(); }

  // Lane 0 does the access, so that no two lanes can see different values.
  template <class T>
  SWITCHYARD_DEVICE T load_acquire(const T* word) const {
    const T value = from_leader(lane() == 0 ? ptx::load_acquire(word) : T{});
    sync_warp();  // what other lanes read next comes after the leader's acquire
    return value;
  }
  template <class T>
  SWITCHYARD_DEVICE T load_relaxed(const T* word) const {
    return from_leader(lane() == 0 ? ptx::load_relaxed(word) : T{});
  }
  SWITCHYARD_DEVICE void store_release(uint64_t* word, uint64_t value) const {
    sync_warp();  // what other lanes wrote comes before the leader's release
    if (lane() == 0) ptx::store_release(word, value);
  }
  template <class T>
  SWITCHYARD_DEVICE void store_relaxed(T* word, T value) const {
    ptx::store_relaxed(word, value);
  }
  SWITCHYARD_DEVICE uint64_t fetch_add(uint64_t* word, uint64_t value) const {
    sync_warp();  // as in store_release()
    const uint64_t before = from_leader(lane() == 0 ? ptx::fetch_add(word, value) : 0);
    sync_warp();  // as in load_acquire()
    return before;
  }
  SWITCHYARD_DEVICE bool store_once(uint64_t* word, uint64_t value) const {
    return ptx::compare_exchange_relaxed(word, 0, value) == 0;
  }
  // Flags are in host memory, and a look at one takes longer than everything else between two looks at the awaited
  // word. The period is a prime, so that callers who take turns all get their look.
  SWITCHYARD_DEVICE bool raised(const uint32_t* flag) const {
    constexpr uint32_t kPeriod = 61;
    num_looks_ = num_looks_ + 1 == kPeriod ? 0 : num_looks_ + 1;
    return num_looks_ == 0 && load_relaxed(flag) != 0;
  }

  template <class T>
  SWITCHYARD_DEVICE T read(const T* place) const {
    return *place;
  }
  template <class T>
  SWITCHYARD_DEVICE void write(T* place, T value) const {
    *place = value;
  }

  SWITCHYARD_DEVICE void push(const char* source, char* const* destinations, int num_destinations, size_t bytes) const {
    cuda_rows::push(source, destinations, num_destinations, bytes, uint32_t(lane()));
  }
  // Rows are written with plain stores, which the release that follows covers: nothing is left to wait for.
  SWITCHYARD_DEVICE void drain() const { sync_warp(); }

  // Of cooperative groups (device/coop.hpp). Gin drains and waits by the warp: its groups are warps and blocks here.
  template <class Coop>
  SWITCHYARD_DEVICE void copy_together(Coop coop, char* destination, const char* source, size_t bytes) const {
    cuda_rows::copy(destination, source, bytes, uint32_t(coop.thread_rank()), uint32_t(coop.size()));
  }
  template <class T>
  SWITCHYARD_DEVICE void store_relaxed_thread(T* word, T value) const {
    ptx::store_relaxed(word, value);
  }
  SWITCHYARD_DEVICE void add_release_thread(uint64_t* word, uint64_t value) const { ptx::fetch_add(word, value); }

  template <class T>
  SWITCHYARD_DEVICE T load_acquire_thread(const T* word) const {
    return ptx::load_acquire(word);
  }
  template <class T>
  SWITCHYARD_DEVICE T load_relaxed_thread(const T* word) const {
    return ptx::load_relaxed(word);
  }
  SWITCHYARD_DEVICE void store_release_thread(uint64_t* word, uint64_t value) const { ptx::store_release(word, value); }
  SWITCHYARD_DEVICE uint64_t fetch_add_thread(uint64_t* word, uint64_t value) const { return ptx::fetch_add(word, value); }
  SWITCHYARD_DEVICE void pause_thread(uint32_t) const { __nanosleep(100); }

  // Kernels on a GPU reach the network through the proxy only: without rings they are told by GinStatus::kFailed.
  SWITCHYARD_DEVICE bool net_put(const NetPath&, const NetPut&) const { return false; }
  SWITCHYARD_DEVICE bool net_put_value(const NetPath&, const NetPut&, uint64_t) const { return false; }
  SWITCHYARD_DEVICE bool net_flush(const NetPath&) const { return false; }
  SWITCHYARD_DEVICE void net_progress(const NetPath&) const {}
  SWITCHYARD_DEVICE bool net_usable(const NetPath&, int) const { return true; }

  SWITCHYARD_DEVICE void reduce(DType dtype, char* out, const char* const* sources, const float* weights,
                                int num_sources, size_t num_elements) const {
    const auto add_up = [&](auto body) {
      body(out, sources, weights, num_sources, uint32_t(num_elements), uint32_t(lane()));
    };
    if (dtype == DType::kBfloat16) add_up(cuda_rows::reduce<DType::kBfloat16>);
    else if (dtype == DType::kFloat16) add_up(cuda_rows::reduce<DType::kFloat16>);
    else add_up(cuda_rows::reduce<DType::kFloat32>);
  }
  // The row is read back from `out` by other lanes than wrote it, and may still be read from an earlier call.
  SWITCHYARD_DEVICE void quantise_fp8(const char* bf16, char* out, char* scales, size_t num_elements,
                                      bool round_scales) const {
    sync_warp();
    cuda_rows::quantise_fp8(reinterpret_cast<const uint16_t*>(bf16), reinterpret_cast<uint8_t*>(out),
                            reinterpret_cast<float*>(scales), uint32_t(num_elements), round_scales, uint32_t(lane()));
    sync_warp();
  }
  SWITCHYARD_DEVICE void encode_nvfp4(const char* bf16, char* packet, size_t num_elements, float global_scale) const {
    cuda_rows::encode_nvfp4(reinterpret_cast<const uint16_t*>(bf16), reinterpret_cast<uint8_t*>(packet), num_elements,
                            global_scale, uint32_t(lane()));
  }
  SWITCHYARD_DEVICE void reduce_nvfp4(char* out, const char* const* packets, const float* weights, int num_packets,
                                      size_t num_elements) const {
    cuda_rows::reduce_nvfp4(reinterpret_cast<uint16_t*>(out), packets, weights, num_packets, num_elements,
                            uint32_t(lane()));
  }

  SWITCHYARD_DEVICE bool stable_ranks(const int32_t* keys, int num_keys, int32_t* counts, int32_t* out,
                                      int32_t capacity = 0) const {
    bool all_fit = true;
    for (int first = 0; first < num_keys; first += kLanes) {
      const int i = first + lane();
      const int32_t key = i < num_keys ? keys[i] : -1;
      const uint32_t equals = __match_any_sync(kAllLanes, key);
      const int32_t before = key < 0 ? 0 : counts[key];
      const int32_t ordinal = before + __popc(equals & lanes_below());
      const bool fits = capacity <= 0 || ordinal < capacity;
      const uint32_t counted = __ballot_sync(kAllLanes, key >= 0 && fits) & equals;
      sync_warp();  // every lane has looked at its count: the first lane of a key may advance it
      if (key >= 0 && (equals & lanes_below()) == 0) counts[key] = before + __popc(counted);
      if (i < num_keys) out[i] = key < 0 || !fits ? -1 : (capacity > 0 ? key * capacity : 0) + ordinal;
      all_fit &= key < 0 || fits;
      sync_warp();  // the next 32 keys are counted on from here
    }
    return __all_sync(kAllLanes, all_fit) != 0;
  }
  SWITCHYARD_DEVICE void exclusive_scan(int32_t* values, int num_values) const {
    int32_t carry = 0;
    for (int first = 0; first < num_values; first += kLanes) {
      const int i = first + lane();
      const int32_t value = i < num_values ? values[i] : 0;
      int32_t sum = value;
#pragma unroll
      for (int distance = 1; distance < kLanes; distance *= 2) {
        const int32_t below = __shfl_up_sync(kAllLanes, sum, unsigned(distance));
        if (lane() >= distance) sum += below;
      }
      if (i < num_values) values[i] = carry + sum - value;
      carry += __shfl_sync(kAllLanes, sum, kLanes - 1);
    }
    sync_warp();
  }

  // Nanoseconds of a clock that only grows; equal in all lanes.
  SWITCHYARD_DEVICE uint64_t now_ns() const { return __shfl_sync(0xffffffffu, ptx::now_ns(), 0); }

  // Backs off from a fraction of a microsecond to half of one. The leader alone knows the time.
  class Waiter {
   public:
    SWITCHYARD_DEVICE Waiter(const CudaPlatform& /*platform*/, uint64_t timeout_ns, const uint32_t* abort)
        : timeout_ns_(timeout_ns), abort_(abort) {}
    SWITCHYARD_DEVICE void reset() { nap_ns_ = kMinNapNs; }
    SWITCHYARD_DEVICE bool pause(const CudaPlatform& platform) {
      __nanosleep(nap_ns_);
      nap_ns_ = nap_ns_ < kMaxNapNs ? 2 * nap_ns_ : kMaxNapNs;
      return platform.from_leader(int(platform.lane() == 0 && may_go_on())) != 0;
    }

   private:
    static constexpr uint32_t kMinNapNs = 32;
    static constexpr uint32_t kMaxNapNs = 512;
    static constexpr uint64_t kAbortLookNs = 1'000'000;  // the flag is in host memory, and every warp looks at it

    SWITCHYARD_DEVICE bool may_go_on() {
      const uint64_t now = ptx::now_ns();
      if (deadline_ns_ == 0) {
        deadline_ns_ = timeout_ns_ > ~uint64_t{0} - now ? ~uint64_t{0} : now + timeout_ns_;
        next_look_ns_ = now + kAbortLookNs;
      }
      if (now >= next_look_ns_) {
        next_look_ns_ = now + kAbortLookNs;
        if (ptx::load_relaxed(abort_) != 0) return false;
      }
      return now < deadline_ns_;
    }

    uint32_t nap_ns_ = kMinNapNs;
    uint64_t timeout_ns_;
    uint64_t deadline_ns_ = 0;  // from the first wait of the operation; progress does not renew it
    uint64_t next_look_ns_ = 0;
    const uint32_t* abort_;
  };

 private:
  static constexpr uint32_t kAllLanes = 0xffffffffu;

  template <class T>
  SWITCHYARD_DEVICE T from_leader(T value) const {
    return __shfl_sync(kAllLanes, value, 0);
  }
  SWITCHYARD_DEVICE uint32_t lanes_below() const { return (1u << lane()) - 1u; }

  mutable uint32_t num_looks_ = 0;  // since raised() last really looked; equal in all lanes
};

}  // namespace switchyard
