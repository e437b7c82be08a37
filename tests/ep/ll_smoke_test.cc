// The thinnest path: two ranks, one token, there and back; then the same with everything turned on.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "ep/ll_harness.hpp"
#include "platform/host/wait.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

void run_case(const oracle::Shape& shape, oracle::Routing routing, oracle::Fill fill, LlMode mode) {
  const LlScenario scenario = make_scenario(7, shape, routing, fill);
  ThreadRanks ranks(shape.num_ranks);
  ranks.on_all([&](int rank) {
    EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, mode), "");
  });
}

oracle::Shape small_shape(int num_ranks, oracle::Layout layout) {
  oracle::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 4 * num_ranks;
  shape.topk = 2;
  shape.hidden = 64;
  shape.max_tokens = 3;
  shape.layout = layout;
  return shape;
}

TEST(LowLatency, TwoRanksOneTokenThereAndBack) {
  oracle::Shape shape = small_shape(2, oracle::Layout::kExpertMajor);
  shape.max_tokens = 1;
  shape.topk = 1;
  run_case(shape, oracle::Routing::kUniform, oracle::Fill::kFull, {});
}

// Ranks that differ in what their rows look like are told so; nobody takes the other's bytes for its own.
TEST(LowLatency, RanksThatDisagreeAboutTheirRowsAreTold) {
  ThreadRanks ranks(2);
  ranks.on_all([&](int rank) {
    ep::GroupConfig config;
    config.num_experts = 2;
    config.max_tokens_per_rank = 2;
    config.max_token_bytes = 64;
    config.timeout_ns = 5 * kSecond;
    auto group = ep::Group::create(ranks.comm(rank), config);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    auto handle = ep::Handle::create(**group, ep::Layout::kExpertMajor, 2);
    ASSERT_TRUE(handle.ok()) << handle.status().to_string();
    const size_t hidden = rank == 0 ? 32 : 16;
    std::vector<int64_t> experts{0, 1, 0, 1};
    std::vector<uint16_t> tokens(2 * hidden, 7), out(4 * hidden, 0);
    std::vector<int32_t> counts(1, -1);
    ASSERT_TRUE((*handle)->update(ep::Tensor::of(experts.data(), DType::kInt64, {2, 2})).ok());
    ep::DispatchArgs args;
    args.tokens = ep::Tensor::of(tokens.data(), DType::kBfloat16, {2, hidden});
    args.out_tokens = ep::Tensor::of(out.data(), DType::kBfloat16, {1, 4, hidden});
    args.layout_info.expert_counters = ep::Tensor::of(counts.data(), DType::kInt32, {1});
    ASSERT_TRUE((*handle)->dispatch(args, ranks.stream_ref(rank)).ok());
    const Status done = ranks.stream(rank).synchronize(Deadline::after_ns(30 * kSecond));
    EXPECT_EQ(done.code(), Code::kRemoteError);
    EXPECT_NE(done.message().find("row sizes"), std::string::npos) << done.to_string();
  });
}

TEST(LowLatency, BuffersThatNoMachineHasAreRefused) {
  ThreadRanks ranks(1);
  ep::GroupConfig config;
  config.num_experts = 2;
  config.max_tokens_per_rank = 2;
  config.max_token_bytes = 64;
  for (const uint64_t buffer_bytes : {~uint64_t{0}, ~uint64_t{0} - 4096, uint64_t{1} << 50}) {
    config.buffer_bytes = buffer_bytes;
    const auto group = ep::Group::create(ranks.comm(0), config);
    EXPECT_EQ(group.status().code(), Code::kInvalidArgument) << buffer_bytes;
  }
}

// A handle goes without waiting; its memory stays for what still uses it.
TEST(LowLatency, AHandleMayGoRightAfterItsOperationWasPosted) {
  const LlScenario scenario = make_scenario(9, small_shape(2, oracle::Layout::kExpertMajor), oracle::Routing::kUniform,
                                            oracle::Fill::kFull);
  ThreadRanks ranks(2);
  ranks.on_all([&](int rank) {
    LlRank io(ranks.comm(rank), ranks.stream_ref(rank), scenario, /*windows=*/false);
    auto group = ep::Group::create(ranks.comm(rank), group_config_for(scenario.c));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(io.open(**group).ok());
      ASSERT_TRUE(io.post_dispatch().ok());
      io.close();
      ASSERT_TRUE(ranks.stream(rank).synchronize(Deadline::after_ns(20 * kSecond)).ok());
      ASSERT_EQ(io.check_dispatch(), "");
    }
  });
}

