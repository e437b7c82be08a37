// The two sleeps of a stream (src/platform/host/stream.cc), extracted: the class itself is built on std::atomic and the
// kernel's futex, which no model can stand in for. Function by function the atomic operations are those of the source,
// in its order; the configure step refuses to go on when one of its lines changes (mutants.cmake).
//
// A futex: the kernel takes a lock, looks at the word, and sleeps until a wake-up that takes the lock later. The lock is
// a counter of wake-ups here, which every call modifies.
#pragma once
#include <cstdint>

#include "model/platform.hpp"

namespace switchyard::model {

enum class StreamMutant {
  kNone,
  kSleepIsStored,       // the worker's flag is stored, not exchanged
  kFlagIsOnlyLoaded,    // a poster loads the flag before it exchanges it
  kNoSecondLook,        // the worker sleeps without looking at the sequence once more
  kWakeBeforePost,      // a poster looks for sleepers before it advances the sequence
  kTicketIsOnlyLoaded,  // the worker loads the ticket
  kTicketIsStored,      // a synchronizer stores its ticket, overwriting an earlier one
  kTicketIsFutex,       // synchronizers sleep on the ticket, which may be set to the same value again
  kWakesReadLate,       // a synchronizer reads the count of wake-ups when its ticket is already set
  kRelaxedPost,         // posted stored relaxed: the task's slot may be read before it is filled
  kRelaxedCompletion,   // completed stored relaxed
};

struct StreamWords {
  uint64_t posted, completed, worker_sleeps, wake_at, num_wakes, stopping;
  uint64_t worker_lock, sync_lock;  // of the two futexes
  uint64_t slots[2];                  // plain: what a task is
  uint64_t results[2];                // plain: what it did
};

template <StreamMutant kMutant>
class StreamModel {
 public:
  StreamModel(const ModelPlatform& platform, StreamWords& words) : p_(platform), w_(words) {}

  // try_enqueue(). One poster: what the mutex adds is not modelled.
  void post(uint64_t sequence) {
    if (kMutant == StreamMutant::kWakeBeforePost) wake_worker();
    p_.write(&w_.slots[sequence], sequence + 100);
    if (kMutant == StreamMutant::kRelaxedPost) p_.store_relaxed(&w_.posted, sequence + 1);
    else p_.store_release(&w_.posted, sequence + 1);
    if (kMutant != StreamMutant::kWakeBeforePost) wake_worker();
  }

  // synchronize(), sleeping at once.
  void synchronize(uint64_t sequence) {
    while (know(sequence) && p_.load_acquire(&w_.completed) < sequence) sleep_until_completed(sequence);
    know(sequence);
    for (uint64_t task = 0; task < sequence; ++task) {
      p_.assert_that(p_.read(&w_.results[task]) == task + 200, "the task's effects are visible");
    }
  }

  // synchronize(), polling for ever.
  void poll_until_completed(uint64_t sequence) {
    while (know(sequence) && p_.load_acquire(&w_.completed) < sequence) p_.idle();
  }

  // The destructor.
  void stop() {
    p_.store_release(&w_.stopping, 1);
    wake_worker();
  }

  // work(), polling for ever.
  void poll_and_work(uint64_t num_tasks) {
    for (uint64_t next = 0; know(next) && next < num_tasks;) {
      if (p_.load_acquire(&w_.posted) != next) run_next(next++);
      else p_.idle();
    }
  }
  // work(), polling for no time.
  void work() {
    for (uint64_t next = 0; know(next);) {
      if (p_.load_acquire(&w_.posted) != next) run_next(next++);
      else if (p_.load_acquire(&w_.stopping) == 0) sleep_until_posted(next);
      else if (p_.load_acquire(&w_.posted) == next) return;
    }
  }

 private:
  // Marks places where this number is all that the thread still knows.
  bool know(uint64_t number) const {
    p_.set_history(number);
    return true;
  }

  void wake_worker() {
    if (kMutant == StreamMutant::kFlagIsOnlyLoaded && p_.load_acquire(&w_.worker_sleeps) == 0) return;
    if (exchange(&w_.worker_sleeps, 0) != 0) futex_wake(&w_.worker_lock);
  }

  void sleep_until_posted(uint64_t next) {
    if (kMutant == StreamMutant::kSleepIsStored) p_.store_release(&w_.worker_sleeps, 1);
    else exchange(&w_.worker_sleeps, 1);
    while ((kMutant == StreamMutant::kNoSecondLook || p_.load_acquire(&w_.posted) == next) &&
           p_.load_relaxed(&w_.stopping) == 0 && p_.load_relaxed(&w_.worker_sleeps) != 0) {
      futex_wait(&w_.worker_sleeps, 1, &w_.worker_lock);
    }
  }

  void run_next(uint64_t sequence) {
    p_.assert_that(p_.read(&w_.slots[sequence]) == sequence + 100, "the slot is filled");
    p_.write(&w_.results[sequence], sequence + 200);
    if (kMutant == StreamMutant::kRelaxedCompletion) p_.store_relaxed(&w_.completed, sequence + 1);
    else p_.store_release(&w_.completed, sequence + 1);
    const uint64_t ticket = kMutant == StreamMutant::kTicketIsOnlyLoaded
                                ? p_.load_acquire(&w_.wake_at)
                                : p_.modify_acq_rel(&w_.wake_at, [](uint64_t old) { return old; });
    if (ticket != 0 && ticket <= sequence + 1) {
      p_.store_release(&w_.wake_at, 0);
      p_.fetch_add_acq_rel(&w_.num_wakes, 1);
      futex_wake(&w_.sync_lock);
    }
  }

  // The compare-exchange loop is the read-modify-write that it ends with.
  void sleep_until_completed(uint64_t sequence) {
    uint64_t num_wakes = p_.load_acquire(&w_.num_wakes);
    uint64_t wanted = sequence;
    if (kMutant == StreamMutant::kTicketIsStored) {
      p_.store_release(&w_.wake_at, wanted);
    } else {
      const auto earlier = [=](uint64_t old) { return old == 0 || old > sequence ? sequence : old; };
      wanted = earlier(p_.modify_acq_rel(&w_.wake_at, earlier));
    }
    if (p_.load_acquire(&w_.completed) >= sequence) return;
    if (kMutant == StreamMutant::kWakesReadLate) num_wakes = p_.load_acquire(&w_.num_wakes);
    if (kMutant == StreamMutant::kTicketIsFutex) futex_wait(&w_.wake_at, wanted, &w_.sync_lock);
    else futex_wait(&w_.num_wakes, num_wakes, &w_.sync_lock);
  }

  uint64_t exchange(uint64_t* word, uint64_t value) const {
    return p_.modify_acq_rel(word, [=](uint64_t) { return value; });
  }
  void futex_wake(uint64_t* lock) const { p_.fetch_add_acq_rel(lock, 1); }
  void futex_wait(const uint64_t* word, uint64_t expected, uint64_t* lock) const {
    const uint64_t before = p_.fetch_add_acq_rel(lock, 0);
    if (p_.load_relaxed(word) != expected) return;
    while (p_.load_acquire(lock) == before) p_.idle();
  }

  const ModelPlatform& p_;
  StreamWords& w_;
};

}  // namespace switchyard::model
