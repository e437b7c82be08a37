// ExchangeTable: the coordinator's memory of exchanges that are under way. No sockets, no clocks of its own: it takes
// what arrives and says what must be sent to whom.
//
// THREADS  one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "comm/message.hpp"

namespace switchyard {

// One payload for several ranks.
struct Announcement {
  FrameType type{};
  std::vector<std::byte> payload;
  std::vector<int> recipients;
};

class ExchangeTable {
 public:
  // A rank that has more exchanges open than this is out of its mind; the coordinator drops it.
  static constexpr size_t kMaxOpenPerRank = 256;

  // Takes a rank's request. Gives kResult for all members if it was the last one, kExchangeFailed for those who came
  // so far if the exchange can't work, else nothing. An error means that the sender itself misbehaves.
  Result<std::optional<Announcement>> add(int rank, ExchangeRequest request, uint64_t at_ns);

  // Forgets every exchange that includes this rank. Gives kMissing for those that wait in them: who leaves may have given
  // up on a rank that did not come, and the others shall hear which.
  std::vector<Announcement> drop_member(int rank);
  void clear() { entries_.clear(); }

  // kMissing for each member whose deadline is near.
  std::vector<Announcement> due_hints(uint64_t at_ns);
  // When due_hints() must be called next; the maximum if never.
  uint64_t next_hint_ns() const;

 private:
  struct Entry {
    std::vector<int> members;
    std::vector<std::optional<std::vector<std::byte>>> blobs;  // by member
    std::vector<uint64_t> hint_at_ns;                          // by member; the maximum if not waiting
    size_t num_arrived = 0;
    uint64_t num_blob_bytes = 0;
    Status failure;  // once it can't work any more; latecomers get it too
  };

  Announcement fail(ExchangeKey key, Entry& entry, Status status);
  static void add_hint(std::vector<Announcement>& hints, ExchangeKey key, Entry& entry, uint64_t until_ns);
  size_t num_open(int rank) const;

  std::map<ExchangeKey, Entry> entries_;
};

}  // namespace switchyard