// Rank 1 comes only when rank 0's handle is gone.
TEST(LowLatency, TheEndOfAHandleWaitsForNobody) {
  const LlScenario scenario = make_scenario(10, small_shape(2, oracle::Layout::kExpertMajor), oracle::Routing::kUniform,
                                            oracle::Fill::kFull);
  ThreadRanks ranks(2);
  std::atomic<bool> is_gone{false};
  ranks.on_all([&](int rank) {
    LlRank io(ranks.comm(rank), ranks.stream_ref(rank), scenario, /*windows=*/false);
    auto group = ep::Group::create(ranks.comm(rank), group_config_for(scenario.c));
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    ASSERT_TRUE(io.open(**group).ok());
    EXPECT_TRUE(rank == 0 || wait_until([&] { return is_gone.load(); }, Deadline::after_ns(20 * kSecond)) == WaitResult::kReady);
    ASSERT_TRUE(io.post_dispatch().ok());
    io.close();
    if (rank == 0) is_gone = true;
    ASSERT_TRUE(ranks.stream(rank).synchronize(Deadline::after_ns(20 * kSecond)).ok());
    ASSERT_EQ(io.check_dispatch(), "");
  });
}

// The trace ring is always on: what a rank did can be read afterwards.
TEST(LowLatency, OperationsLeaveTheirBeginAndEndInTheTraceRing) {
  const LlScenario scenario = make_scenario(7, small_shape(2, oracle::Layout::kRankMajor), oracle::Routing::kUniform,
                                            oracle::Fill::kFull);
  ThreadRanks ranks(2);
  ranks.on_all([&](int rank) {
    const TraceRing& trace = ranks.comm(rank).trace();
    for (const bool staged : {false, true}) {
      EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, {.staged = staged}), "");
    }
    std::map<TracePhase, int> balance, num_begun;
    for (const TraceRecord& record : trace.snapshot()) {
      if (record.edge == TraceEdge::kInstant) continue;
      num_begun[record.phase] += record.edge == TraceEdge::kBegin;
      balance[record.phase] += record.edge == TraceEdge::kBegin ? 1 : -1;
    }
    for (const TracePhase phase : {TracePhase::kDispatch, TracePhase::kCombine, TracePhase::kDispatchSend,
                                   TracePhase::kDispatchReceive, TracePhase::kCombineSend, TracePhase::kCombineReceive}) {
      EXPECT_GT(num_begun[phase], 0) << trace_phase_name(phase);
      EXPECT_EQ(balance[phase], 0) << trace_phase_name(phase);
    }
    EXPECT_GT(num_begun[TracePhase::kWindow], 0);
  });
}

// An id that names no expert is dropped, because peers wait for this rank, and then reported by the stream.
TEST(LowLatency, AnImpossibleExpertIsReportedAndTheGroupGoesOn) {
  ThreadRanks ranks(1);
  ep::GroupConfig config;
  config.num_experts = 2;
  config.max_tokens_per_rank = 2;
  config.max_token_bytes = 16;
  auto group = ep::Group::create(ranks.comm(0), config);
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  auto handle = ep::Handle::create(**group, ep::Layout::kExpertMajor, 1);
  ASSERT_TRUE(handle.ok()) << handle.status().to_string();
  std::vector<int64_t> experts{2, 1};
  std::vector<uint8_t> tokens(32, 7), out(2 * 2 * 16, 0);
  std::vector<int32_t> counts(2, -1);
  ASSERT_TRUE((*handle)->update(ep::Tensor::of(experts.data(), DType::kInt64, {2, 1})).ok());
  ep::DispatchArgs args;
  args.tokens = ep::Tensor::of(tokens.data(), DType::kBfloat16, {2, 8});
  args.out_tokens = ep::Tensor::of(out.data(), DType::kBfloat16, {2, 2, 8});
  args.layout_info.expert_counters = ep::Tensor::of(counts.data(), DType::kInt32, {2});
  const auto dispatch = [&] {
    EXPECT_TRUE((*handle)->dispatch(args, ranks.stream_ref(0)).ok());
    return ranks.stream(0).synchronize(Deadline::after_ns(10 * kSecond));
  };
  const Status bad = dispatch();
  EXPECT_EQ(bad.code(), Code::kInvalidArgument);
  EXPECT_NE(bad.message().find("topk_idx"), std::string::npos) << bad.message();
  EXPECT_EQ(counts, (std::vector<int32_t>{0, 1}));  // the sound entry went its way
  EXPECT_FALSE(ranks.stream(0).take_error().ok());
  experts[0] = 0;
  EXPECT_TRUE(dispatch().ok());
  EXPECT_EQ(counts, (std::vector<int32_t>{1, 1}));
}

class LowLatencyModes : public ::testing::TestWithParam<std::tuple<oracle::Layout, bool, bool, int>> {};

TEST_P(LowLatencyModes, MatchTheOracle) {
  const auto [layout, windows, staged, num_ranks] = GetParam();
  for (const oracle::Routing routing : oracle::kAllRoutings) {
    run_case(small_shape(num_ranks, layout), routing, oracle::Fill::kPartial, {windows, staged, 5});
    if (HasFailure()) FAIL() << oracle::routing_name(routing);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LowLatencyModes,
                         ::testing::Combine(::testing::Values(oracle::Layout::kExpertMajor, oracle::Layout::kRankMajor),
                                            ::testing::Bool(), ::testing::Bool(), ::testing::Values(1, 2, 3, 8)));

}  // namespace
}  // namespace switchyard::testing
