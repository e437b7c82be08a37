// KernelPlatform: what the library's kernels need of a platform, over the model's memory. One warp of width 1 a thread.
//
// Only the memory and the waiting are modelled. Rows are 16 bytes, and reduce() adds their two words as integers, so
// that results tell exactly which rows went in. Waits have no deadline: a wait that nobody ends is a deadlock, which the
// explorer reports.
//
// kTag keeps builds of differing protocol sources apart: templates over platforms with different tags are different
// symbols, so that one program can hold the protocol and deliberately broken copies of it.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "model/platform.hpp"
#include "switchyard/device/comm.hpp"
#include "switchyard/device/roles.hpp"
#include "switchyard/dtype.hpp"

namespace switchyard::model {

struct Cell {
  uint64_t code, twin;  // equal, unless something went wrong
};

// What NetPath::target is: where windows are, and which courier goes to whom.
struct ModelNetwork {
  struct Region {
    uint32_t id;
    std::vector<char*> bases;  // by rank
  };
  std::vector<Region> regions;
  int rank = 0;               // whose puts they are
  std::vector<int> couriers;  // by peer; -1: memory reaches it

  char* at(uint32_t id, int at_rank, uint64_t offset) const {
    for (const Region& region : regions) {
      if (region.id == id) return region.bases[size_t(at_rank)] + offset;
    }
    return nullptr;  // a bad access, when it is used
  }
};

// Roles of kernels, Role<Platform>, keep what they know in their own bytes. What wait_until() makes of a lambda may know
// something that is captured by reference.
template <class Role, class Platform>
constexpr bool kKeepsOwnState = false;
template <template <class> class Role, class Platform>
constexpr bool kKeepsOwnState<Role<Platform>, Platform> = true;

template <int kTag>
class KernelPlatform : public ModelPlatform {
 public:
  static constexpr int kLanes = 1;

  // notes: what the kernel keeps beside its roles, no memory of the arena; it clears that before it uses it.
  KernelPlatform(const ModelPlatform& base, int warp_idx, int num_warps, std::span<const std::byte> notes = {})
      : ModelPlatform(base), warp_idx_(warp_idx), num_warps_(num_warps), notes_(notes) {}

  int lane() const { return 0; }
  int warp_idx() const { return warp_idx_; }
  int num_warps() const { return num_warps_; }
  void sync_warp() const {}

