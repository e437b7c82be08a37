// explore(): runs a small concurrent program in every way the memory model allows and reports the first fault.
//
//   Report report = explore([](Arena& arena) {
//     auto* flag = arena.make<uint64_t>();
//     arena.name(flag, "flag");
//     return Program{{{"writer", [=](ModelPlatform& p) { p.store_release(flag, 1); }},
//                     {"reader", [=](ModelPlatform& p) { while (p.load_acquire(flag) == 0) p.idle(); }}}, {}};
//   });
//   EXPECT_FALSE(report.violation) << report.to_string();
//
// The program is built once and run many times, so a thread's body keeps its state in locals (which must not own
// memory: an execution that is cut short is not unwound) and all shared state lives in the arena. Bodies must be
// deterministic functions of what they read through the platform. They may write outcomes to captured variables for
// check_at_end.
//
// SEARCH     Depth-first re-execution over a stack of choices: which thread does its next load, which store that load
//            returns, and where in modification order a store goes if several threads write the word. Three reductions,
//            none of which loses a reachable fault:
//            - Threads are switched only before loads and read-modify-writes. A store needs no such point because loads
//              may return older stores anyway, and plain accesses need none because races do not depend on the
//              interleaving.
//            - Sleep sets: steps of different threads commute (a store may go anywhere in modification order whoever
//            runs
//              first), so that only one of their orders is followed. Only what a step makes readable is new.
//            - Visited states, by a 64-bit fingerprint of what threads have read so far and of what they may still see.
//              (A collision could hide states: at 10 million states its probability is 3 in a million.)
// SPINNING   A thread that calls idle() sleeps until one of the words it read in its last round has a store that it has
//            not seen; only then could the next round differ. (Or what it read later in the round has told it of such a store:
//            then it goes on at once.) The round that follows may still return old values, but
//            if it ends in idle() having seen nothing new, it was a repetition and the execution is cut: the same state
//            is explored without it. So there are no infinite paths, and every value that the memory model allows is
//            still returned in some execution. When no thread can go on and not all are finished, each waits for
//            something that no one will ever store: a deadlock. This assumes that a round which ends in idle() has no
//            effect but what its reads decide; code that counts its failed rounds is outside the model.
//
// THREADS    explore() may run in several operating-system threads at once.
// ERRORS     violations are returned in the Report; nothing throws.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "model/arena.hpp"

namespace switchyard::model {

class ModelPlatform;

struct Thread {
  std::string name;
  std::function<void(ModelPlatform&)> body;
  // The thread ends, as if it were killed, before it would write to shared memory once more.
  uint32_t max_shared_writes = UINT32_MAX;
};

struct Program {
  std::vector<Thread> threads;
  // Called after each execution that ran to its end; a text that is not empty is an assertion violated. The arena then
  // holds every word's last value. May be left out.
  std::function<std::string()> check_at_end;
  // Those who carry what threads post to a network (ModelPlatform::post()), by name; each for one thread.
  std::vector<std::string> couriers = {};
  // What platforms' now_ns() reads. A thread of the program may advance it; without one, time stands still.
  const uint64_t* clock = nullptr;
};

struct Options {
  uint64_t max_executions = UINT64_MAX;
  uint64_t time_limit_ns = 120 * kSecond;
  uint32_t max_operations = 20'000;  // in one execution; more means a loop without idle()
  bool reduce = true;                // false: no reductions, a switch before every operation; to check the explorer
};

enum class Fault { kAssertion, kDataRace, kDeadlock, kBadAccess, kUnbounded };
const char* fault_name(Fault fault);

struct Violation {
  Fault fault;
  std::string message;
  std::vector<std::string> trace;  // the whole execution, one operation a line
};

struct Report {
  uint64_t num_executions = 0;
  uint64_t num_states = 0;  // distinct; 0 without reductions
  size_t max_depth = 0;     // choices on the longest path
  double seconds = 0;
  uint64_t num_killed = 0;  // times that a thread reached its max_shared_writes
  bool exhaustive = false;  // everything was explored, or a violation was found before any limit
  std::optional<Violation> violation;
  std::string to_string() const;
};

// REQUIRES 1..8 threads, at most 8 couriers and 128 atomic words. BLOCKING until done or until the options' limits.
Report explore(const std::function<Program(Arena&)>& make_program, const Options& options = {});

}  // namespace switchyard::model
