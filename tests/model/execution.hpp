// One run of a program under the explorer's direction: the threads as fibers, their memory, and what they wait for.
#pragma once
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/explorer.hpp"
#include "model/fiber.hpp"
#include "model/memory.hpp"

namespace switchyard::model {

// The thread that goes on, and the store that its pending load returns (Memory::choices).
struct Transition {
  uint8_t thread;
  uint16_t distance;
};

// What a courier does: it moves some bytes and then adds to a word that nobody else changes. Either may be left out.
struct Errand {
  const void* from;
  void* to;
  size_t num_bytes;
  uint64_t* word;
  uint64_t addend;
};

class Execution {
 public:
  // choose(n) picks one of n places for a store in modification order.
  Execution(const Program& program, Arena& arena, const Options& options, std::function<size_t(size_t)> choose);

  // --- for the explorer ---

  // Starts afresh and runs every thread up to its first choice. With a trace, the operations are written down.
  void begin(bool with_trace);
  // The thread does its pending load and runs up to its next one. REQUIRES transition is enabled.
  void run(Transition transition);
  void enabled(std::vector<Transition>& transitions);
  bool all_finished() const;
  // Nothing new can come of this execution.
  bool is_cut() const { return is_cut_; }
  const std::optional<Violation>& violation() const { return violation_; }
  void fail(Fault fault, std::string message);
  std::string describe_waits() const;
  std::vector<std::string> take_trace() { return std::move(trace_); }
  uint64_t fingerprint() const;
  uint64_t num_killed() const { return num_killed_; }  // in all executions so far

  // Where the last run() stored something that did not end up last in modification order.
  const LocationSet& insertions() const { return insertions_; }
  std::optional<int> pending_location(int thread) const;

  // --- for ModelPlatform, inside a fiber ---

  // Atomic words have 4 or 8 bytes; values are their bits, zero-extended.
  uint64_t load(int thread, const void* address, size_t num_bytes, Order order);
  void store(int thread, void* address, size_t num_bytes, uint64_t value, Order order);
  // A read-modify-write that stores update(old) and returns old.
  uint64_t modify(int thread, void* address, size_t num_bytes, const std::function<uint64_t(uint64_t)>& update,
                  Order order);
  // Checks the access; the caller then reads the bytes, or writes them with put().
  void plain(int thread, bool by_pipe, bool is_write, const void* address, size_t num_bytes);
  void put(void* address, const void* source, size_t num_bytes);
  Arena::Use use_of(const void* address) const {
    return arena_.contains(address, 1) ? arena_.use_of(address).use : Arena::Use::kShared;
  }
  void remember(int thread, const void* bytes, size_t num_bytes);
  void drain(int thread);
  // The courier does it at some time: after all errands that it was given before.
  void post(int thread, int courier, const Errand& errand);
  void idle(int thread);
  void assert_that(int thread, bool condition, std::string_view message);

  const uint64_t* clock() const { return program_.clock; }
  uint64_t history(int thread) const { return threads_[size_t(thread)]->history; }
  void set_history(int thread, uint64_t history) { threads_[size_t(thread)]->history = history; }
  void begin_round(int thread) { threads_[size_t(thread)]->polls.reset(); }
  // Marks where in a round the thread is; returns what forget_step() needs.
  uint64_t begin_step(int thread, uint64_t place);

 private:
  enum class Wait : uint8_t { kChoice, kTurn, kIdle, kParked, kFinished };

  struct ThreadState {
    Fiber fiber;
    Execution* execution = nullptr;
    int idx = 0;
    Wait wait = Wait::kFinished;
    int location = 0;          // kChoice: of the pending operation
    bool is_write = false;     // kChoice: a read-modify-write
    uint16_t distance = 0;     // kChoice: set by run()
    uint64_t history = 0;      // hash of everything read; with it the thread's local state is determined
    uint64_t place = 0;        // where in its round
    uint32_t writes_left = 0;  // to shared memory
    LocationSet polls;         // read since the round began
    std::array<uint16_t, kMaxLocations> read{};  // of each of them, the store that was read last
    LocationSet idle_polls;    // read in the round that ended in the last idle()
    bool stale_retry = false;  // since the last idle() nothing new was seen and nothing written
  };

  void start_thread(ThreadState& thread);
  void body(ThreadState& thread);
  void pause(ThreadState& thread, Wait wait);
  [[noreturn]] void park(ThreadState& thread);
  // Wakes every idle thread for which there is news. It then stands before its first load, which may still be old.
  void settle();
  bool has_news(const ThreadState& thread) const;
  // Of the words that the thread has read in this round, those that it would read otherwise now: what it read since has told it of
  // newer stores.
  LocationSet outdated(const ThreadState& thread) const;
  void count_write(ThreadState& thread);
  // Is this memory that needs no choices, the agent's own or constant? Ends the execution if it is another's. The agent is
  // the thread, or a courier of its.
  bool is_local(ThreadState& thread, int agent, const void* address, size_t num_bytes, bool is_write);
  bool is_local(ThreadState& thread, const void* address, size_t num_bytes, bool is_write) {
    return is_local(thread, thread.idx, address, num_bytes, is_write);
  }
  void access(ThreadState& thread, int agent, bool by_pipe, bool is_write, const void* address, size_t num_bytes);
  const std::string& name_of(int agent) const;
  uint64_t read_local(ThreadState& thread, const void* address, size_t num_bytes);
  int locate(ThreadState& thread, const void* address, size_t num_bytes);
  void check_ordered(ThreadState& thread, int location, const void* address, Order order);
  uint16_t await_choice(ThreadState& thread, int location, bool is_write);
  void turn(ThreadState& thread);
  void wrote(ThreadState& thread, int location);
  void count_operation(ThreadState& thread);
  template <class... Parts>
  void note(int thread, const Parts&... parts);

  const Program& program_;
  Arena& arena_;
  const Options& options_;
  std::function<size_t(size_t)> choose_;
  Memory memory_;
  std::vector<std::unique_ptr<ThreadState>> threads_;
  LocationSet insertions_;
  LocationSet added_to_;  // by a courier
  bool is_cut_ = false;
  std::optional<Violation> violation_;
  uint32_t num_operations_ = 0;
  uint64_t num_killed_ = 0;
  bool with_trace_ = false;
  std::vector<std::string> trace_;
  std::vector<uint16_t> distances_;
};

}  // namespace switchyard::model
