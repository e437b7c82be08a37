// The explorer against the axioms: on random programs both must find the same outcomes, races and deadlocks, with and
// without the explorer's reductions.
#include "model/axioms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <random>

#include "model/platform.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

using Kind = Operation::Kind;

struct SmallWorld {
  std::array<uint64_t, kNumSmallWords> atomics;
  std::array<uint64_t, kNumSmallWords> plain;
};

std::string print(const SmallProgram& program) {
  constexpr const char* kKinds[] = {"load", "store", "add", "await", "read", "write"};
  std::string result;
  for (size_t t = 0; t < program.size(); ++t) {
    result += text("T", t, ":");
    for (const Operation& op : program[t]) {
      if (op.is_guarded) result += text(" if ", op.expected);
      result += text(" ", kKinds[int(op.kind)], "(", op.word, ", ", op.value, ", order ", int(op.order), ")");
    }
    result += "\n";
  }
  return result;
}

// Waits as a role, which forgets its failed steps; the alternative is a bare loop around idle().
struct AwaitRole {
  ModelPlatform* platform;
  const uint64_t* word;
  const Operation* operation;
  bool is_done = false;
  bool done() const { return is_done; }
  bool step() {
    const bool acquire = operation->order == Order::kAcquire;
    is_done = (acquire ? platform->load_acquire(word) : platform->load_relaxed(word)) == operation->value;
    return is_done;
  }
};

void await(ModelPlatform& p, const uint64_t* word, const Operation& operation) {
  AwaitRole role{&p, word, &operation};
  if (operation.value % 2 == 0) return run_roles(p, role);
  while (!role.step()) p.idle();
}

// Runs one thread; returns what its loads and additions returned.
void interpret(ModelPlatform& p, SmallWorld& world, const std::vector<Operation>& operations, SmallOutcome& returned) {
  uint64_t last = 0;
  size_t num_reads = 0;
  for (const Operation& op : operations) {
    const bool reads = op.kind == Kind::kLoad || op.kind == Kind::kAdd;
    uint64_t* const slot = reads ? &returned[num_reads++] : nullptr;
    if (op.is_guarded && last != op.expected) {
      if (reads) *slot = kNotRun;
      continue;
    }
    uint64_t* const atomic = &world.atomics[size_t(op.word)];
    uint64_t* const plain = &world.plain[size_t(op.word)];
    switch (op.kind) {
      case Kind::kLoad: last = op.order == Order::kAcquire ? p.load_acquire(atomic) : p.load_relaxed(atomic); break;
      case Kind::kStore:
        if (op.order == Order::kRelease) p.store_release(atomic, op.value);
        else p.store_relaxed(atomic, op.value);
        break;
      case Kind::kAdd:
        last =
            op.order == Order::kAcqRel ? p.fetch_add_acq_rel(atomic, op.value) : p.fetch_add_relaxed(atomic, op.value);
        break;
      case Kind::kAwait: await(p, atomic, op), last = op.value; break;
      case Kind::kPlainRead: p.read(plain); break;
      case Kind::kPlainWrite: p.write(plain, op.value); break;
    }
    if (reads) *slot = last;
  }
}

Allowed allowed_by_explorer(const SmallProgram& program, bool reduce) {
  Allowed allowed;
  std::vector<SmallOutcome> returned;
  for (const auto& thread : program) {
    const auto reads = [](const Operation& op) { return op.kind == Kind::kLoad || op.kind == Kind::kAdd; };
    returned.emplace_back(size_t(std::count_if(thread.begin(), thread.end(), reads)));
  }
  const Report report = explore(
      [&](Arena& arena) {
        auto* world = arena.make<SmallWorld>();
        Program model;
        for (size_t t = 0; t < program.size(); ++t) {
          model.threads.push_back(
              {text("T", t), [&, t, world](ModelPlatform& p) { interpret(p, *world, program[t], returned[t]); }});
        }
        model.check_at_end = [&, world] {
          SmallOutcome outcome;
          for (const SmallOutcome& part : returned) outcome.insert(outcome.end(), part.begin(), part.end());
          outcome.insert(outcome.end(), world->atomics.begin(), world->atomics.end());
          allowed.outcomes.insert(outcome);
          return std::string();
        };
        return model;
      },
      Options{.reduce = reduce});
  EXPECT_TRUE(report.exhaustive);
  allowed.has_race = report.violation && report.violation->fault == Fault::kDataRace;
  allowed.has_deadlock = report.violation && report.violation->fault == Fault::kDeadlock;
  EXPECT_EQ(report.violation.has_value(), allowed.has_race || allowed.has_deadlock) << report.to_string();
  return allowed;
}

