// Bootstrap: one rank's connection to the coordinator of its job, and through it to the other ranks, before and beside
// the fast paths. Exchanges are collective over any subset of the ranks; several may be under way at once under
// different communicator ids.
//
// Failure: the death of a rank fails all exchanges that include it, pending or later, at every other member, with an
// error that names it. An exchange that completed is not taken back. If the coordinator's process dies, everything
// fails and says so.
//
// THREADS    any thread may call any function at any time, except the destructor.
// OWNERSHIP  owns its connection and one thread that serves it. Destroy it when no call is under way.
// ERRORS     kRemoteError for peers and deadlines, kInvalidArgument and kInvalidUsage for the caller's own mistakes.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "comm/channel.hpp"
#include "comm/message.hpp"
#include "comm/unique_id.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

struct BootstrapEvent {
  enum class Kind { kRankDied, kRankLeft, kAborted, kCoordinatorLost, kUnreachable, kLeftNetwork };
  Kind kind{};
  int rank = -1;  // who died, left or aborted; or lost another
  std::string message{};
  bool unreachable = false;  // of a lost coordinator: its machine, or the way there; else its process ended
  uint64_t comm_id = 0;      // of the network that was left, or does not join two ranks any more ...
  int peer = -1;             // ... of which this is the other
  bool concerns_network() const { return kind == Kind::kUnreachable || kind == Kind::kLeftNetwork; }
};

class Bootstrap {
 public:
  // The communicator id of all ranks that connect() itself uses; free for the world communicator afterwards.
  static constexpr uint64_t kWorldCommId = ExchangeKey::kWorld;

  // Joins the job as one of its ranks. Returns when all num_ranks ranks have joined.
  // BLOCKING: until the deadline; the error then names the ranks that are missing.
  static Result<std::unique_ptr<Bootstrap>> connect(const UniqueId& id, int rank, int num_ranks, Deadline deadline);
  // Leaves in good order. BLOCKING: at most 1 s.
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }

  // Gives every member the blobs of all members, in the order of `members`.
  // REQUIRES: the same list of distinct world ranks, this one included, at all members and for all exchanges of a
  // comm_id; at most kMaxBlobBytes each and kMaxResultBytes together; one exchange at a time per comm_id and rank.
  // BLOCKING: until the deadline. After a missed deadline this rank can't use the comm_id any more: the others may
  // have completed the exchange, or may yet.
  Result<Blobs> exchange(uint64_t comm_id, std::span<const int> members, std::span<const std::byte> blob,
                         Deadline deadline);
  Status barrier(uint64_t comm_id, std::span<const int> members, Deadline deadline);

  // An exchange of plain values: structs without pointers and without padding that matters.
  template <class T>
  Result<std::vector<T>> exchange_values(uint64_t comm_id, std::span<const int> members, const T& value,
                                         Deadline deadline);
  // The same of lists, which may differ in length.
  template <class T>
  Result<std::vector<std::vector<T>>> exchange_lists(uint64_t comm_id, std::span<const int> members,
                                                     std::span<const T> list, Deadline deadline);

  // Ends the job for everyone: all calls of this rank return at once, those of the others as soon as the news travels.
  // BLOCKING: never.
  void abort(const std::string& reason);

  // The network of this name has lost that rank, which shall know, and not wait for this one. BLOCKING: never.
  void tell_unreachable(uint64_t comm_id, int rank, const std::string& why);
  // This rank was told so by that one, and has not left that network: both hear that it is certain, and of a network's
  // first such loss everybody. BLOCKING: never.
  void confirm_unreachable(uint64_t comm_id, int rank, const std::string& why);
  // This rank leaves the network of this name in good order: nobody has lost it. BLOCKING: never.
  void tell_left_network(uint64_t comm_id);

  // Ok, or why no exchange can work any more: aborted, or the coordinator is lost.
  Status health() const;
  // Ranks that died; those that left in good order don't count.
  std::vector<int> dead_ranks() const;
  // Ok while exchanges among these ranks can work; else why not: aborted, or who died or left.
  Status check_present(std::span<const int> members) const;
  // Ok, or why nothing is to be expected of that rank: it died or left, or nobody could tell.
  Status check_expected(int rank) const;

  // Calls the handler once for each event, also for deaths before now, from the bootstrap's own thread or from this
  // call. The handler must not block and must not call set_event_handler(). After set_event_handler(nullptr) it is not
  // running any more.
  void set_event_handler(std::function<void(const BootstrapEvent&)> handler);

 private:
  struct Pending {
    std::vector<int> members;
    bool done = false;
    Status status;
    Blobs blobs;
    std::vector<int> missing;
  };
  struct CommState {
    uint64_t next_sequence = 0;
    bool busy = false;
    Status broken;  // after a missed deadline
  };
  class Underway;
  struct Outgoing {
    FrameType type;
    std::vector<std::byte> payload;
  };

  Bootstrap(FrameChannel channel, Fd wakeup, int rank, int num_ranks);

  Status check_exchange(std::span<const int> members, std::span<const std::byte> blob) const;
  // With mutex_ held:
  Status check_members_alive(const ExchangeKey& key, std::span<const int> members) const;
  Status first_gone(std::span<const int> members) const;
  Status timed_out(const ExchangeKey& key, const Pending& pending, uint64_t waited_ns) const;
  void post(FrameType type, std::vector<std::byte> payload);
  void post_loss(uint64_t comm_id, int from, int to, const std::string& why);
  void fail_pending(const Status& status, int member = -1);
  void complete(ExchangeKey key, const std::function<void(Pending&)>& how);

  // The thread
  void run();
  void serve();
  bool flush_outbox();
  Status receive_frames();
  Status take_frame(const Frame& frame);
  Status take_result(const Frame& frame);
  void take_rank_gone(const Notice& notice);
  int next_heartbeat_ms();
  void break_all(BootstrapEvent::Kind kind, int rank, const Status& status);
  void report(const BootstrapEvent& event);

  const int rank_;
  const int num_ranks_;
  FrameChannel channel_;  // the thread's alone once it runs
  Fd wakeup_;             // an eventfd: post() makes it readable
  uint64_t heartbeat_due_ns_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // something of the below that a waiting exchange may care about
  std::vector<Outgoing> outbox_;
  bool stopping_ = false;
  Status broken_;
  std::vector<Status> gone_;  // by rank; ok while it is there
  std::vector<int> dead_;
  std::map<uint64_t, CommState> comms_;
  std::map<ExchangeKey, Pending*> pending_;  // each on the stack of its exchange()

  std::mutex handler_mutex_;  // held while the handler runs; taken before mutex_, never inside
  std::function<void(const BootstrapEvent&)> handler_;
  std::vector<BootstrapEvent> events_;  // all so far, for handlers that come late

  std::thread thread_;
};

