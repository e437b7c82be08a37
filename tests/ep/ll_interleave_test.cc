// Operations that overlap: staged halves in any order, several handles, streams and groups at once; and what must not
// depend on any of that: order, results, the memory around the caller's.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ep/ll_harness.hpp"
#include "support/counting_allocator.hpp"
#include "support/guarded_runtime.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::Fill;
using oracle::Layout;
using oracle::Routing;

oracle::Shape shape_with(int num_ranks, Layout layout, int topk) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 2 * num_ranks + 1;
  shape.topk = topk;
  shape.hidden = 40;
  shape.max_tokens = 6;
  shape.layout = layout;
  return shape;
}

// Three cases that differ in everything but the group's configuration.
struct ThreeScenarios {
  ThreeScenarios(int num_ranks, Layout layout)
      : a(make_scenario(1, shape_with(num_ranks, layout, 2), Routing::kUniform, Fill::kPartial)),
        b(make_scenario(2, shape_with(num_ranks, layout, 5), Routing::kZipf, Fill::kFull)),
        c(make_scenario(3, shape_with(num_ranks, layout, 1), Routing::kSomeDropped, Fill::kSomeEmpty)) {}
  LlScenario a, b, c;
};

// One rank's group with a handle for each of the three.
class Trio {
 public:
  Trio(Communicator& comm_of_rank, StreamRef stream, const ThreeScenarios& scenarios, bool windows)
      : comm(comm_of_rank),
        steps(comm),
        a(std::make_unique<LlRank>(comm, stream, scenarios.a, windows)),
        b(std::make_unique<LlRank>(comm, stream, scenarios.b, windows)),
        c(std::make_unique<LlRank>(comm, stream, scenarios.c, windows)),
        group_(ep::Group::create(comm, group_config_for(scenarios.a.c))) {
    if (!steps(group_)) return;
    for (LlRank* rank : {a.get(), b.get(), c.get()}) steps(rank->open(*group_.value()));
  }
  // Waits for the stream, then looks at an output.
  bool check(LlRank& rank, std::string (LlRank::*output)() const) {
    return steps(rank.synchronize()) && steps((rank.*output)());
  }
  std::string leave() { return steps.leave(std::move(group_), std::move(a), std::move(b), std::move(c)); }

  Communicator& comm;
  Steps steps;
  std::unique_ptr<LlRank> a, b, c;

 private:
  Result<std::unique_ptr<ep::Group>> group_;
};

class Interleaved : public ::testing::TestWithParam<std::tuple<Layout, bool>> {
 protected:
  // Runs the body on four ranks.
  void run(const std::function<void(Trio&)>& body) {
    const auto [layout, windows] = GetParam();
    const ThreeScenarios scenarios(4, layout);
    ThreadRanks ranks(4);
    ranks.on_all([&, windows = windows](int rank) {
      Trio trio(ranks.comm(rank), ranks.stream_ref(rank), scenarios, windows);
      if (trio.steps.ok()) body(trio);
      EXPECT_EQ(trio.leave(), "");
    });
  }
};

INSTANTIATE_TEST_SUITE_P(All, Interleaved,
                         ::testing::Combine(::testing::Values(Layout::kExpertMajor, Layout::kRankMajor),
                                            ::testing::Bool()));

TEST_P(Interleaved, TwoStagedDispatchesCompleteInTheirOrder) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    for (int round = 0; round < 5; ++round) {
      steps(trio.a->post_dispatch(true)) && steps(trio.b->post_dispatch(true)) && steps(trio.a->complete()) &&
          trio.check(*trio.a, &LlRank::check_dispatch) && steps(trio.b->complete()) &&
          trio.check(*trio.b, &LlRank::check_dispatch);
    }
  });
}

TEST_P(Interleaved, TwoStagedDispatchesCompleteInTheOtherOrder) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    for (int round = 0; round < 5; ++round) {
      steps(trio.a->post_dispatch(true)) && steps(trio.b->post_dispatch(true)) && steps(trio.b->complete()) &&
          trio.check(*trio.b, &LlRank::check_dispatch) && steps(trio.a->complete()) &&
          trio.check(*trio.a, &LlRank::check_dispatch);
    }
  });
}

