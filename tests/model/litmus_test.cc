// Litmus tests: for each small program the set of outcomes must be exactly what the C++ memory model allows (without
// load buffering, see memory.hpp). Every program is explored with and without the explorer's reductions.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "model/platform.hpp"

namespace switchyard::model {
namespace {

struct Words {
  uint64_t x, y, z;
  uint64_t data;
};
using Registers = std::array<uint64_t, 4>;
using Body = std::function<void(ModelPlatform&, Words&, Registers&)>;
using Outcome = std::vector<uint64_t>;
using Outcomes = std::set<Outcome>;

Report explore_bodies(const std::vector<Body>& bodies,
                      const std::function<void(const Words&, const Registers&)>& at_end, bool reduce) {
  Registers registers{};
  return explore(
      [&](Arena& arena) {
        Words* words = arena.make<Words>();
        arena.name(&words->x, "x");
        arena.name(&words->y, "y");
        arena.name(&words->z, "z");
        arena.name(&words->data, "data");
        Program program;
        program.couriers = {"courier 0", "courier 1"};
        for (size_t t = 0; t < bodies.size(); ++t) {
          program.threads.push_back(
              {"T" + std::to_string(t), [&, t, words](ModelPlatform& p) { bodies[t](p, *words, registers); }});
        }
        program.check_at_end = [&, words] {
          if (at_end) at_end(*words, registers);
          registers = {};
          return std::string();
        };
        return program;
      },
      Options{.reduce = reduce});
}

// Every outcome of the program: its first registers, as many as asked for, then the last values of x and y on request.
Outcomes outcomes(const std::vector<Body>& bodies, size_t num_registers, bool with_last_values = false) {
  Outcomes found[2];
  for (bool reduce : {true, false}) {
    const auto at_end = [&](const Words& words, const Registers& registers) {
      Outcome outcome(registers.begin(), registers.begin() + ptrdiff_t(num_registers));
      if (with_last_values) outcome.insert(outcome.end(), {words.x, words.y});
      found[reduce].insert(outcome);
    };
    const Report report = explore_bodies(bodies, at_end, reduce);
    EXPECT_TRUE(report.exhaustive && !report.violation) << report.to_string();
  }
  EXPECT_EQ(found[0], found[1]) << "the reductions lose or invent outcomes";
  return found[1];
}

std::optional<Fault> fault_of(const std::vector<Body>& bodies) {
  std::optional<Fault> faults[2];
  for (bool reduce : {true, false}) {
    const Report report = explore_bodies(bodies, {}, reduce);
    EXPECT_TRUE(report.exhaustive);
    if (report.violation) faults[reduce] = report.violation->fault;
  }
  EXPECT_EQ(faults[0], faults[1]);
  return faults[1];
}

Outcomes all_pairs() { return {{0, 0}, {0, 1}, {1, 0}, {1, 1}}; }

TEST(Litmus, MessagePassingWithReleaseAndAcquireIsNeverStale) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 1), p.store_release(&w.y, 1); },
                      [](auto& p, Words& w, auto& r) { r[0] = p.load_acquire(&w.y), r[1] = p.load_relaxed(&w.x); }},
                     2),
            (Outcomes{{0, 0}, {0, 1}, {1, 1}}));
}

TEST(Litmus, MessagePassingWithRelaxedPublishMayBeStale) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 1), p.store_relaxed(&w.y, 1); },
                      [](auto& p, Words& w, auto& r) { r[0] = p.load_acquire(&w.y), r[1] = p.load_relaxed(&w.x); }},
                     2),
            all_pairs());
}

TEST(Litmus, MessagePassingWithRelaxedReceiveMayBeStale) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 1), p.store_release(&w.y, 1); },
                      [](auto& p, Words& w, auto& r) { r[0] = p.load_relaxed(&w.y), r[1] = p.load_relaxed(&w.x); }},
                     2),
            all_pairs());
}

const Body kReadDataWhenYIsSet = [](auto& p, Words& w, auto&) {
  if (p.load_acquire(&w.y) == 1) p.assert_that(p.read(&w.data) == 7, "data is there");
};

TEST(Litmus, PlainDataPublishedByReleaseAndReadAfterAcquireDoesNotRace) {
  EXPECT_EQ(
      fault_of({[](auto& p, Words& w, auto&) { p.template write<uint64_t>(&w.data, 7), p.store_release(&w.y, 1); },
                kReadDataWhenYIsSet}),
      std::nullopt);
}