// A wait is for a value that another thread stores, if there is one; most random waits would never end.
void aim_waits(SmallProgram& program, std::mt19937_64& random) {
  for (auto& thread : program) {
    for (Operation& wait : thread) {
      if (wait.kind != Kind::kAwait) continue;
      std::vector<Operation> stores;
      for (const auto& other : program) {
        const auto is_store = [](const Operation& op) { return op.kind == Kind::kStore; };
        if (&other != &thread) std::copy_if(other.begin(), other.end(), std::back_inserter(stores), is_store);
      }
      if (stores.empty()) {
        wait.kind = Kind::kLoad;
        continue;
      }
      const Operation& store = stores[random() % stores.size()];
      wait.word = store.word;
      wait.value = store.value;
    }
  }
}

SmallProgram random_program(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t count) { return random() % count; };
  // Half of the programs have plain data, half have waits.
  std::vector<Kind> kinds{Kind::kLoad, Kind::kLoad, Kind::kLoad, Kind::kStore, Kind::kStore, Kind::kStore, Kind::kAdd};
  if (seed % 2 == 0) kinds.insert(kinds.end(), {Kind::kPlainWrite, Kind::kPlainWrite, Kind::kPlainRead});
  if (seed % 4 < 2) kinds.insert(kinds.end(), 2, Kind::kAwait);
  SmallProgram program(2 + pick(2));
  const size_t num_operations = 5 + pick(3);
  // Few values, so that equal values come from different stores: what was read must not stand for where it came from.
  const uint64_t num_values = 1 + pick(3);
  for (size_t i = 0; i < num_operations; ++i) {
    auto& thread = program[pick(program.size())];
    Operation op{kinds[pick(kinds.size())], int(pick(kNumSmallWords)), Order::kRelaxed, 1 + pick(num_values)};
    const bool is_strong = pick(3) != 0;
    if (is_strong)
      op.order = op.kind == Kind::kStore ? Order::kRelease : op.kind == Kind::kAdd ? Order::kAcqRel : Order::kAcquire;
    const bool after_read = !thread.empty() && (thread.back().kind == Kind::kLoad || thread.back().kind == Kind::kAdd);
    op.is_guarded = after_read && op.kind != Kind::kAwait && pick(2) != 0;
    op.expected = pick(num_values + 1);
    thread.push_back(op);
  }
  aim_waits(program, random);
  return program;
}

// SWITCHYARD_MODEL_PROGRAMS sets how many programs are tried.
TEST(Axioms, AllowExactlyWhatTheExplorerFindsInRandomPrograms) {
  const char* const wanted = std::getenv("SWITCHYARD_MODEL_PROGRAMS");
  const uint64_t num_programs = wanted == nullptr ? 5000 : std::strtoull(wanted, nullptr, 10);
  uint64_t num_outcomes = 0, num_racy = 0, num_deadlocked = 0;
  for (uint64_t seed = 0; seed < num_programs; ++seed) {
    const SmallProgram program = random_program(seed);
    const Allowed expected = allowed_by_axioms(program);
    for (bool reduce : {true, false}) {
      SCOPED_TRACE(text("seed ", seed, ", reduce ", reduce, "\n", print(program)));
      const Allowed found = allowed_by_explorer(program, reduce);
      // The explorer stops at the first fault, so that it reports one of those there are.
      ASSERT_EQ(found.has_race || found.has_deadlock, expected.has_race || expected.has_deadlock);
      ASSERT_TRUE(expected.has_race || !found.has_race);
      ASSERT_TRUE(expected.has_deadlock || !found.has_deadlock);
      if (!found.has_race && !found.has_deadlock) {
        ASSERT_EQ(found.outcomes, expected.outcomes);
      }
    }
    num_outcomes += expected.outcomes.size();
    num_racy += expected.has_race;
    num_deadlocked += expected.has_deadlock;
  }
  std::cout << num_programs << " programs: " << num_outcomes << " outcomes, " << num_racy << " programs with a race, "
            << num_deadlocked << " with a deadlock\n";
  // Else the comparison would say little.
  EXPECT_GT(num_racy, num_programs / 20);
  EXPECT_GT(num_deadlocked, num_programs / 20);
  EXPECT_LT(num_racy + num_deadlocked, num_programs / 2);
}

}  // namespace
}  // namespace switchyard::model
