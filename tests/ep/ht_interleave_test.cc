// Operations that overlap: several handles, streams and groups at once, high throughput beside low latency; and what
// must not depend on any of that: order and results.
#include <gtest/gtest.h>

#include <thread>

#include "ep/ht_harness.hpp"
#include "ep/ll_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using enum ep::PassDirection;
using oracle::Budget;
using oracle::Fill;
using oracle::HtLayout;
using oracle::Routing;

constexpr int kNumRanks = 4;
constexpr int kBudget = 200;  // a group has one, whatever its handles need

HtScenario scenario_of(uint64_t seed, HtLayout layout, int topk, Routing routing, Fill fill) {
  oracle::HtShape shape;
  shape.num_ranks = kNumRanks;
  shape.num_experts = 2 * kNumRanks + 1;
  shape.topk = topk;
  shape.hidden = 40;
  shape.max_tokens = 6;
  shape.layout = layout;
  shape.alignment = layout == HtLayout::kExpertMajor ? 4 : 1;
  shape.node_of_rank = ThreadRanks::default_nodes(kNumRanks);
  oracle::HtCase c = oracle::make_ht_case(seed, shape, routing, fill, Budget::kExact);
  c.budget = kBudget;
  return make_ht_scenario(seed, c);
}

// Both layouts and three top-k.
struct ThreeScenarios {
  HtScenario a = scenario_of(1, HtLayout::kFlat, 3, Routing::kUniform, Fill::kPartial);
  HtScenario b = scenario_of(2, HtLayout::kExpertMajor, 1, Routing::kZipf, Fill::kFull);
  HtScenario c = scenario_of(3, HtLayout::kFlat, 7, Routing::kSomeDropped, Fill::kSomeEmpty);
};

// One rank's group with a handle for each of the three.
class HtTrio {
 public:
  HtTrio(Communicator& comm, StreamRef stream, const ThreeScenarios& scenarios, const HtMode& mode)
      : steps(comm),
        a(std::make_unique<HtRank>(comm, stream, scenarios.a, mode)),
        b(std::make_unique<HtRank>(comm, stream, scenarios.b, mode)),
        c(std::make_unique<HtRank>(comm, stream, scenarios.c, mode)),
        group(ep::Group::create(comm, group_config_for(scenarios.a.c, mode))) {
    if (!steps(group)) return;
    for (HtRank* rank : all()) steps.ok() && steps(rank->open(*group.value())) && steps(rank->run_update());
  }
  std::string leave() { return steps.leave(std::move(group), std::move(a), std::move(b), std::move(c)); }
  std::array<HtRank*, 3> all() const { return {a.get(), b.get(), c.get()}; }

  Steps steps;
  std::unique_ptr<HtRank> a, b, c;
  Result<std::unique_ptr<ep::Group>> group;
};

