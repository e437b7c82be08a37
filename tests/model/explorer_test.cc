// The explorer itself: against the axioms on random programs, and in what it does with waits, faults and limits.
#include "model/explorer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>

#include "model/axioms.hpp"
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
        last = op.order == Order::kAcqRel ? p.fetch_add_acq_rel(atomic, op.value) : p.fetch_add_relaxed(atomic, op.value);
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
          model.threads.push_back({text("T", t), [&, t, world](ModelPlatform& p) {
            interpret(p, *world, program[t], returned[t]);
          }});
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
    if (is_strong) op.order = op.kind == Kind::kStore ? Order::kRelease : op.kind == Kind::kAdd ? Order::kAcqRel : Order::kAcquire;
    const bool after_read = !thread.empty() && (thread.back().kind == Kind::kLoad || thread.back().kind == Kind::kAdd);
    op.is_guarded = after_read && op.kind != Kind::kAwait && pick(2) != 0;
    op.expected = pick(num_values + 1);
    thread.push_back(op);
  }
  aim_waits(program, random);
  return program;
}

TEST(Explorer, RandomProgramsBehaveExactlyAsTheAxiomsAllow) {
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

struct Waits {
  uint64_t flag, sleeping, wake, item;
};

Report explore_waits(const std::vector<std::function<void(ModelPlatform&, Waits&)>>& bodies, const Options& options = {}) {
  return explore(
      [&](Arena& arena) {
        auto* words = arena.make<Waits>();
        arena.name(&words->flag, "flag");
        arena.name(&words->sleeping, "sleeping");
        arena.name(&words->wake, "wake");
        arena.name(&words->item, "item");
        Program program;
        for (const auto& body : bodies) {
          program.threads.push_back({text("T", program.threads.size()), [=](ModelPlatform& p) { body(p, *words); }});
        }
        return program;
      },
      options);
}

std::optional<Fault> fault_of(const Report& report) {
  EXPECT_TRUE(report.exhaustive) << report.to_string();
  return report.violation ? std::optional(report.violation->fault) : std::nullopt;
}

TEST(Explorer, AWaitForAWordThatNobodyStoresIsADeadlock) {
  const Report report = explore_waits({[](auto& p, Waits& w) { while (p.load_acquire(&w.flag) == 0) p.idle(); },
                                       [](auto& p, Waits& w) { p.store_release(&w.item, 1); }});
  EXPECT_EQ(fault_of(report), Fault::kDeadlock);
  EXPECT_NE(report.violation->message.find("T0 waits on flag = 0"), std::string::npos) << report.to_string();
}

TEST(Explorer, AWaitThatIsServedEndsInEveryExecution) {
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { while (p.load_acquire(&w.flag) == 0) p.idle(); },
                                    [](auto& p, Waits& w) { p.store_release(&w.flag, 1); }})), std::nullopt);
}

TEST(Explorer, AReadBeforeTheLoopDoesNotHideADeadlock) {
  // The item gets news, but the loop does not read it.
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) {
                                      p.load_relaxed(&w.item);
                                      while (p.load_acquire(&w.flag) == 0) p.idle();
                                    },
                                    [](auto& p, Waits& w) { p.store_release(&w.item, 1); }})), Fault::kDeadlock);
}

TEST(Explorer, AWaitingThreadMaySeeAnyOfSeveralStores) {
  std::set<uint64_t> seen;
  const Report report = explore_waits({[&](auto& p, Waits& w) {
                                         uint64_t value;
                                         while ((value = p.load_acquire(&w.flag)) == 0) p.idle();
                                         seen.insert(value);
                                       },
                                       [](auto& p, Waits& w) { for (uint64_t v : {1, 2, 3}) p.store_release(&w.flag, v); }});
  EXPECT_EQ(fault_of(report), std::nullopt);
  EXPECT_EQ(seen, (std::set<uint64_t>{1, 2, 3}));
}