TEST(Litmus, PlainDataPublishedByRelaxedStoreRaces) {
  EXPECT_EQ(
      fault_of({[](auto& p, Words& w, auto&) { p.template write<uint64_t>(&w.data, 7), p.store_relaxed(&w.y, 1); },
                kReadDataWhenYIsSet}),
      Fault::kDataRace);
}

TEST(Litmus, PlainDataReadAfterRelaxedLoadRaces) {
  EXPECT_EQ(
      fault_of({[](auto& p, Words& w, auto&) { p.template write<uint64_t>(&w.data, 7), p.store_release(&w.y, 1); },
                [](auto& p, Words& w, auto&) {
                  if (p.load_relaxed(&w.y) == 1) p.read(&w.data);
                }}),
      Fault::kDataRace);
}

TEST(Litmus, PlainWriteAfterTheReleaseRacesWithTheReader) {
  EXPECT_EQ(
      fault_of({[](auto& p, Words& w, auto&) { p.store_release(&w.y, 1), p.template write<uint64_t>(&w.data, 7); },
                [](auto& p, Words& w, auto&) {
                  if (p.load_acquire(&w.y) == 1) p.read(&w.data);
                }}),
      Fault::kDataRace);
}

TEST(Litmus, PlainReadsOfTwoThreadsDoNotRace) {
  const Body reader = [](auto& p, Words& w, auto&) { p.read(&w.data); };
  EXPECT_EQ(fault_of({reader, reader}), std::nullopt);
}

TEST(Litmus, PlainWritesToDifferentBytesOfOneWordDoNotRace) {
  const auto half = [](size_t idx) {
    return
        [idx](auto& p, Words& w, auto&) { p.template write<uint32_t>(reinterpret_cast<uint32_t*>(&w.data) + idx, 1); };
  };
  EXPECT_EQ(fault_of({half(0), half(1)}), std::nullopt);
  EXPECT_EQ(fault_of({half(0), half(0)}), Fault::kDataRace);
}

TEST(Litmus, RowsPushedAndDrainedArePublishedByTheRelease) {
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) { p.push(&w.z, &w.data, 8), p.drain(), p.store_release(&w.y, 1); },
                      [](auto& p, Words& w, auto&) {
                        if (p.load_acquire(&w.y) == 1) p.read(&w.data);
                      }}),
            std::nullopt);
}

TEST(Litmus, RowsPublishedWithoutDrainRace) {
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) { p.push(&w.z, &w.data, 8), p.store_release(&w.y, 1), p.drain(); },
                      [](auto& p, Words& w, auto&) {
                        if (p.load_acquire(&w.y) == 1) p.read(&w.data);
                      }}),
            Fault::kDataRace);
}

TEST(Litmus, TheSourceOfAPushMustNotChangeBeforeDrain) {
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) { p.push(&w.z, &w.data, 8), p.template write<uint64_t>(&w.z, 1); }}),
            Fault::kDataRace);
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) {
              p.push(&w.z, &w.data, 8), p.drain(), p.template write<uint64_t>(&w.z, 1);
            }}),
            std::nullopt);
}

// ---- couriers ----

void post_data(ModelPlatform& p, Words& w) { p.post(0, {&w.z, &w.data, 8, &w.y, 1}); }
void post_signal(ModelPlatform& p, int courier, uint64_t* word) { p.post(courier, {nullptr, nullptr, 0, word, 1}); }

TEST(Litmus, WhatACourierBringsIsThereWithItsSignal) {
  const Body poster = [](auto& p, Words& w, auto&) { p.template write<uint64_t>(&w.z, 7), post_data(p, w); };
  EXPECT_EQ(outcomes({poster,
                      [](auto& p, Words& w, Registers& r) {
                        if ((r[0] = p.load_acquire(&w.y)) == 1) r[1] = p.read(&w.data);
                      }},
                     2),
            (Outcomes{{0, 0}, {1, 7}}));
  EXPECT_EQ(fault_of({poster,
                      [](auto& p, Words& w, auto&) {
                        if (p.load_relaxed(&w.y) == 1) p.read(&w.data);
                      }}),
            Fault::kDataRace);
}

