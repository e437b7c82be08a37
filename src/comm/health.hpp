// Health: learns within a second that the process of a rank on this node is gone, and says so where kernels look.
//
// THREADS    any; one watching thread per communicator that has ranks in other processes.
// OWNERSHIP  owns the words; they live as long as the object.
#pragma once
#include <poll.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "platform/runtime.hpp"

namespace switchyard {

class Health {
 public:
  struct Watched {
    int rank;
    int64_t pid;
  };
  static Result<std::unique_ptr<Health>> create(Runtime& runtime, int num_ranks, std::span<const Watched> processes);
  ~Health();

  // For kernels: [num_ranks], not 0 once that rank is gone; and one word, not 0 after abort().
  const uint32_t* peer_state() const { return words_; }
  const uint32_t* abort_word() const { return words_ + num_ranks_; }
  // For what needs every rank, and can't tell whose absence holds up whom: not 0 after abort(), and once a rank has
  // died or the network does not join two of them any more. A rank that left had nothing to do any more.
  const uint32_t* incomplete_word() const { return words_ + num_ranks_ + 1; }

  void mark_gone(int rank);
  void mark_dead(int rank);
  void mark_incomplete();
  bool gone(int rank) const;
  // Makes every wait of this rank end. Returns at once; may be called from any thread, any number of times.
  void abort();
  bool aborted() const;

 private:
  Health(Runtime& runtime, int num_ranks) : runtime_(runtime), num_ranks_(num_ranks) {}
  void raise(int word);
  bool raised(int word) const;
  // The stop event comes first, then the processes of the ranks.
  void watch(const std::vector<int>& ranks, std::vector<pollfd>& polled) noexcept;

  Runtime& runtime_;
  uint32_t* words_ = nullptr;
  int num_ranks_;
  Fd stop_;
  std::thread watcher_;
};

}  // namespace switchyard