  uint64_t fetch_add(uint64_t* word, uint64_t value) const { return fetch_add_acq_rel(word, value); }
  void add_release_thread(uint64_t* word, uint64_t value) const { fetch_add_acq_rel(word, value); }
  template <class T>
  void store_relaxed_thread(T* word, T value) const {
    store_relaxed(word, value);
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
  void pause_thread(uint32_t) const {}
  bool raised(const uint32_t* flag) const { return load_relaxed(flag) != 0; }
  bool store_once(uint64_t* word, uint64_t value) const {
    assert_that(execution_.use_of(word) == Arena::Use::kPrivate, "store_once() is modelled for private words only");
    if (load_relaxed(word) != 0) return false;
    store_relaxed(word, value);
    return true;
  }

  template <class T>
  void write(T* place, std::type_identity_t<T> value) const {
    if (is_noted(place)) *place = value;
    else ModelPlatform::write(place, value);
  }
  uint64_t hash_notes(uint64_t hash) const { return mix_bytes(hash, notes_.data(), notes_.size()); }

  void push(const char* source, char* const* destinations, int num_destinations, size_t num_bytes) const {
    for (int i = 0; i < num_destinations; ++i) ModelPlatform::push(source, destinations[i], num_bytes);
  }
  template <class Coop>
  void copy_together(Coop /*coop*/, char* destination, const char* source, size_t num_bytes) const {
    ModelPlatform::push(source, destination, num_bytes);
  }
  // Without weights each is 1. As a pipe may do it: sources are read, and the result is written, at any time before drain().
  void reduce(DType dtype, char* out, const char* const* sources, const float* weights, int num_sources,
              size_t num_elements) const {
    assert_that(num_elements * dtype_bytes(dtype) == sizeof(Cell), "rows of the model are one cell");
    Cell sum{};
    for (int i = 0; i < num_sources; ++i) {
      execution_.plain(thread_, true, false, sources[i], sizeof(Cell));
      Cell cell;
      std::memcpy(&cell, sources[i], sizeof cell);
      const uint64_t weight = weights == nullptr ? 1 : uint64_t(weights[i]);
      sum.code += weight * cell.code;
      sum.twin += weight * cell.twin;
    }
    execution_.plain(thread_, true, true, out, sizeof sum);
    execution_.put(out, &sum, sizeof sum);
  }

  uint64_t now_ns() const { return execution_.clock() == nullptr ? 0 : load_relaxed(execution_.clock()); }

  // The scans of the platforms' contract (platform/host.hpp), on memory that other warps may read.
  bool stable_ranks(const int32_t* keys, int num_keys, int32_t* counts, int32_t* out, int32_t capacity = 0) const {
    bool all_fit = true;
    for (int i = 0; i < num_keys; ++i) {
      const int32_t key = read(&keys[i]);
      const int32_t ordinal = key < 0 ? -1 : read(&counts[key]);
      const bool fits = key < 0 || capacity == 0 || ordinal < capacity;
      all_fit &= fits;
      if (key >= 0 && fits) write(&counts[key], ordinal + 1);
      write(&out[i], key < 0 || !fits ? -1 : (capacity > 0 ? key * capacity : 0) + ordinal);
    }
    return all_fit;
  }
  void exclusive_scan(int32_t* values, int num_values) const {
    int32_t sum = 0;
    for (int i = 0; i < num_values; ++i) {
      const int32_t value = read(&values[i]);
      write(&values[i], sum);
      sum += value;
    }
  }

  // Outside the model.
  template <class... Arguments>
  void quantise_fp8(const Arguments&...) const {
    assert_that(false, "rows of the model are not quantised");
  }
  template <class... Arguments>
  void encode_nvfp4(const Arguments&...) const {
    assert_that(false, "rows of the model are not quantised");
  }
  template <class... Arguments>
  void reduce_nvfp4(const Arguments&...) const {
    assert_that(false, "rows of the model are not quantised");
  }
  template <class... Arguments>
  bool net_put_value(const Arguments&...) const {
    assert_that(false, "couriers carry no values");
    return false;
  }
  bool net_flush(const NetPath&) const {
    assert_that(false, "couriers do not report");
    return false;
  }

  bool net_put(const NetPath& net, const NetPut& put) const {
    const auto& network = *static_cast<const ModelNetwork*>(net.target);
    post(network.couriers[size_t(put.peer)],
         {network.at(put.from_region, network.rank, put.from_offset), network.at(put.to_region, put.peer, put.to_offset),
          put.num_bytes, reinterpret_cast<uint64_t*>(network.at(put.signal_region, put.peer, put.signal_offset)),
          put.signal_value});
    return true;
  }
  void net_progress(const NetPath&) const {}
  bool net_usable(const NetPath&, int) const { return true; }

  class Waiter {
   public:
    Waiter(const KernelPlatform& platform, uint64_t /*timeout_ns*/, const uint32_t* /*abort*/) : platform_(platform) {}
    void reset() {
      platform_.execution_.begin_round(platform_.thread_);
      moved_ = false;
    }
    bool pause(const KernelPlatform& platform) {
      platform.idle();
      reset();
      return true;
    }
    // A role's step begins; `state` stands for all that the thread knows.
    void begin_step(const void* role, uint64_t state) {
      platform_.execution_.begin_step(platform_.thread_, reinterpret_cast<uintptr_t>(role) | (moved_ ? 1 : 0));
      platform_.set_history(state);
    }
    void end_step(bool moved) { moved_ |= moved; }

   private:
    const KernelPlatform& platform_;
    bool moved_ = false;  // some role, in this round
  };

 private:
  bool is_noted(const void* place) const {
    const auto* const first = static_cast<const std::byte*>(place);
    return first >= notes_.data() && first < notes_.data() + notes_.size();
  }

  int warp_idx_, num_warps_;
  std::span<const std::byte> notes_;
};

// The platform of one who posts to a descriptor ring. All that it knows while it waits for room, or for its flush, is
// its ticket: what it read in vain is forgotten. Tickets are drawn relaxed: the ring takes no order from there.
template <int kTag>
class ProducerPlatform : public KernelPlatform<kTag> {
 public:
  explicit ProducerPlatform(const ModelPlatform& base) : KernelPlatform<kTag>(base, 0, 1) {}

  uint64_t fetch_add_thread(uint64_t* word, uint64_t value) const {
    const uint64_t ticket = this->fetch_add_relaxed(word, value);
    this->execution_.begin_round(this->thread_);
    knows_ = this->history();
    return ticket;
  }
  void pause_thread(uint32_t /*num_pauses*/) const {
    this->idle();
    this->set_history(knows_);
  }

 private:
  mutable uint64_t knows_ = 0;
};

// A role with the explorer looking on.
template <class Role, class Waiter, class State>
struct Watched {
  Role& role;
  Waiter& waiter;
  const State& state;
  bool done() const { return role.done(); }
  bool step() {
    waiter.begin_step(&role, state());
    const bool moved = role.step();
    waiter.end_step(moved);
    return moved;
  }
};

// Found instead of the library's by the type of the platform: the library's loop, over roles that are looked at.
//
// Between steps a kernel's thread is where its roles' bytes, and its notes, say, whatever it read to get there. Telling the explorer so
// lets it recognise states that different orders of steps and polls in vain lead to.
template <int kTag, class... Roles>
void run_roles(const KernelPlatform<kTag>& platform, typename KernelPlatform<kTag>::Waiter& waiter, bool& expired,
               Roles&... roles) {
  using Platform = KernelPlatform<kTag>;
  const uint64_t before = platform.history();
  const auto state = [&] {
    if constexpr (!(kKeepsOwnState<Roles, Platform> && ...)) return platform.history();
    uint64_t hash = platform.hash_notes(before);
    ((hash = mix_bytes(hash, &roles, sizeof roles)), ...);
    return hash;
  };
  waiter.reset();
  const auto run = [&](auto... watched) { switchyard::run_roles(platform, waiter, expired, watched...); };
  run(Watched<Roles, typename Platform::Waiter, decltype(state)>{roles, waiter, state}...);
  platform.set_history(state());
}

}  // namespace switchyard::model