TEST(Litmus, TheSourceOfAPostMustNotChangeBeforeItsSignalIsAnswered) {
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) { post_data(p, w), p.template write<uint64_t>(&w.z, 1); }}),
            Fault::kDataRace);
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) {
                        post_data(p, w);
                        if (p.load_acquire(&w.x) == 1) p.template write<uint64_t>(&w.z, 1);
                      },
                      [](auto& p, Words& w, auto&) {
                        if (p.load_acquire(&w.y) == 1) p.store_release(&w.x, 1);
                      }}),
            std::nullopt);
}

TEST(Litmus, RowsPostedWithoutDrainRace) {
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) { p.push(&w.x, &w.z, 8), post_data(p, w); }}), Fault::kDataRace);
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) { p.push(&w.x, &w.z, 8), p.drain(), post_data(p, w); }}), std::nullopt);
}

TEST(Litmus, ErrandsOfOneCourierAreSeenInOrderAndThoseOfTwoAreNot) {
  const auto posters = [](int second_courier) {
    return std::vector<Body>{[=](auto& p, Words& w, auto&) {
                               post_signal(p, 0, &w.x), post_signal(p, second_courier, &w.y);
                             },
                             [](auto& p, Words& w, Registers& r) {
                               r[0] = p.load_acquire(&w.y), r[1] = p.load_acquire(&w.x);
                             }};
  };
  EXPECT_EQ(outcomes(posters(0), 2), (Outcomes{{0, 0}, {0, 1}, {1, 1}}));
  EXPECT_EQ(outcomes(posters(1), 2), all_pairs());
}

TEST(Litmus, AWordThatACourierAddsToHasNoOtherWriter) {
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) { post_signal(p, 0, &w.x); },
                      [](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 5); }}),
            Fault::kAssertion);
}

TEST(Litmus, StoreBufferingMayLeaveBothReadersWithZero) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto& r) { p.store_release(&w.x, 1), r[0] = p.load_acquire(&w.y); },
                      [](auto& p, Words& w, auto& r) { p.store_release(&w.y, 1), r[1] = p.load_acquire(&w.x); }},
                     2),
            all_pairs());
}

TEST(Litmus, StoreBufferingThroughReadModifyWritesOfOneWordCannotGiveTwoZeros) {
  // The standard way to get a full barrier without seq_cst: both threads pass through one read-modify-write chain.
  const auto side = [](auto own, auto other, size_t idx) {
    return [=](auto& p, Words& w, auto& r) {
      p.store_relaxed(&(w.*own), 1), p.fetch_add_acq_rel(&w.z, 0), r[idx] = p.load_relaxed(&(w.*other));
    };
  };
  EXPECT_EQ(outcomes({side(&Words::x, &Words::y, 0), side(&Words::y, &Words::x, 1)}, 2),
            (Outcomes{{0, 1}, {1, 0}, {1, 1}}));
}

TEST(Litmus, LoadBufferingIsExcludedByDesign) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto& r) { r[0] = p.load_relaxed(&w.x), p.store_relaxed(&w.y, 1); },
                      [](auto& p, Words& w, auto& r) { r[1] = p.load_relaxed(&w.y), p.store_relaxed(&w.x, 1); }},
                     2),
            (Outcomes{{0, 0}, {0, 1}, {1, 0}}));
}

TEST(Litmus, ReadersOfIndependentWritesMayDisagreeEvenWithAcquire) {
  Outcomes all;
  for (uint64_t bits = 0; bits < 16; ++bits) all.insert({bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3});
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto&) { p.store_release(&w.x, 1); },
                      [](auto& p, Words& w, auto&) { p.store_release(&w.y, 1); },
                      [](auto& p, Words& w, auto& r) { r[0] = p.load_acquire(&w.x), r[1] = p.load_acquire(&w.y); },
                      [](auto& p, Words& w, auto& r) { r[2] = p.load_acquire(&w.y), r[3] = p.load_acquire(&w.x); }},
                     4),
            all);
}

TEST(Litmus, ReadsOfOneWordNeverGoBackwards) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 1), p.store_relaxed(&w.x, 2); },
                      [](auto& p, Words& w, auto& r) { r[0] = p.load_relaxed(&w.x), r[1] = p.load_relaxed(&w.x); }},
                     2),
            (Outcomes{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}}));
}