// What staging is for: the combine of one micro-batch travels while the next is dispatched.
TEST_P(Interleaved, AStagedCombineOverlapsAStagedDispatch) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    for (int round = 0; round < 5; ++round) {
      steps(trio.a->run_dispatch()) && steps(trio.a->post_combine(true)) && steps(trio.b->post_dispatch(true)) &&
          steps(trio.a->complete()) && trio.check(*trio.a, &LlRank::check_combine) && steps(trio.b->complete()) &&
          trio.check(*trio.b, &LlRank::check_dispatch) && steps(trio.b->run_combine());
    }
  });
}

// An idle worker takes in what has come, so peers get the bank back before anybody completes the operation.
TEST_P(Interleaved, WhatHasComeIsTakenInBeforeItIsCompleted) {
  run([](Trio& trio) {
    const int rank = trio.comm.rank();
    trio.steps(trio.a->post_dispatch(true)) && trio.steps(trio.b->post_dispatch(true));
    const auto complete_both = [&] {
      trio.steps(trio.a->complete()) && trio.check(*trio.a, &LlRank::check_dispatch) && trio.steps(trio.b->complete()) &&
          trio.check(*trio.b, &LlRank::check_dispatch);
    };
    // The send of c needs the bank of a at rank 0, which has not completed a.
    if (rank != 0) {
      complete_both();
      trio.steps(trio.c->post_dispatch(true)) && trio.steps(trio.c->synchronize());
    }
    if (!trio.steps(trio.comm.barrier()) || !trio.steps.ok()) return;
    if (rank == 0) {
      complete_both();
      trio.steps(trio.c->post_dispatch(true));
    }
    trio.steps(trio.c->complete()) && trio.check(*trio.c, &LlRank::check_dispatch);
  });
}

// Nobody may wait for a rank to read what it never will, and nothing may be written to tensors that are gone.
TEST_P(Interleaved, AHandleIsDestroyedWithItsOperationOpen) {
  run([](Trio& trio) {
    const int rank = trio.comm.rank();
    trio.steps(trio.a->post_dispatch(true)) && trio.steps(trio.b->post_dispatch(true));
    if (rank == 0) {
      trio.a->close();
    } else {
      trio.steps(trio.a->complete()) && trio.check(*trio.a, &LlRank::check_dispatch);
    }
    trio.steps(trio.b->complete()) && trio.check(*trio.b, &LlRank::check_dispatch);
    for (int round = 0; round < 3; ++round) {
      trio.steps(trio.c->run_dispatch()) && trio.steps(trio.c->run_combine());
    }
  });
}

TEST_P(Interleaved, AThirdStagedOperationIsRefusedAndTheGroupWorksOn) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    if (!steps(trio.a->post_dispatch(true)) || !steps(trio.b->post_dispatch(true))) return;
    EXPECT_EQ(trio.c->post_dispatch(true).code(), Code::kInvalidUsage);
    steps(trio.a->complete()) && trio.check(*trio.a, &LlRank::check_dispatch) && steps(trio.b->complete()) &&
        trio.check(*trio.b, &LlRank::check_dispatch) && steps(trio.c->run_dispatch(true)) &&
        steps(trio.c->run_combine(true)) && steps(trio.a->run_combine()) && steps(trio.b->run_combine());
  });
}

// A staged operation holds one of the two banks until it is completed, so that the second operation after it can't run:
// it must be refused, since waiting for the bank would be for ever.
TEST_P(Interleaved, AnOperationThatNeedsTheBankOfAnOpenOneIsRefused) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    if (!steps(trio.a->post_dispatch(true)) || !steps(trio.b->run_dispatch())) return;
    EXPECT_EQ(trio.b->post_combine().code(), Code::kInvalidUsage);
    EXPECT_EQ(trio.c->post_dispatch(true).code(), Code::kInvalidUsage);
    steps(trio.a->complete()) && trio.check(*trio.a, &LlRank::check_dispatch) && steps(trio.b->run_combine()) &&
        steps(trio.c->run_dispatch(true)) && steps(trio.c->run_combine());
  });
}

