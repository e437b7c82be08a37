// What the explorer does with waits, faults and limits.
#include "model/explorer.hpp"

#include <gtest/gtest.h>

#include <set>

#include "model/platform.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

struct Waits {
  uint64_t flag, sleeping, wake, item;
};

Report explore_waits(const std::vector<std::function<void(ModelPlatform&, Waits&)>>& bodies,
                     const Options& options = {}) {
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
  const Report report = explore_waits({[](auto& p, Waits& w) {
                                         while (p.load_acquire(&w.flag) == 0) p.idle();
                                       },
                                       [](auto& p, Waits& w) { p.store_release(&w.item, 1); }});
  EXPECT_EQ(fault_of(report), Fault::kDeadlock);
  EXPECT_NE(report.violation->message.find("T0 waits on flag = 0"), std::string::npos) << report.to_string();
}

TEST(Explorer, AWaitThatIsServedEndsInEveryExecution) {
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) {
                                      while (p.load_acquire(&w.flag) == 0) p.idle();
                                    },
                                    [](auto& p, Waits& w) { p.store_release(&w.flag, 1); }})),
            std::nullopt);
}

TEST(Explorer, AWordThatWasReadTooEarlyIsReadAgain) {
  // The item may be read before it is stored, and the flag after; nothing is stored after that.
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) {
                                      for (;;) {
                                        const bool has_item = p.load_relaxed(&w.item) != 0;
                                        if (p.load_acquire(&w.flag) != 0 && has_item) break;
                                        p.idle();
                                      }
                                    },
                                    [](auto& p, Waits& w) {
                                      p.store_relaxed(&w.item, 1);
                                      p.store_release(&w.flag, 1);
                                    }})),
            std::nullopt);
}

TEST(Explorer, AReadBeforeTheLoopDoesNotHideADeadlock) {
  // The item gets news, but the loop does not read it.
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) {
                                      p.load_relaxed(&w.item);
                                      while (p.load_acquire(&w.flag) == 0) p.idle();
                                    },
                                    [](auto& p, Waits& w) { p.store_release(&w.item, 1); }})),
            Fault::kDeadlock);
}

TEST(Explorer, AWaitingThreadMaySeeAnyOfSeveralStores) {
  std::set<uint64_t> seen;
  const Report report = explore_waits({[&](auto& p, Waits& w) {
                                         uint64_t value;
                                         while ((value = p.load_acquire(&w.flag)) == 0) p.idle();
                                         seen.insert(value);
                                       },
                                       [](auto& p, Waits& w) {
                                         for (uint64_t v : {1, 2, 3}) p.store_release(&w.flag, v);
                                       }});
  EXPECT_EQ(fault_of(report), std::nullopt);
  EXPECT_EQ(seen, (std::set<uint64_t>{1, 2, 3}));
}

// A consumer says that it will sleep, looks once more, then waits to be woken; a producer publishes, then wakes whoever
// sleeps. Each side stores and then loads what the other stores, which release and acquire do not order.
template <bool kWithBarrier>
Report explore_sleeping_flag() {
  const auto barrier = [](ModelPlatform& p, Waits& w) {
    if (kWithBarrier) p.fetch_add_acq_rel(&w.flag, 0);
  };
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
TEST(Explorer, AcceptsASleepingFlagWithAFullBarrier) {
  EXPECT_EQ(fault_of(explore_sleeping_flag<true>()), std::nullopt);
}

TEST(Explorer, AnAssertionInAThreadIsReportedWithItsTrace) {
  const Report report =
      explore_waits({[](auto& p, Waits& w) { p.store_release(&w.flag, 5); },
                     [](auto& p, Waits& w) { p.assert_that(p.load_acquire(&w.flag) == 5, "flag is set"); }});
  EXPECT_EQ(fault_of(report), Fault::kAssertion);
  EXPECT_EQ(report.violation->message, "T1: flag is set");
  EXPECT_EQ(report.violation->trace,
            (std::vector<std::string>{"#1 T0: store release flag = 5", "#2 T1: load acquire flag -> 0 (newest is 5)",
                                      "#2 T1: assertion fails: flag is set"}));
}

TEST(Explorer, ALoopWithoutIdleIsUnbounded) {
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) {
                                     while (p.load_relaxed(&w.flag) == 0) {
                                     }
                                   }},
                                   Options{.max_operations = 100})),
            Fault::kUnbounded);
}

TEST(Explorer, AccessesOutsideTheArenaAreRefused) {
  uint64_t outside = 0;
  EXPECT_EQ(fault_of(explore_waits({[&](auto& p, Waits&) { p.load_acquire(&outside); }})), Fault::kBadAccess);
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.read(&w.item + 1); }})), Fault::kBadAccess);
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.push(&w.flag, &w.item, 16); }})), Fault::kBadAccess);
}

TEST(Explorer, AWordCannotBeAtomicAndPlain) {
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.store_release(&w.flag, 1), p.read(&w.flag); }})),
            Fault::kBadAccess);
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) { p.read(&w.flag), p.store_release(&w.flag, 1); }})),
            Fault::kBadAccess);
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
  const Report report =
      explore_waits({[](auto& p, Waits& w) { p.store_release(&w.flag, 1), p.store_release(&w.flag, 2); },
                     [&](ModelPlatform& p, Waits& w) {
                       CachingRole role{&p, &w};
                       run_roles(p, role);
                       saw_one.insert(role.saw_one);
                     }});
  EXPECT_EQ(fault_of(report), std::nullopt);
  EXPECT_EQ(saw_one, (std::set<bool>{false, true}));
}

