// ModelPlatform: the platform over which protocol templates compile to be explored. One object per thread.
//
// The memory operations are those of the library's platforms; each address must lie in the program's arena.
// run_roles() drives role objects the way a worker does.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>

#include "model/execution.hpp"

namespace switchyard::model {

class ModelPlatform {
 public:
  ModelPlatform(Execution& execution, int thread) : execution_(execution), thread_(thread) {}

  // Words of 4 or 8 bytes.
  template <class T>
  T load_acquire(const T* word) const {
    return load(word, Order::kAcquire);
  }
  template <class T>
  T load_relaxed(const T* word) const {
    return load(word, Order::kRelaxed);
  }
  template <class T>
  void store_release(T* word, std::type_identity_t<T> value) const {
    store(word, value, Order::kRelease);
  }
  template <class T>
  void store_relaxed(T* word, std::type_identity_t<T> value) const {
    store(word, value, Order::kRelaxed);
  }
  uint64_t fetch_add_acq_rel(uint64_t* word, uint64_t addend) const {
    return modify_acq_rel(word, [=](uint64_t old) { return old + addend; });
  }
  uint64_t fetch_add_relaxed(uint64_t* word, uint64_t addend) const {
    return execution_.modify(thread_, word, sizeof *word, [=](uint64_t old) { return old + addend; }, Order::kRelaxed);
  }
  // Any read-modify-write: an exchange, or what a compare-exchange loop ends with.
  uint64_t modify_acq_rel(uint64_t* word, const std::function<uint64_t(uint64_t)>& update) const {
    return execution_.modify(thread_, word, sizeof *word, update, Order::kAcqRel);
  }

  template <class T>
  T read(const T* place) const {
    check_plain<T>();
    if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
      if (execution_.use_of(place) == Arena::Use::kMixed) return load(place, Order::kPlain);
    }
    execution_.plain(thread_, false, false, place, sizeof(T));
    execution_.remember(thread_, place, sizeof(T));
    return *place;
  }
  template <class T>
  void write(T* place, std::type_identity_t<T> value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
      if (execution_.use_of(place) == Arena::Use::kMixed) return store(place, value, Order::kPlain);
    }
    execution_.plain(thread_, false, true, place, sizeof(T));
    execution_.put(place, &value, sizeof(T));
  }
  // The row moves at some time before the next drain(): until then its source must not change, and nothing that the
  // thread publishes covers it.
  void push(const void* source, void* destination, size_t num_bytes) const {
    execution_.plain(thread_, true, false, source, num_bytes);
    execution_.plain(thread_, true, true, destination, num_bytes);
    execution_.put(destination, source, num_bytes);
  }
  void drain() const { execution_.drain(thread_); }
  // Gives a courier an errand, which it does at any time after those it was given before.
  void post(int courier, const Errand& errand) const { execution_.post(thread_, courier, errand); }

  // What the thread knows, as a hash of all that it has read. set_history() says that it knows as much as a hash of
  // something else tells: what it does next depends on that, on its place in the program and on memory alone.
  uint64_t history() const { return execution_.history(thread_); }
  void set_history(uint64_t history) const { execution_.set_history(thread_, history); }

  // Nothing moved in this round: sleep until a word that it read has news.
  void idle() const { execution_.idle(thread_); }
  void assert_that(bool condition, std::string_view message) const { execution_.assert_that(thread_, condition, message); }

 private:
  template <class Role>
  friend bool step_role(const ModelPlatform& platform, Role& role, uint64_t place);
  template <class... Roles>
  friend void run_roles(ModelPlatform& platform, Roles&... roles);

  template <class T>
  static constexpr void check_plain() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  }

  template <class T>
  static constexpr void check_word() {
    static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  }
  template <class T>
  T load(const T* word, Order order) const {
    check_word<T>();
    return T(execution_.load(thread_, word, sizeof(T), order));
  }
  template <class T>
  void store(T* word, T value, Order order) const {
    check_word<T>();
    execution_.store(thread_, word, sizeof(T), uint64_t(std::make_unsigned_t<T>(value)), order);
  }

 protected:
  Execution& execution_;
  int thread_;
};

// One step. If it did not move and left the role's bytes as they were, what it read is forgotten, so that a thread that
// polled in vain is in the same state as one that did not poll. Roles that are not plain bytes are never forgotten for:
// the search stays right and becomes larger. REQUIRES that a role keeps its local state in its own bytes.
template <class Role>
bool step_role(const ModelPlatform& platform, Role& role, uint64_t place) {
  std::array<std::byte, sizeof(Role)> before;
  std::memcpy(before.data(), static_cast<const void*>(&role), sizeof(Role));
  const uint64_t mark = platform.execution_.begin_step(platform.thread_, place);
  if (role.step()) return true;
  if constexpr (std::is_trivially_copyable_v<Role>) {
    if (std::memcmp(before.data(), static_cast<const void*>(&role), sizeof(Role)) == 0) {
      platform.set_history(mark);  // what the step read is forgotten
    }
  }
  return false;
}

// Goes round-robin over roles until all are done(), as one worker of a CPU does. A role has bool step() and
// bool done() const. To let roles run as freely as the warps of a GPU, give each its own Thread.
template <class... Roles>
void run_roles(ModelPlatform& platform, Roles&... roles) {
  for (;;) {
    bool moved = false;
    bool all_done = true;
    uint64_t role_idx = 0;
    platform.execution_.begin_round(platform.thread_);
    const auto turn = [&](auto& role) {
      ++role_idx;
      if (role.done()) return;
      all_done = false;
      if (step_role(platform, role, 2 * role_idx + (moved ? 1 : 0))) moved = true;
    };
    (turn(roles), ...);
    if (all_done) return;
    if (!moved) platform.idle();
  }
}

}  // namespace switchyard::model
