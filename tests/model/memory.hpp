// The memory of the model: C++ atomics with relaxed, acquire and release order, and race detection for plain data.
//
// Every atomic word keeps its whole modification order. Each thread has a view: per word the newest store that happens
// before its next operation. A load may return that store or any later one in modification order, so that stale reads
// are choices like the interleaving is. A release store carries its writer's view and an acquire load that reads it
// joins it; a read-modify-write passes on what the store it replaces carried (release sequences of C++20). A store may
// be put anywhere in modification order after what its writer has seen, not only last, but never between a
// read-modify-write and the store that it read.
//
// That is the C++20 model without seq_cst, fences and consume, with one strengthening: a load returns only stores that
// were already executed. So load buffering (each of two threads reads the other's later store) is excluded, as in RC11.
// It could be seen only through a relaxed load whose value does not feed the later store; an acquire load rules it out.
//
// Plain data has no history: a read that is not ordered after the last write is a race, which ends the execution. Races
// are found by vector clocks, hence in every interleaving of the same reads-from relation. A word is either atomic or
// plain during one execution.
//
// What is posted to a network is carried by a courier, an agent with a view of its own that begins each errand after all
// that the poster had done and drained. The errand is done at once: that it may take any time shows in loads of its
// signal, which may return older values, and in races, because nothing orders the poster's later accesses after it.
//
// Rows that a thread pushes are moved by its pipe, an agent of its own: they count as the thread's own accesses only
// after drain(). So a publish without drain() is a race at the reader.
//
// THREADS  one operating-system thread.
#pragma once
#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "model/arena.hpp"

namespace switchyard::model {

constexpr int kMaxThreads = 8;
constexpr int kMaxCouriers = 8;
constexpr int kMaxLocations = 128;

// kPlain: of a word that is otherwise used atomically (Arena::Use::kMixed). It must be ordered after every store so far.
enum class Order : uint8_t { kRelaxed, kAcquire, kRelease, kAcqRel, kPlain };
constexpr bool acquires(Order order) { return order == Order::kAcquire || order == Order::kAcqRel; }
constexpr bool releases(Order order) { return order == Order::kRelease || order == Order::kAcqRel; }

using LocationSet = std::bitset<kMaxLocations>;

// Agents that access memory: thread t, its pipe, and couriers. Threads and couriers have views.
constexpr int kMaxViews = kMaxThreads + kMaxCouriers;
constexpr int kNumAgents = kMaxViews + kMaxThreads;
constexpr int courier_agent(int courier) { return kMaxThreads + courier; }
constexpr int pipe_of(int thread) { return kMaxViews + thread; }

// What happens before a point of the execution.
struct View {
  std::array<uint16_t, kMaxLocations> seen{};  // per location: the newest store (its index, in order of execution)
  std::array<uint16_t, kNumAgents> clock{};    // per agent: its accesses up to this time
};

// One access to a plain word, kept until every thread knows it.
struct PlainAccess {
  uint8_t agent;
  uint8_t byte_mask;
  bool is_write;
  uint16_t clock;
  uint32_t operation_idx;
};

// Every call must change the hash, also for a zero: the number of values counts.
constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  hash = hash * 0xd1342543de82ef95u + value + 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 32)) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 29);
}

inline uint64_t mix_bytes(uint64_t hash, const void* bytes, size_t num_bytes) {
  for (size_t done = 0; done < num_bytes; done += sizeof(uint64_t)) {
    uint64_t value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(bytes) + done, std::min(sizeof value, num_bytes - done));
    hash = mix(hash, value);
  }
  return hash;
}

class Memory {
 public:
  explicit Memory(Arena& arena);

  // Forgets everything; the arena's present bytes are the initial values.
  void begin(int num_threads);

  // The atomic word of 4 or 8 bytes at this address; its number is the same in every execution. Nothing if there are too
  // many words, if the bytes hold plain data, or if they were used as a word of another size.
  std::optional<int> location(const void* address, size_t num_bytes);
  const void* address_of(int location) const { return locations_[size_t(location)].address; }