TEST_P(Interleaved, HandlesOfDifferentTopkTakeTurns) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    for (int round = 0; round < 10; ++round) {
      // All three are dispatched before the first is combined: each handle remembers what it received.
      steps(trio.a->run_dispatch()) && steps(trio.b->run_dispatch(round % 2 != 0)) && steps(trio.c->run_dispatch()) &&
          steps(trio.b->run_combine()) && steps(trio.c->run_combine(round % 2 == 0)) && steps(trio.a->run_combine());
    }
  });
}

// Six operations are on the stream at a time: fast ranks run ahead of slow ones as far as the banks let them.
TEST_P(Interleaved, RanksRunAheadOfEachOther) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    for (int round = 0; round < 50; ++round) {
      steps(trio.a->post_dispatch()) && steps(trio.b->post_dispatch()) && steps(trio.c->post_dispatch()) &&
          steps(trio.a->post_combine()) && steps(trio.b->post_combine()) && steps(trio.c->post_combine());
      for (LlRank* rank : {trio.a.get(), trio.b.get(), trio.c.get()}) {
        trio.check(*rank, &LlRank::check_dispatch) && steps(rank->check_combine());
      }
    }
  });
}

TEST_P(Interleaved, RanksNeedNotAgreeOnStaging) {
  run([](Trio& trio) {
    Steps& steps = trio.steps;
    for (int round = 0; round < 8; ++round) {
      const int rank = trio.a->handle().group().rank();
      steps(trio.a->run_dispatch(round >> (rank % 3) & 1)) && steps(trio.a->run_combine(rank == round % 4));
    }
  });
}

TEST_P(Interleaved, OperationsOfTwoStreamsRunInTheOrderOfIssue) {
  const auto [layout, windows] = GetParam();
  const ThreeScenarios scenarios(4, layout);
  ThreadRanks ranks(4);
  ranks.on_all([&, windows = windows](int rank) {
    auto second = Stream::create();
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    const StreamRef streams[] = {ranks.stream_ref(rank), {second.value().get()}};
    Trio trio(ranks.comm(rank), streams[0], scenarios, windows);
    for (int round = 0; round < 20 && trio.steps.ok(); ++round) {
      // Nothing is waited for between the four: the combine on one stream uses what the dispatch on the other records.
      trio.a->use_stream(streams[0]);
      trio.b->use_stream(streams[1]);
      if (!trio.steps(trio.a->post_dispatch()) || !trio.steps(trio.b->post_dispatch())) break;
      trio.a->use_stream(streams[1]);
      trio.b->use_stream(streams[0]);
      if (!trio.steps(trio.a->post_combine()) || !trio.steps(trio.b->post_combine())) break;
      trio.check(*trio.a, &LlRank::check_combine) && trio.check(*trio.b, &LlRank::check_combine) &&
          trio.steps(trio.a->check_dispatch()) && trio.steps(trio.b->check_dispatch());
    }
    EXPECT_EQ(trio.leave(), "");
  });
}

// The group remembers its streams; callers may have destroyed them.
TEST_P(Interleaved, AStreamIsDestroyedBeforeItsGroup) {
  run([](Trio& trio) {
    auto stream = std::move(Stream::create()).value();
    for (LlRank* rank : {trio.a.get(), trio.b.get(), trio.c.get()}) rank->use_stream({stream.get()});
    trio.steps(trio.a->run_dispatch()) && trio.steps(trio.b->post_dispatch());
    stream.reset();  // runs what was posted
    trio.steps(trio.b->check_dispatch());
    stream = std::move(Stream::create()).value();
    for (LlRank* rank : {trio.a.get(), trio.b.get(), trio.c.get()}) rank->use_stream({stream.get()});
    trio.steps(trio.c->run_dispatch());
    trio.a->close();
  });
}