TEST(Explorer, SaysWhenALimitStoppedIt) {
  const auto body = [](auto& p, Waits& w) {
    p.store_release(&w.flag, 1), p.load_acquire(&w.item), p.load_acquire(&w.flag);
  };
  const Report report = explore_waits({body, body, body}, Options{.max_executions = 3});
  EXPECT_FALSE(report.exhaustive);
  EXPECT_EQ(report.num_executions, 3u);
}

// --- how words may be used ---

TEST(Explorer, WordsOfFourBytesAreApartFromTheirNeighbours) {
  struct Halves {
    uint32_t low, high;
  };
  const Report report = explore([](Arena& arena) {
    auto* halves = arena.make<Halves>();
    Program program;
    program.threads.push_back({"T0", [=](ModelPlatform& p) { p.store_release(&halves->low, 7u); }});
    program.threads.push_back({"T1", [=](ModelPlatform& p) {
                                 p.store_relaxed(&halves->high, 9u);
                                 while (p.load_acquire(&halves->low) != 7) p.idle();
                                 p.assert_that(p.load_relaxed(&halves->high) == 9, "the neighbour is untouched");
                               }});
    program.check_at_end = [=] { return std::string(halves->low == 7 && halves->high == 9 ? "" : "a half is lost"); };
    return program;
  });
  EXPECT_EQ(fault_of(report), std::nullopt) << report.to_string();
}

TEST(Explorer, AWordHasOneSize) {
  EXPECT_EQ(fault_of(explore_waits({[](auto& p, Waits& w) {
              p.store_release(&w.flag, 1);
              p.load_acquire(reinterpret_cast<const uint32_t*>(&w.flag));
            }})),
            Fault::kBadAccess);
}

// One thread writes a word of that use, and optionally another one reads it without any order.
Report explore_use(Arena::Use use, bool with_reader) {
  return explore([=](Arena& arena) {
    auto* word = arena.make<uint64_t>();
    if (use == Arena::Use::kPrivate) arena.set_private(word, sizeof *word, 0);
    if (use == Arena::Use::kConstant) arena.set_constant(word, sizeof *word);
    if (use == Arena::Use::kMixed) arena.set_mixed(word, sizeof *word);
    Program program;
    program.threads.push_back({"T0", [=](ModelPlatform& p) {
                                 p.store_relaxed(word, 1);
                                 p.write(word, 2);
                                 p.assert_that(p.fetch_add_relaxed(word, 1) == 2, "a thread sees its own writes");
                               }});
    if (with_reader) program.threads.push_back({"T1", [=](ModelPlatform& p) { p.read(word); }});
    return program;
  });
}

TEST(Explorer, APrivateWordIsForOneThreadInAnyWay) {
  const Report alone = explore_use(Arena::Use::kPrivate, false);
  EXPECT_EQ(fault_of(alone), std::nullopt) << alone.to_string();
  EXPECT_EQ(alone.num_states, 0u);  // nothing to choose
  EXPECT_EQ(fault_of(explore_use(Arena::Use::kPrivate, true)), Fault::kBadAccess);
}

TEST(Explorer, AConstantIsNotWritten) { EXPECT_EQ(fault_of(explore_use(Arena::Use::kConstant, false)), Fault::kBadAccess); }

TEST(Explorer, PlainAccessesToAMixedWordMustBeOrdered) {
  EXPECT_EQ(fault_of(explore_use(Arena::Use::kMixed, false)), std::nullopt);
  EXPECT_EQ(fault_of(explore_use(Arena::Use::kMixed, true)), Fault::kDataRace);
}

TEST(Explorer, AKilledThreadWritesNoMore) {
  std::set<uint64_t> seen;
  const Report report = explore([&](Arena& arena) {
    auto* words = arena.make<Waits>();
    Program program;
    program.threads.push_back({"T0", [=](ModelPlatform& p) {
                                 for (uint64_t v : {1, 2, 3}) p.store_release(&words->flag, v);
                               }});
    program.threads.back().max_shared_writes = 2;
    program.threads.push_back({"T1", [=, &seen](ModelPlatform& p) { seen.insert(p.load_acquire(&words->flag)); }});
    return program;
  });
  EXPECT_EQ(fault_of(report), std::nullopt);
  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2}));
  EXPECT_GT(report.num_killed, 0u);
}

// A thread that says it knows nothing of what it read is in one state with those that read something else.
TEST(Explorer, StatesOfEqualHistoryAreOne) {
  const auto num_states = [](bool forgets) {
    return explore_waits({[](auto& p, Waits& w) {
                            for (uint64_t v : {1, 2, 3}) p.store_release(&w.flag, v);
                          },
                          [=](ModelPlatform& p, Waits& w) {
                            for (int i = 0; i < 3; ++i) {
                              p.load_acquire(&w.flag);
                              if (forgets) p.set_history(0);
                            }
                          }})
        .num_states;
  };
  EXPECT_LT(num_states(true), num_states(false));
}

TEST(Explorer, RefusesProgramsWithoutThreads) { EXPECT_TRUE(explore_waits({}).violation); }

}  // namespace
}  // namespace switchyard::model
