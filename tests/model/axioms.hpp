// The C++20 memory model as axioms, by brute force over candidate executions of a few operations. It shares nothing
// with the explorer's operational memory, so that each can be checked against the other.
//
// A candidate picks for every read the write it reads from and for every word a modification order. It counts if
//   program order and reads-from have no cycle (no load buffering),
//   happens-before never contradicts the order of accesses to one word (coherence), and
//   nothing lies between a read-modify-write and what it read (atomicity).
#pragma once
#include <cstdint>
#include <set>
#include <vector>

#include "model/memory.hpp"

namespace switchyard::model {

struct Operation {
  enum class Kind { kLoad, kStore, kAdd, kAwait, kPlainRead, kPlainWrite };
  Kind kind;
  int word;  // of the atomic words, or of the plain ones
  Order order;
  uint64_t value;           // stored, added or waited for
  bool is_guarded = false;  // takes place only if the thread's last atomic read returned `expected`
  uint64_t expected = 0;
};

using SmallProgram = std::vector<std::vector<Operation>>;
constexpr int kNumSmallWords = 2;

// What each load and addition returned (kNotRun for one that did not take place), by thread, then every word's last
// value.
using SmallOutcome = std::vector<uint64_t>;
constexpr uint64_t kNotRun = ~uint64_t(0);

struct Allowed {
  std::set<SmallOutcome> outcomes;
  bool has_race = false;
  bool has_deadlock = false;  // some execution leaves a thread waiting for a value that is not the word's last one
};

Allowed allowed_by_axioms(const SmallProgram& program);

}  // namespace switchyard::model