TEST_P(Interleaved, TwoGroupsOfOneCommunicatorWorkAtOnce) {
  const auto [layout, windows] = GetParam();
  const ThreeScenarios scenarios(3, layout);
  ThreadRanks ranks(3);
  ranks.on_all([&, windows = windows](int rank) {
    auto second = Stream::create();
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    Trio first_trio(ranks.comm(rank), ranks.stream_ref(rank), scenarios, windows);
    Trio second_trio(ranks.comm(rank), {second.value().get()}, scenarios, windows);
    const auto work = [](Trio& trio, LlRank& one, LlRank& other) {
      for (int round = 0; round < 50 && trio.steps.ok(); ++round) {
        trio.steps(one.run_dispatch()) && trio.steps(other.run_dispatch(round % 2 != 0)) &&
            trio.steps(other.run_combine()) && trio.steps(one.run_combine(round % 3 == 0));
      }
    };
    // The two threads are at different operations at any time, and only meet inside a group.
    std::thread beside([&] { work(second_trio, *second_trio.b, *second_trio.c); });
    work(first_trio, *first_trio.a, *first_trio.b);
    beside.join();
    EXPECT_EQ(first_trio.leave(), "");
    EXPECT_EQ(second_trio.leave(), "");
  });
}

// Every repeat is compared with the same expected bytes, so that all are equal to each other; some are on new groups.
TEST_P(Interleaved, FiftyRepeatsGiveTheSameBytes) {
  const auto [layout, windows] = GetParam();
  oracle::Shape shape = shape_with(4, layout, 7);
  shape.max_tokens = 40;
  shape.hidden = 520;
  const LlScenario scenario = make_scenario(17, shape, Routing::kDuplicates, Fill::kPartial);
  ThreadRanks ranks(4);
  for (const int num_rounds : {25, 1, 1, 1, 1, 1, 5, 5, 5, 5}) {
    ranks.on_all([&, windows = windows](int rank) {
      EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario,
                            {.windows = windows, .staged = false, .num_rounds = num_rounds}),
                "");
    });
    if (HasFailure()) break;
  }
}

// ---- memory ----

// Buffers of the caller and of the library alike, in all modes and recipes: nobody steps over an end.
TEST(LowLatencyMemory, NothingIsTouchedOutsideItsBuffer) {
  GuardedRuntime runtime;
  const size_t num_live_before = runtime.num_live();
  {
    ThreadRanks ranks(3, {.runtime = &runtime});
    for (int variant = 0; variant < 64 && !::testing::Test::HasFailure(); ++variant) {
      oracle::Shape shape = shape_with(3, variant & 1 ? Layout::kExpertMajor : Layout::kRankMajor, 1 + variant % 5);
      shape.hidden = 8 * (1 + variant % 19);  // rows of 16 to 304 bytes
      if (variant & 8) {
        shape.dispatch_recipe = oracle::DispatchRecipe::kDsFp8;
        shape.hidden = 128 * (1 + variant % 3);
      }
      if (variant & 16) {
        shape.combine_recipe = oracle::CombineRecipe::kNvfp4;
        shape.combine_hidden = 32 * (1 + variant % 7);
      }
      shape.int32_indices = (variant & 32) != 0;
      const LlScenario scenario =
          make_scenario(uint64_t(variant), shape, oracle::kAllRoutings[variant % 7], oracle::kAllFills[variant % 3]);
      ranks.on_all([&](int rank) {
        EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario,
                              {.windows = (variant & 2) != 0, .staged = (variant & 4) != 0, .num_rounds = 2}),
                  "");
      });
    }
  }
  EXPECT_EQ(runtime.num_damaged(), 0u);
  EXPECT_EQ(runtime.num_live(), num_live_before);
}