class HtInterleaved : public ::testing::TestWithParam<bool> {
 protected:
  HtMode mode() const { return {.windows = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Windows, HtInterleaved, ::testing::Bool());

// Each handle remembers its own plan, whatever the others do: all are dispatched before the first is combined.
TEST_P(HtInterleaved, HandlesTakeTurns) {
  const ThreeScenarios scenarios;
  ThreadRanks ranks(kNumRanks);
  ranks.on_all([&](int rank) {
    HtTrio trio(ranks.comm(rank), ranks.stream_ref(rank), scenarios, mode());
    for (int round = 0; round < 6; ++round) {
      for (HtRank* one : trio.all()) one->start_round(round);
      for (HtRank* one : trio.all()) trio.steps.ok() && trio.steps(one->run_dispatch(kForward));
      for (HtRank* one : trio.all()) trio.steps.ok() && trio.steps(one->run_combine(kForward));
      if (trio.steps.ok()) run_ht_round(trio.steps, *trio.all()[size_t(round) % 3], mode(), /*updates=*/true);
    }
    EXPECT_EQ(trio.leave(), "");
  });
}

// Nine operations are on the stream at a time: fast ranks run ahead of slow ones as far as the protocol lets them.
TEST_P(HtInterleaved, RanksRunAheadOfEachOther) {
  const ThreeScenarios scenarios;
  ThreadRanks ranks(kNumRanks);
  ranks.on_all([&](int rank) {
    HtTrio trio(ranks.comm(rank), ranks.stream_ref(rank), scenarios, mode());
    for (int round = 0; round < 30 && trio.steps.ok(); ++round) {
      for (HtRank* one : trio.all()) {
        one->start_round(round);
        trio.steps.ok() && trio.steps(one->post_update()) && trio.steps(one->post_dispatch(kForward));
      }
      for (HtRank* one : trio.all()) trio.steps.ok() && trio.steps(one->post_combine(kForward));
      trio.steps.ok() && trio.steps(trio.a->synchronize());
      for (HtRank* one : trio.all()) {
        trio.steps.ok() && trio.steps(one->check_update()) && trio.steps(one->check_dispatch(kForward)) &&
            trio.steps(one->check_combine(kForward));
      }
    }
    EXPECT_EQ(trio.leave(), "");
  });
}

// Nothing is waited for in between: the combine on one stream uses what the update on the other planned.
TEST_P(HtInterleaved, OperationsOfTwoStreamsRunInTheOrderOfIssue) {
  const ThreeScenarios scenarios;
  ThreadRanks ranks(kNumRanks);
  ranks.on_all([&](int rank) {
    auto second = Stream::create();
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    const StreamRef streams[] = {ranks.stream_ref(rank), {second.value().get()}};
    HtTrio trio(ranks.comm(rank), streams[0], scenarios, mode());
    for (int round = 0; round < 20 && trio.steps.ok(); ++round) {
      const auto post = [&](HtRank& one, Status (HtRank::*operation)(ep::PassDirection), int stream) {
        one.use_stream(streams[stream]);
        return trio.steps.ok() && trio.steps((one.*operation)(kForward));
      };
      for (HtRank* one : {trio.a.get(), trio.b.get()}) {
        one->start_round(round);
        one->use_stream(streams[one == trio.b.get()]);
        trio.steps.ok() && trio.steps(one->post_update());
      }
      post(*trio.a, &HtRank::post_dispatch, 1) && post(*trio.b, &HtRank::post_dispatch, 0) &&
          post(*trio.a, &HtRank::post_combine, 0) && post(*trio.b, &HtRank::post_combine, 1);
      for (HtRank* one : {trio.a.get(), trio.b.get()}) trio.steps.ok() && trio.steps(one->synchronize());
      for (HtRank* one : {trio.a.get(), trio.b.get()}) {
        trio.steps.ok() && trio.steps(one->check_update()) && trio.steps(one->check_dispatch(kForward)) &&
            trio.steps(one->check_combine(kForward));
      }
    }
    EXPECT_EQ(trio.leave(), "");
  });
}

// The two threads of a rank are at different operations at any time, and only meet inside a group.
TEST_P(HtInterleaved, TwoGroupsOfOneCommunicatorWorkAtOnce) {
  const ThreeScenarios scenarios;
  ThreadRanks ranks(kNumRanks);
  ranks.on_all([&](int rank) {
    auto second = Stream::create();
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    HtTrio first_trio(ranks.comm(rank), ranks.stream_ref(rank), scenarios, mode());
    HtTrio second_trio(ranks.comm(rank), {second.value().get()}, scenarios, mode());
    const auto work = [&](HtTrio& trio, HtRank& one) {
      for (int round = 0; round < 20 && trio.steps.ok(); ++round) {
        one.start_round(round);
        run_ht_round(trio.steps, one, mode(), /*updates=*/round % 3 == 0);
      }
    };
    std::thread beside([&] { work(second_trio, *second_trio.b); });
    work(first_trio, *first_trio.c);
    beside.join();
    EXPECT_EQ(first_trio.leave(), "");
    EXPECT_EQ(second_trio.leave(), "");
  });
}

// Prefill and decoding of one model: an HT and an LL group on one communicator, taking turns on one stream.
TEST_P(HtInterleaved, LowLatencyTakesTurnsOnTheSameCommunicator) {
  const ThreeScenarios scenarios;
  oracle::Shape shape;
  shape.num_ranks = kNumRanks;
  shape.num_experts = 2 * kNumRanks + 1;
  shape.topk = 3;
  shape.hidden = 40;
  shape.max_tokens = 3;
  const LlScenario decoding = make_scenario(5, shape, Routing::kUniform, Fill::kPartial);
  ThreadRanks ranks(kNumRanks);
  ranks.on_all([&](int rank) {
    Communicator& comm = ranks.comm(rank);
    HtTrio trio(comm, ranks.stream_ref(rank), scenarios, mode());
    auto decoder = std::make_unique<LlRank>(comm, ranks.stream_ref(rank), decoding, mode().windows);
    Steps steps(comm);
    auto group = ep::Group::create(comm, group_config_for(decoding.c));
    steps(group) && steps(decoder->open(*group.value()));
    for (int round = 0; round < 10 && steps.ok() && trio.steps.ok(); ++round) {
      trio.a->start_round(round);
      run_ht_round(trio.steps, *trio.a, mode(), /*updates=*/true) && steps(decoder->run_dispatch()) &&
          steps(decoder->run_combine());
    }
    EXPECT_EQ(steps.leave(std::move(group), std::move(decoder)), "");
    EXPECT_EQ(trio.leave(), "");
  });
}

}  // namespace
}  // namespace switchyard::testing
