// The objects that C callers hold pointers to. A pointer is followed only while its object is alive, so that one that
// was destroyed before, or never made, is refused.
//
// THREADS    any.
// OWNERSHIP  shared: what is removed while another thread still works with it goes when that thread lets go of it.
// ERRORS     invalid argument, with the pointer and what it should have been.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "switchyard/status.hpp"

namespace switchyard::capi {

template <class T>
class Registry {
 public:
  // What a thread found last, for check().
  struct Seen {
    const T* pointer = nullptr;
    uint64_t num_removed = 0;
  };

  // `what` names the argument in messages.
  explicit Registry(const char* what) : what_(what) {}

  T* add(std::shared_ptr<T> object) {
    T* const pointer = object.get();
    const std::lock_guard lock(mutex_);
    alive_.emplace(pointer, std::move(object));
    return pointer;
  }

  Result<std::shared_ptr<T>> find(const T* pointer) const {
    const std::lock_guard lock(mutex_);
    const auto found = alive_.find(pointer);
    if (found == alive_.end()) return refuse(pointer);
    return found->second;
  }

  // Whoever drops the result may end the object (so, not under the lock).
  Result<std::shared_ptr<T>> remove(const T* pointer) {
    const std::lock_guard lock(mutex_);
    auto found = alive_.extract(pointer);
    if (found.empty()) return refuse(pointer);
    num_removed_.fetch_add(1, std::memory_order_release);  // pairs with acquire in check()
    return std::move(found.mapped());
  }

  // For calls that take a microsecond: what was alive is, as long as nothing was removed, and is not looked up again.
  [[gnu::hot]] Status check(const T* pointer, Seen& seen) const {
    // acquire; pairs with release in remove(). Read before the lookup, so that whatever is removed after it counts.
    const uint64_t num_removed = num_removed_.load(std::memory_order_acquire);
    if (pointer != nullptr && seen.pointer == pointer && seen.num_removed == num_removed) return {};
    SWITCHYARD_TRY(find(pointer).status());
    seen = {pointer, num_removed};
    return {};
  }

 private:
  Status refuse(const T* pointer) const {
    if (pointer == nullptr) return Status::invalid_argument(text(what_, " is NULL"));
    return Status::invalid_argument(text(what_, " ", pointer, " is not alive: it has ended already or was never made"));
  }

  const char* const what_;
  mutable std::mutex mutex_;
  std::map<const T*, std::shared_ptr<T>> alive_;
  std::atomic<uint64_t> num_removed_{0};
};

}  // namespace switchyard::capi
