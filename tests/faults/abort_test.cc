// Abort from another thread at any moment: it returns at once, every call of every rank ends, nothing leaks, nothing
// crashes.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "faults/life.hpp"
#include "platform/host/memory.hpp"
#include "platform/host/wait.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRanks = 3;
constexpr uint64_t kAbortNs = kSecond;     // the promise for abort() itself
constexpr uint64_t kEndNs = 5 * kSecond;   // for everything that was under way, on machines with other things to do

LifeOptions options_for(uint64_t draw) {
  LifeOptions options;
  options.masks = draw & 1;
  options.windows = draw & 2;
  options.layout = draw & 4 ? oracle::Layout::kExpertMajor : oracle::Layout::kRankMajor;
  // So long that nothing but the abort can end a wait in time.
  options.timeout_ns = options.comm_timeout_ns = 60 * kSecond;
  return options;
}

// A communicator that another thread may abort as soon as it is there. It stays until both are through with it.
class AbortTarget {
 public:
  void offer(Communicator* comm) {
    const std::lock_guard lock(mutex_);
    comm_ = comm;
  }
  // No effect before offer() or after withdraw(). Returns how long it took.
  uint64_t abort() {
    const std::lock_guard lock(mutex_);
    const uint64_t begin_ns = now_ns();
    if (comm_ != nullptr) comm_->abort("the test wants it");
    return now_ns() - begin_ns;
  }
  bool offered() {
    const std::lock_guard lock(mutex_);
    return comm_ != nullptr;
  }
  void withdraw() { offer(nullptr); }

 private:
  std::mutex mutex_;  // abort() is called with it held: a communicator must not go away meanwhile
  Communicator* comm_ = nullptr;
};

// Registers and gives back windows, makes and destroys groups, dispatches and combines, until something fails.
Status live_until_aborted(const LifeOptions& options, Communicator& comm, Life& scenario_of) {
  const auto stream = Stream::create();
  if (!stream.ok()) return stream.status();
  for (;;) {
    SWITCHYARD_ASSIGN(const std::unique_ptr<Communicator> split, comm.split(0, comm.rank()));
    SWITCHYARD_TRY(scenario_of.live_on(*split, {stream->get()}));
    if (!scenario_of.wrong().empty()) return Status::internal(scenario_of.wrong());
    (void)options;
  }
}

}  // namespace
}  // namespace switchyard::testing
