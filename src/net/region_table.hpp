// The regions of an endpoint as its decorators know them: where they are on this rank, and how far they reach on every
// rank (registrations are collective and have one size).
//
// THREADS    one at a time; the decorator's lock.
// OWNERSHIP  none of the memory.
#pragma once
#include <cstdint>
#include <map>

#include "base/checked.hpp"
#include "net/net.hpp"

namespace switchyard {

class RegionTable {
 public:
  void add(uint32_t id, void* memory, uint64_t num_bytes) { regions_[id] = {static_cast<char*>(memory), num_bytes}; }
  // Its number is remembered: ids are never used twice, so a peer that names it meant what was there.
  void retire(uint32_t id) { regions_[id].memory = nullptr; }
  void forget(uint32_t id) { regions_.erase(id); }

  bool retired(uint32_t id) const {
    const auto found = regions_.find(id);
    return found != regions_.end() && found->second.memory == nullptr;
  }
  // Address of a part of this rank's region; null if there is no such region or it does not reach that far.
  char* place(uint32_t id, uint64_t offset, uint64_t num_bytes) const {
    const auto found = regions_.find(id);
    if (found == regions_.end() || found->second.memory == nullptr) return nullptr;
    return range_fits(offset, num_bytes, found->second.num_bytes) ? found->second.memory + offset : nullptr;
  }
  // The 8 bytes of a signal; null also where they are not aligned.
  uint64_t* word(uint32_t id, uint64_t offset) const {
    return offset % sizeof(uint64_t) == 0 ? reinterpret_cast<uint64_t*>(place(id, offset, sizeof(uint64_t))) : nullptr;
  }
  // Do all places that the put names exist? One that brings its value along has no source.
  bool accepts(const NetPut& put, int num_ranks, bool value) const {
    if (put.peer < 0 || put.peer >= num_ranks) return false;
    if (put.signal_value != 0 && word(put.signal_region, put.signal_offset) == nullptr) return false;
    if (value) {
      return put.num_bytes > 0 && put.num_bytes <= sizeof(uint64_t) &&
             place(put.to_region, put.to_offset, put.num_bytes) != nullptr;
    }
    return put.num_bytes == 0 || (place(put.to_region, put.to_offset, put.num_bytes) != nullptr &&
                                  place(put.from_region, put.from_offset, put.num_bytes) != nullptr);
  }

 private:
  struct Region {
    char* memory;  // null: no longer registered
    uint64_t num_bytes;
  };
  std::map<uint32_t, Region> regions_;
};

}  // namespace switchyard