template <class T>
Result<std::vector<T>> Bootstrap::exchange_values(uint64_t comm_id, std::span<const int> members, const T& value,
                                                  Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  SWITCHYARD_ASSIGN(const Blobs blobs, exchange(comm_id, members, std::as_bytes(std::span(&value, 1)), deadline));
  std::vector<T> values(blobs.size());
  for (size_t i = 0; i < blobs.size(); i++) {
    if (blobs[i].size() != sizeof(T)) {
      return Status::remote(text("rank ", members[i], " sent ", blobs[i].size(), " bytes where rank ", rank_,
                                 " expects ", sizeof(T), "; do all ranks run the same program in the same order?"));
    }
    std::memcpy(static_cast<void*>(&values[i]), blobs[i].data(), sizeof(T));
  }
  return values;
}

template <class T>
Result<std::vector<std::vector<T>>> Bootstrap::exchange_lists(uint64_t comm_id, std::span<const int> members,
                                                              std::span<const T> list, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  SWITCHYARD_ASSIGN(const Blobs blobs, exchange(comm_id, members, std::as_bytes(list), deadline));
  std::vector<std::vector<T>> lists(blobs.size());
  for (size_t i = 0; i < blobs.size(); i++) {
    if (blobs[i].size() % sizeof(T) != 0) {
      return Status::remote(text("rank ", members[i], " sent ", blobs[i].size(), " bytes where rank ", rank_,
                                 " expects pieces of ", sizeof(T), "; do all ranks run the same program in the same order?"));
    }
    lists[i].resize(blobs[i].size() / sizeof(T));
    if (!blobs[i].empty()) std::memcpy(static_cast<void*>(lists[i].data()), blobs[i].data(), blobs[i].size());
  }
  return lists;
}

}  // namespace switchyard