TEST(Litmus, TwoReadersAgreeOnTheOrderOfTwoWritesToOneWord) {
  const Body read_01 = [](auto& p, Words& w, auto& r) { r[0] = p.load_relaxed(&w.x), r[1] = p.load_relaxed(&w.x); };
  const Body read_23 = [](auto& p, Words& w, auto& r) { r[2] = p.load_relaxed(&w.x), r[3] = p.load_relaxed(&w.x); };
  const Outcomes found = outcomes({[](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 1); },
                                   [](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 2); }, read_01, read_23},
                                  4);
  EXPECT_TRUE(found.contains({1, 2, 1, 2}));
  EXPECT_TRUE(found.contains({2, 1, 2, 1}));
  EXPECT_FALSE(found.contains({1, 2, 2, 1}));
  EXPECT_FALSE(found.contains({2, 1, 1, 2}));
}

TEST(Litmus, AThreadReadsItsOwnWriteOrALaterOne) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto& r) { p.store_relaxed(&w.x, 1), r[0] = p.load_relaxed(&w.x); },
                      [](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 2); }},
                     1, true),
            (Outcomes{{1, 1, 0}, {1, 2, 0}, {2, 2, 0}}));
}

TEST(Litmus, WritesToTwoWordsMayEndUpInOppositeOrders) {
  // x and y may both keep their first thread's value: modification orders need not fit one interleaving.
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto&) { p.store_release(&w.x, 1), p.store_release(&w.y, 2); },
                      [](auto& p, Words& w, auto&) { p.store_release(&w.y, 1), p.store_release(&w.x, 2); }},
                     0, true),
            (Outcomes{{1, 1}, {1, 2}, {2, 1}, {2, 2}}));
}

TEST(Litmus, CausalityPassesThroughAThirdThread) {
  const Outcomes found =
      outcomes({[](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 1), p.store_release(&w.y, 1); },
                [](auto& p, Words& w, auto& r) { r[0] = p.load_acquire(&w.y), p.store_release(&w.z, 1); },
                [](auto& p, Words& w, auto& r) { r[1] = p.load_acquire(&w.z), r[2] = p.load_relaxed(&w.x); }},
               3);
  EXPECT_FALSE(found.contains({1, 1, 0}));
  EXPECT_EQ(found.size(), 7u);
}

TEST(Litmus, ReadModifyWritesLoseNoUpdate) {
  const auto adder = [](size_t idx) {
    return [idx](auto& p, Words& w, auto& r) { r[idx] = p.fetch_add_relaxed(&w.x, 1); };
  };
  EXPECT_EQ(
      outcomes({adder(0), adder(1), adder(2)}, 3, true),
      (Outcomes{{0, 1, 2, 3, 0}, {0, 2, 1, 3, 0}, {1, 0, 2, 3, 0}, {1, 2, 0, 3, 0}, {2, 0, 1, 3, 0}, {2, 1, 0, 3, 0}}));
}

TEST(Litmus, NoStoreComesBetweenAReadModifyWriteAndWhatItRead) {
  EXPECT_EQ(outcomes({[](auto& p, Words& w, auto& r) { r[0] = p.fetch_add_relaxed(&w.x, 1); },
                      [](auto& p, Words& w, auto&) { p.store_relaxed(&w.x, 10); }},
                     1, true),
            (Outcomes{{0, 10, 0}, {10, 11, 0}}));
}

TEST(Litmus, AReadModifyWriteContinuesAReleaseSequence) {
  const Body reader = [](auto& p, Words& w, auto&) {
    if (p.load_acquire(&w.x) == 2) p.read(&w.data);
  };
  const Body writer = [](auto& p, Words& w, auto&) {
    p.template write<uint64_t>(&w.data, 7), p.store_release(&w.x, 1);
  };
  EXPECT_EQ(fault_of({writer, [](auto& p, Words& w, auto&) { p.fetch_add_relaxed(&w.x, 1); }, reader}), std::nullopt);
}

TEST(Litmus, APlainRelaxedStoreEndsAReleaseSequence) {
  const Body reader = [](auto& p, Words& w, auto&) {
    if (p.load_acquire(&w.x) == 2) p.read(&w.data);
  };
  EXPECT_EQ(fault_of({[](auto& p, Words& w, auto&) {
                        p.template write<uint64_t>(&w.data, 7), p.store_release(&w.x, 1), p.store_relaxed(&w.x, 2);
                      },
                      reader}),
            Fault::kDataRace);
}

}  // namespace
}  // namespace switchyard::model
