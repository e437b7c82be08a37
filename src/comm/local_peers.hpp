// How ranks that are threads of one process find each other's memory without sending addresses over the wire: each
// publishes its address here under the key of the registration in progress, looks its peers up, and withdraws.
// Process-wide on purpose: threads of one process have nothing else in common.
//
// THREADS  any.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "comm/unique_id.hpp"

namespace switchyard {

class LocalPeers {
 public:
  struct Key {
    JobId job_id;
    uint64_t comm_id;
    uint32_t window_id;
    int rank;
    auto operator<=>(const Key&) const = default;
  };

  static LocalPeers& instance() {
    static LocalPeers peers;
    return peers;
  }

  void publish(const Key& key, char* address) {
    const std::lock_guard lock(mutex_);
    by_key_[key] = address;
  }
  void withdraw(const Key& key) {
    const std::lock_guard lock(mutex_);
    by_key_.erase(key);
  }
  // Null if that rank is not of this process.
  char* find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, char*> by_key_;
};

}  // namespace switchyard