  // Stores that this thread's next operation on a location may read (load), or may directly follow in modification
  // order (store, read-modify-write), as distances from what the thread has seen. Never empty.
  void choices(int thread, int location, bool is_write, std::vector<uint16_t>& distances) const;
  bool has_unseen(int thread, int location) const;
  // The newest store that the thread can't miss any more.
  uint16_t seen(int thread, int location) const { return views_[size_t(thread)].seen[size_t(location)]; }

  // REQUIRES of all three: distance is one of choices().
  uint64_t load(int thread, int location, uint16_t distance, Order order);
  void store(int thread, int location, uint16_t distance, uint64_t value, Order order);
  // Read-modify-write: returns the old value and stores update(old).
  template <class Update>
  uint64_t modify(int thread, int location, uint16_t distance, const Update& update, Order order) {
    const size_t place = position(size_t(location), views_[size_t(thread)]) + distance;
    const uint64_t old = load(thread, location, distance, order);
    insert_after(thread, location, place, update(old), true, order);
    return old;
  }

  // Did the last store() or modify() end up last in modification order?
  bool appended() const { return appended_; }
  uint64_t newest(int location) const { return locations_[size_t(location)].stores.back().value; }

  // Records an access to plain bytes and returns an earlier one with which it races, if there is one.
  // REQUIRES the range lies in one object of the arena.
  std::optional<PlainAccess> access(int thread, bool by_pipe, bool is_write, const void* address, size_t num_bytes,
                                    uint32_t operation_idx);
  bool holds_atomics(const void* address, size_t num_bytes) const;
  // Changes bytes that only one thread touches: no history, no races.
  void write_private(void* address, const void* source, size_t num_bytes);
  // What the thread has done and drained is before what the courier does next.
  void hand_over(int thread, int courier);
  void drain(int thread) { ++views_[size_t(thread)].clock[size_t(pipe_of(thread))]; }

  // Equal for states from which the live threads can see exactly the same: only stores that somebody may still read and
  // accesses that somebody may still race with count. Of a courier nothing else counts: before its next errand it learns
  // all that its poster knows.
  uint64_t fingerprint(const std::bitset<kMaxThreads>& live) const;

 private:
  struct Store {
    uint64_t value;
    uint16_t index;     // in order of execution; index into Location::position
    bool is_rmw;        // reads its predecessor, so that nothing may come between
    bool carries_view;  // heads or continues a release sequence
    uint32_t view_idx;  // into carried_views_
  };
  struct Location {
    std::byte* address;
    uint8_t num_bytes;
    size_t word_idx;
    std::vector<Store> stores;       // in modification order
    std::vector<uint16_t> position;  // store index -> place in modification order
  };
  using Floor = View;  // what all live threads have seen, as positions instead of store indices

  void reset_location(Location& location);
  size_t position(size_t location, const View& view) const {
    return locations_[location].position[view.seen[location]];
  }
  void join(View& into, const View& from) const;
  void insert_after(int thread, int location, size_t place, uint64_t value, bool is_rmw, Order order);
  std::optional<PlainAccess> access_word(size_t word_idx, const PlainAccess& access, const View& view);
  Floor floor_of(const std::bitset<kMaxThreads>& live) const;
  uint64_t hash_view(const View& view, const Floor& floor) const;
  uint64_t hash_plain(const Floor& floor) const;

  Arena& arena_;
  int num_threads_ = 0;
  std::vector<View> views_;
  std::vector<Location> locations_;        // found so far in any execution
  std::vector<int16_t> location_of_cell_;  // per 4 bytes, -1: none
  std::vector<View> carried_views_;
  std::vector<std::vector<PlainAccess>> accesses_;  // per word of the arena
  std::vector<uint32_t> plain_words_;               // words accessed as plain data in this execution
  std::vector<bool> is_plain_;
  std::vector<bool> is_atomic_;
  uint64_t private_hash_ = 0;  // of the changes to private words
  bool appended_ = false;
};

}  // namespace switchyard::model