// A consumer says that it will sleep, looks once more, then waits to be woken; a producer publishes, then wakes whoever
// sleeps. Each side stores and then loads what the other stores, which release and acquire do not order.
template <bool kWithBarrier>
Report explore_sleeping_flag() {
  const auto barrier = [](ModelPlatform& p, Waits& w) { if (kWithBarrier) p.fetch_add_acq_rel(&w.flag, 0); };
  return explore_waits({[=](ModelPlatform& p, Waits& w) {
                          p.store_release(&w.sleeping, 1);
                          barrier(p, w);
                          if (p.load_acquire(&w.item) == 1) return;
                          while (p.load_acquire(&w.wake) == 0) p.idle();
                        },
                        [=](ModelPlatform& p, Waits& w) {
                          p.store_release(&w.item, 1);
                          barrier(p, w);
                          if (p.load_acquire(&w.sleeping) == 1) p.store_release(&w.wake, 1);
                        }});
}

TEST(Explorer, FindsTheLostWakeUpOfASleepingFlagWithoutAFullBarrier) {
  EXPECT_EQ(fault_of(explore_sleeping_flag<false>()), Fault::kDeadlock);
}
TEST(Explorer, AcceptsASleepingFlagWithAFullBarrier) { EXPECT_EQ(fault_of(explore_sleeping_flag<true>()), std::nullopt); }

TEST(Explorer, AnAssertionInAThreadIsReportedWithItsTrace) {
  const Report report = explore_waits({[](auto& p, Waits& w) { p.store_release(&w.flag, 5); },
                                       [](auto& p, Waits& w) { p.assert_that(p.load_acquire(&w.flag) == 5, "flag is set"); }});
  EXPECT_EQ(fault_of(report), Fault::kAssertion);
  EXPECT_EQ(report.violation->message, "T1: flag is set");
  EXPECT_EQ(report.violation->trace, (std::vector<std::string>{"#1 T0: store release flag = 5",
                                                              "#2 T1: load acquire flag -> 0 (newest is 5)",
                                                              "#2 T1: assertion fails: flag is set"}));
}

TEST(Explorer, ALoopWithoutIdleIsUnbounded) {
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { while (p.load_relaxed(&w.flag) == 0) {} }},
                                   Options{.max_operations = 100})), Fault::kUnbounded);
}

TEST(Explorer, AccessesOutsideTheArenaAreRefused) {
  uint64_t outside = 0;
  EXPECT_EQ(fault_of(explore_waits({[&](auto& p, Waits&) { p.load_acquire(&outside); }})), Fault::kBadAccess);
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.read(&w.item + 1); }})), Fault::kBadAccess);
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.push(&w.flag, &w.item, 16); }})), Fault::kBadAccess);
}

TEST(Explorer, AWordCannotBeAtomicAndPlain) {
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.store_release(&w.flag, 1), p.read(&w.flag); }})), Fault::kBadAccess);
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.read(&w.flag), p.store_release(&w.flag, 1); }})), Fault::kBadAccess);
}

// Waits for the flag, remembering in its own bytes what it saw last: failed steps are not without effect.
struct CachingRole {
  ModelPlatform* platform;
  Waits* words;
  uint64_t cached = 0;
  bool saw_one = false;
  bool done() const { return cached == 2; }
  bool step() {
    cached = platform->load_acquire(&words->flag);
    saw_one = saw_one || cached == 1;
    return done();
  }
};

TEST(Explorer, AFailedStepThatChangesItsRoleIsNotForgotten) {
  std::set<bool> saw_one;
  const Report report = explore_waits({[](auto& p, Waits& w) { p.store_release(&w.flag, 1), p.store_release(&w.flag, 2); },
                                       [&](ModelPlatform& p, Waits& w) {
                                         CachingRole role{&p, &w};
                                         run_roles(p, role);
                                         saw_one.insert(role.saw_one);
                                       }});
  EXPECT_EQ(fault_of(report), std::nullopt);
  EXPECT_EQ(saw_one, (std::set<bool>{false, true}));
}

TEST(Explorer, SaysWhenALimitStoppedIt) {
  const auto body = [](auto& p, Waits& w) { p.store_release(&w.flag, 1), p.load_acquire(&w.item), p.load_acquire(&w.flag); };
  const Report report = explore_waits({body, body, body}, Options{.max_executions = 3});
  EXPECT_FALSE(report.exhaustive);
  EXPECT_EQ(report.num_executions, 3u);
}

TEST(Explorer, RefusesProgramsWithoutThreads) { EXPECT_TRUE(explore_waits({}).violation); }

}  // namespace
}  // namespace switchyard::model
