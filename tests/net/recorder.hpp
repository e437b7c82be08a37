// An endpoint that takes down what it is given.
#pragma once
#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "net/net.hpp"

namespace switchyard::testing {

class Recorder : public NetEndpoint {
 public:
  struct Posted {
    NetPut put;
    uint64_t value;
    bool is_value;
  };

  Status register_region(uint32_t, void*, size_t, Deadline) override { return {}; }
  void deregister_region(uint32_t) override {}
  NetPost put(const NetPut& put) override { return take({put, 0, false}); }
  size_t put_chain(std::span<const NetPut> puts, NetPost& result) override {
    const size_t num_posted = NetEndpoint::put_chain(puts, result);
    const std::lock_guard lock(mutex_);
    if (num_posted > 0) chains_.push_back(puts.size());
    return num_posted;
  }
  NetPost put_value(const NetPut& put, uint64_t value) override { return take({put, value, true}); }
  NetPost flush() override { return flushed_ ? NetPost::kPosted : NetPost::kBusy; }
  NetPost deliver(Delivery&) override { return flush(); }
  bool progress() override { return false; }
  void catch_up() override {}
  uint64_t bytes_in_flight() const override { return bytes_in_flight_; }
  bool usable(int peer) const override { return peer != lost_peer_; }
  void abort() override {}
  Status error() const override { return {}; }
  Status why_lost(int peer) const override { return last_asked_ = peer, Status(); }

  std::vector<Posted> posted() {
    const std::lock_guard lock(mutex_);
    return posted_;
  }
  void forget_all() {
    const std::lock_guard lock(mutex_);
    posted_.clear();
    chains_.clear();
  }
  // As they were asked for, where at least a part was taken.
  std::vector<size_t> chains() {
    const std::lock_guard lock(mutex_);
    return chains_;
  }
  std::atomic<bool> busy_{false}, flushed_{true};
  std::atomic<int> busy_after_{-1};  // so many posts; -1: never
  std::atomic<uint64_t> bytes_in_flight_{0};
  std::atomic<int> lost_peer_{-1};
  mutable std::atomic<int> last_asked_{-1};  // why it is lost
  std::atomic<uint32_t> refused_region_{0};  // puts from there fail

 private:
  NetPost take(const Posted& what) {
    if (busy_) return NetPost::kBusy;
    if (busy_after_ == 0) return busy_ = true, NetPost::kBusy;
    if (what.put.peer == lost_peer_) return NetPost::kFailed;
    if (refused_region_ != 0 && what.put.from_region == refused_region_) return NetPost::kFailed;
    const std::lock_guard lock(mutex_);
    posted_.push_back(what);
    if (busy_after_ > 0) --busy_after_;
    return NetPost::kPosted;
  }
  std::mutex mutex_;
  std::vector<Posted> posted_;
  std::vector<size_t> chains_;
};

}  // namespace switchyard::testing
