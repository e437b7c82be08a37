// A network inside one thread, for tests of decorators: endpoints that copy at once, say what they were asked for, and
// can be told to have no room.
#pragma once
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "net/region_table.hpp"

namespace switchyard::testing {

class LoopNetwork {
 public:
  struct Sent {
    NetPut put;
    std::optional<uint64_t> value;
    std::vector<uint8_t> bytes;  // as they were sent
  };

  class Endpoint final : public NetEndpoint {
   public:
    Endpoint(LoopNetwork& network, int rank) : network_(network), rank_(rank) {}

    Status register_region(uint32_t id, void* memory, size_t num_bytes, Deadline) override {
      mine().add(id, memory, num_bytes);
      return {};
    }
    void deregister_region(uint32_t id) override { mine().forget(id); }
    NetPost put(const NetPut& put) override {
      return send(put, std::nullopt, mine().place(put.from_region, put.from_offset, put.num_bytes));
    }
    NetPost put_value(const NetPut& put, uint64_t value) override {
      return send(put, value, reinterpret_cast<const char*>(&value));
    }
    NetPost flush() override { return NetPost::kPosted; }
    NetPost deliver(Delivery&) override { return NetPost::kPosted; }
    bool progress() override { return false; }
    void catch_up() override {}
    uint64_t bytes_in_flight() const override { return 0; }
    bool usable(int peer) const override { return !lost && peer != lost_peer; }
    void abort() override { lost = true; }
    Status error() const override { return lost ? Status::remote("the loop network is lost") : Status(); }

    std::vector<Sent> sent;
    bool record = false;
    int num_busy = 0;    // so many posts find no room
    int busy_every = 0;  // and every so many-th
    bool lost = false;
    int lost_peer = -1;

   private:
    RegionTable& mine() { return network_.regions_[rank_]; }
    NetPost send(const NetPut& put, std::optional<uint64_t> value, const char* from) {
      if (!usable(put.peer)) return NetPost::kFailed;
      if (num_busy > 0 && num_busy-- > 0) return NetPost::kBusy;
      if (busy_every > 0 && ++num_posts_ % busy_every == 0) return NetPost::kBusy;
      RegionTable& there = network_.regions_[put.peer];
      if (put.num_bytes > 0) std::memcpy(there.place(put.to_region, put.to_offset, put.num_bytes), from, put.num_bytes);
      if (put.signal_value != 0) {
        std::atomic_ref(*there.word(put.signal_region, put.signal_offset))
            .fetch_add(put.signal_value, std::memory_order_release);
      }
      if (record) sent.push_back({put, value, {from, from + put.num_bytes}});
      return NetPost::kPosted;
    }

    LoopNetwork& network_;
    const int rank_;
    int num_posts_ = 0;
  };

 private:
  std::map<int, RegionTable> regions_;
};

}  // namespace switchyard::testing