// A handle over the memory of an earlier one goes on with what that one received.
TEST(LowLatencyMemory, AHandleCanMoveToAnotherOverTheSameMemory) {
  GuardedRuntime runtime;
  const ThreeScenarios scenarios(3, Layout::kExpertMajor);
  ThreadRanks ranks(3, {.runtime = &runtime});
  ranks.on_all([&](int rank) {
    Communicator& comm = ranks.comm(rank);
    auto self = std::make_unique<LlRank>(comm, ranks.stream_ref(rank), scenarios.b, /*windows=*/true);
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(scenarios.b.c));
    ASSERT_TRUE(steps(group));
    const size_t num_bytes = ep::Handle::memory_bytes(*group.value(), ep::Layout::kExpertMajor, 5).value();
    const Buffer memory(comm, num_bytes);
    steps(self->open(*group.value(), memory.span().data(), num_bytes)) && steps(self->run_dispatch());
    self->close();
    steps(self->open(*group.value(), memory.span().data(), num_bytes)) && steps(self->run_combine()) &&
        steps(self->run_dispatch(true)) && steps(self->run_combine(true));
    EXPECT_EQ(steps.leave(std::move(group), std::move(self)), "");
  });
  EXPECT_EQ(runtime.num_damaged(), 0u);
}

TEST(LowLatencyMemory, HandleMemoryThatIsTooSmallIsRefused) {
  ThreadRanks ranks(1);
  auto group = ep::Group::create(ranks.comm(0), group_config_for(shape_with(1, Layout::kRankMajor, 2)));
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  const size_t num_bytes = ep::Handle::memory_bytes(*group.value(), ep::Layout::kRankMajor, 2).value();
  std::vector<char> memory(num_bytes);
  const auto handle =
      ep::Handle::create(*group.value(), ep::Layout::kRankMajor, 2, {0, memory.data(), num_bytes - 1});
  EXPECT_EQ(handle.status().code(), Code::kInvalidArgument);
}

// A combine reads what a dispatch recorded; memory that none has written holds anything.
TEST(LowLatencyMemory, ACombineBeforeAnyDispatchIsRefused) {
  ThreadRanks ranks(1);
  const LlScenario scenario = make_scenario(5, shape_with(1, Layout::kExpertMajor, 2), Routing::kUniform, Fill::kFull);
  LlRank self(ranks.comm(0), ranks.stream_ref(0), scenario, false);
  auto group = ep::Group::create(ranks.comm(0), group_config_for(scenario.c));
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  ASSERT_TRUE(self.open(*group.value()).ok());
  EXPECT_EQ(self.post_combine().code(), Code::kInvalidUsage);
  EXPECT_EQ(self.run_dispatch(), "");
  EXPECT_EQ(self.run_combine(), "");
  self.close();
}

TEST(LowLatencyMemory, ACallersAllocatorGetsBackAllItGave) {
  const ThreeScenarios scenarios(3, Layout::kRankMajor);
  ThreadRanks ranks(3);
  ranks.on_all([&](int rank) {
    Communicator& comm = ranks.comm(rank);
    CountingAllocator allocator;
    auto self = std::make_unique<LlRank>(comm, ranks.stream_ref(rank), scenarios.a, /*windows=*/false);
    Steps steps(comm);
    ep::GroupConfig config = group_config_for(scenarios.a.c);
    config.alloc = allocator.config();
    auto group = ep::Group::create(comm, config);
    steps(group) && steps(self->open(*group.value())) && steps(self->run_dispatch()) && steps(self->run_combine(true));
    EXPECT_EQ(steps.leave(std::move(group), std::move(self)), "");
    EXPECT_GT(allocator.num_allocated(), 0);
    EXPECT_EQ(allocator.num_live(), 0);
  });
}

TEST(LowLatencyMemory, AnAllocatorThatFailsMakesTheGroupFail) {
  ThreadRanks ranks(1);
  ep::GroupConfig config = group_config_for(shape_with(1, Layout::kRankMajor, 2));
  config.alloc = {[](void**, size_t, void*) { return 2; }, [](void*, void*) { return 0; }, nullptr};
  const auto group = ep::Group::create(ranks.comm(0), config);
  EXPECT_EQ(group.status().code(), Code::kDeviceError);
}

}  // namespace
}  // namespace switchyard::testing
