// What is refused, what never blocks, and what ranks are told when others don't come.
#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "coll/coll_ranks.hpp"

namespace switchyard::testing {
namespace {

using coll::ReduceOp;

constexpr uint64_t kShortLimit = kSecond;  // of joining, too

void expect_refused(const Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
}

TEST(CollectiveErrors, WhatCannotBeIsRefusedAndLeavesEverythingAsItWas) {
  CollRanks ranks(Nodes{"", {0, 0}});
  ranks.on_all([&](int rank) {
    coll::Collectives& c = ranks[rank];
    const StreamRef stream = ranks.stream_ref(rank);
    std::array<float, 8> buffer{};
    float* const data = buffer.data();
    expect_refused(c.all_gather(nullptr, data, 4, DType::kFloat32, stream), "NULL");
    expect_refused(c.all_gather(data, nullptr, 4, DType::kFloat32, stream), "NULL");
    expect_refused(c.all_gather(data, data, 4, DType(99), stream), "unknown datatype 99");
    expect_refused(c.all_gather(data, data, ~size_t(0) / 8, DType::kFloat64, stream), "too large");
    expect_refused(c.all_reduce(data, data, 4, DType::kFloat32, ReduceOp(5), stream), "unknown reduction 5");
    expect_refused(c.all_reduce(data, data, 4, DType::kFloat32, ReduceOp(-1), stream), "unknown reduction -1");
    expect_refused(c.all_reduce(data, data, 4, DType::kFloat8E4M3, ReduceOp::kSum, stream), "float8_e4m3");
    const char* const odd = reinterpret_cast<const char*>(data) + 1;
    expect_refused(c.all_reduce(odd, data, 1, DType::kFloat32, ReduceOp::kSum, stream), "not aligned");
    expect_refused(c.reduce_scatter(nullptr, data, 4, DType::kFloat32, ReduceOp::kSum, stream), "NULL");
    expect_refused(c.reduce_scatter(data, data, 4, DType::kFloat4x2, ReduceOp::kSum, stream), "float4x2");
    expect_refused(c.broadcast(data, data, 4, DType::kFloat32, 2, stream), "root is 2, allowed 0..1");
    expect_refused(c.broadcast(data, data, 4, DType::kFloat32, -1, stream), "root is -1");
    expect_refused(c.all_to_all(data, nullptr, 1, DType::kFloat32, stream), "NULL");
    const std::vector<coll::Part> one(1), two(2), lots(2, coll::Part{~size_t(0) / 2, 2}), some(2, coll::Part{0, 2});
    expect_refused(c.all_to_all_v(data, one, data, two, DType::kFloat32, stream), "the send buffer has 1 parts");
    expect_refused(c.all_to_all_v(data, two, data, one, DType::kFloat32, stream), "the receive buffer has 1 parts");
    expect_refused(c.all_to_all_v(data, lots, data, lots, DType::kFloat32, stream), "too large");
    expect_refused(c.all_to_all_v(nullptr, some, data, some, DType::kFloat32, stream), "the send buffer is NULL");
    expect_refused(c.all_to_all_v(data, some, data, two, DType::kFloat32, stream),
                   "sends itself 2 elements and expects 0");
    const std::vector<coll::PairCall> nobody{{true, 2, data, 1, DType::kFloat32}},
        nothing{{false, 0, nullptr, 1, DType::kFloat32}};
    expect_refused(c.send_and_receive(nobody, stream), "peer is 2, allowed 0..1");
    expect_refused(c.send_and_receive(nothing, stream), "NULL");
    buffer.fill(float(rank + 1));
    expect_posted(c.all_reduce(data, data, buffer.size(), DType::kFloat32, ReduceOp::kSum, stream));
    ranks.expect_finished(rank);
    EXPECT_EQ(buffer[7], 3.0f);
  });
}

// Rank 2 does what the others don't: with another count (none, more than goes at a time), type, reduction or root, or something else.
TEST(CollectiveErrors, RanksOfANodeThatDisagreeAreAllToldAndGoOn) {
  constexpr size_t kMany = 600'000;
  CollRanks ranks(Nodes{"", {0, 0, 0}});
  std::vector<std::vector<float>> memory(3, std::vector<float>(3 * kMany));
  const auto call = [&](int rank, int variation) {
    coll::Collectives& c = ranks[rank];
    const StreamRef stream = ranks.stream_ref(rank);
    float* const data = memory[size_t(rank)].data();
    const auto sum = [&](size_t count, DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum) {
      return c.all_reduce(data, data, count, dtype, op, stream);
    };
    const bool apart = rank == 2;
    switch (variation) {
      case 0: return sum(apart ? 4 : 8);
      case 1: return sum(apart ? 0 : 8);
      case 2: return sum(apart ? kMany : 8);
      case 3: return sum(4, apart ? DType::kInt32 : DType::kFloat32);
      case 4: return sum(4, DType::kFloat32, apart ? ReduceOp::kMax : ReduceOp::kSum);
      case 5: return c.broadcast(data, data, kMany, DType::kFloat32, apart ? 1 : 0, stream);
      case 6: return apart ? sum(4) : c.all_gather(data, data, 4, DType::kFloat32, stream);
      case 7: return apart ? sum(kMany) : c.reduce_scatter(data, data, kMany, DType::kFloat32, ReduceOp::kSum, stream);
      default: return apart ? c.all_to_all(data, data, 4, DType::kFloat32, stream) : sum(4);
    }
  };
  ranks.on_all([&](int rank) {
    for (int variation = 0; variation < 9; ++variation) {
      expect_posted(call(rank, variation));
      const Status status = ranks.finish(rank);
      EXPECT_EQ(status.code(), Code::kInvalidUsage) << variation << ": " << status.to_string();
      EXPECT_NE(status.message().find(rank == 2 ? "rank 1 calls another" : "rank 2 calls another"), std::string::npos)
          << variation << ": " << status.to_string();
      std::vector<float> one(3, float(rank));
      expect_posted(
          ranks[rank].all_reduce(one.data(), one.data(), 3, DType::kFloat32, ReduceOp::kSum, ranks.stream_ref(rank)));
      ranks.expect_finished(rank);
      EXPECT_EQ(one[2], 3.0f) << variation;
    }
  });
}

TEST(CollectiveErrors, BetweenNodesADisagreementEndsTheCollectives) {
  CollRanks ranks(Nodes{"", {0, 0, 1}}, kSmallStage, {.timeout_ns = kShortLimit});
  ranks.on_all([&](int rank) {
    std::vector<float> data(8);
    expect_posted(ranks[rank].all_reduce(data.data(), data.data(), rank == 1 ? 4 : 8, DType::kFloat32, ReduceOp::kSum,
                                         ranks.stream_ref(rank)));
    const Status status = ranks.finish(rank);
    EXPECT_FALSE(status.ok()) << rank;
    if (rank < 2) {
      EXPECT_NE(status.message().find(text("rank ", 1 - rank, " calls another")), std::string::npos) << status.to_string();
    }
  });
}

TEST(CollectiveErrors, ReceiversSayThatOthersSendAnotherNumberAndGoOn) {
  for (const Nodes& nodes : {Nodes{"", {0, 0, 0}}, Nodes{"", {0, 1, 1}}}) {
    CollRanks ranks(nodes);
    ranks.on_all([&](int rank) {
      // Rank 1 sends rank 2 more, and rank 0 sends rank 2 less, than that expects.
      std::vector<coll::Part> sent(3, coll::Part{0, 10'000}), received{{0, 10'000}, {20'000, 10'000}, {40'000, 10'000}};
      if (rank == 1) sent[2].num_elements = 15'000;
      if (rank == 0) sent[2].num_elements = 9'000;
      const std::vector<int32_t> in(15'000, rank);
      std::vector<int32_t> out(60'000, -1);
      expect_posted(
          ranks[rank].all_to_all_v(in.data(), sent, out.data(), received, DType::kInt32, ranks.stream_ref(rank)));
      const Status status = ranks.finish(rank);
      EXPECT_EQ(status.ok(), rank != 2);
      if (rank == 2) {
        EXPECT_EQ(status.message(), "all-to-all-v: rank 0 sends rank 2 9000 elements, but 10000 are expected");
        EXPECT_EQ(out[8'999], 0);
        EXPECT_EQ(out[9'000], -1);
        EXPECT_EQ(out[29'999], 1);
        EXPECT_EQ(out[30'000], -1);
      }
      expect_posted(ranks[rank].all_gather(in.data(), out.data(), 15'000, DType::kInt32, ranks.stream_ref(rank)));
      ranks.expect_finished(rank);
      EXPECT_EQ(out[44'999], 2);
    });
  }
}

// The rank that does not come is named, by the stream and by every later call; nobody hangs.
struct Absence {
  Nodes nodes;
  const char* call;
  Status post(coll::Collectives& c, std::vector<float>& data, StreamRef stream) const {
    const int root = int(nodes.of_rank.size()) - 1;
    if (std::string_view(call) == "broadcast")
      return c.broadcast(data.data(), data.data(), 9, DType::kFloat32, root, stream);
    if (std::string_view(call) == "all-gather")
      return c.all_gather(data.data(), data.data(), 1, DType::kFloat32, stream);
    if (std::string_view(call) == "all-to-all-v") {
      const std::vector<coll::Part> nothing(nodes.of_rank.size());
      return c.all_to_all_v(data.data(), nothing, data.data(), nothing, DType::kFloat32, stream);
    }
    return c.all_reduce(data.data(), data.data(), 9, DType::kFloat32, ReduceOp::kSum, stream);
  }
};
class AbsentRanks : public ::testing::TestWithParam<Absence> {};

TEST_P(AbsentRanks, AreNamedWhenTheTimeIsUp) {
  CollRanks ranks(GetParam().nodes, kSmallStage, {.timeout_ns = kShortLimit});
  const int absent = ranks.size() - 1;
  ranks.on_all([&](int rank) {
    if (rank == absent) return;
    std::vector<float> data(64);
    const auto post = [&] { return GetParam().post(ranks[rank], data, ranks.stream_ref(rank)); };
    const uint64_t begin = now_ns();
    expect_posted(post());
    expect_posted(post());
    EXPECT_LT(now_ns() - begin, kShortLimit / 2) << "posting blocks";
    EXPECT_FALSE(ranks.stream(rank).idle());
    const Status status = ranks.finish(rank);
    EXPECT_LT(now_ns() - begin, 5 * kShortLimit);
    EXPECT_EQ(status.code(), Code::kRemoteError) << status.to_string();
    EXPECT_EQ(status.message().find(text(GetParam().call, ": rank ", rank, " waited for rank ", absent)), 0u)
        << status.message();
    EXPECT_EQ(post().message(), status.message());
    EXPECT_EQ(ranks.comm(rank).async_error().message(), status.message());
  });
}
INSTANTIATE_TEST_SUITE_P(Topologies, AbsentRanks,
                         ::testing::Values(Absence{{"one_node", {0, 0, 0}}, "all-gather"},
                                           Absence{{"two_nodes", {0, 1}}, "all-reduce"},
                                           Absence{{"two_nodes_ofi", {0, 1}, "ofi"}, "broadcast"},
                                           Absence{{"two_nodes_that_announce", {0, 1, 1}}, "all-to-all-v"},
                                           Absence{{"two_nodes_that_announce_ofi", {0, 0, 1}, "ofi"}, "all-to-all-v"}),
                         [](const auto& absence) { return absence.param.nodes.name; });

// Two ranks disagree, and the third does not come at all: they are out of step with it, and must not go on.
TEST(CollectiveErrors, ADisagreementDoesNotHideThatSomebodyIsMissing) {
  for (const bool is_gone : {false, true}) {
    CollRanks ranks(Nodes{"", {0, 0, 0}}, kSmallStage, {.timeout_ns = is_gone ? 60 * kSecond : kShortLimit});
    std::vector<std::vector<float>> data(2, std::vector<float>(9));
    for (int rank = 0; is_gone && rank < 2; ++rank) ranks.comm(rank).health().mark_gone(2);
    const auto sum = [&](int rank) {
      return ranks[rank].all_reduce(data[size_t(rank)].data(), data[size_t(rank)].data(), 9, DType::kFloat32, ReduceOp::kSum,
                                    ranks.stream_ref(rank));
    };
    expect_posted(ranks[0].all_gather(data[0].data(), data[0].data(), 3, DType::kFloat32, ranks.stream_ref(0)));
    expect_posted(sum(1));
    for (int rank = 0; rank < 2; ++rank) {
      const Status status = ranks.finish(rank);
      EXPECT_EQ(status.code(), Code::kRemoteError) << status.to_string();
      EXPECT_NE(status.message().find(text("rank ", rank, " waited for rank 2")), std::string::npos) << status.message();
      EXPECT_EQ(sum(rank).message(), status.message()) << "what follows is refused";
    }
  }
}

// How an all-reduce of rank 0, to which nobody else comes, ends when `happens`, long before its time limit.
template <class Event>
Status ended_at_once(CollRanks& ranks, Event happens) {
  float value = 1;
  expect_posted(ranks[0].all_reduce(&value, &value, 1, DType::kFloat32, ReduceOp::kSum, ranks.stream_ref(0)));
  happens();
  const uint64_t begin = now_ns();
  const Status status = ranks.finish(0);
  EXPECT_LT(now_ns() - begin, 2 * kSecond);
  EXPECT_EQ(status.code(), Code::kRemoteError);
  return status;
}

TEST(CollectiveErrors, ARankThatIsGoneIsNamedAtOnce) {
  CollRanks ranks(Nodes{"", {0, 0}}, kSmallStage, {.timeout_ns = 60 * kSecond});
  const Status status = ended_at_once(ranks, [&] { ranks.comm(0).health().mark_gone(1); });
  EXPECT_NE(status.message().find("waited for rank 1"), std::string::npos) << status.message();
}

// Rank 0 waits for rank 1, which lives and may be waiting for the dead itself.
TEST(CollectiveErrors, ADeathEndsWaitsForTheLivingToo) {
  for (const Nodes& nodes : {Nodes{"", {0, 0, 0}}, Nodes{"", {0, 1, 2}}}) {
    CollRanks ranks(nodes, kSmallStage, {.timeout_ns = 60 * kSecond});
    const Status status = ended_at_once(ranks, [&] { ranks.comm(0).health().mark_dead(2); });
    EXPECT_EQ(status.message().find("all-reduce: rank 0 waited for rank 1"), 0u) << status.message();
    EXPECT_NE(status.message().find("but the process of rank 2 is gone"), std::string::npos) << status.message();
  }
}

// A death is the business of those who send to the dead or expect something of it.
TEST(CollectiveErrors, SendsBetweenTheLivingGoOn) {
  CollRanks ranks(Nodes{"", {0, 0, 0}});
  for (int rank = 0; rank < 2; ++rank) ranks.comm(rank).health().mark_dead(2);
  std::vector<int> sent(9, 7), received(9);
  const std::vector<coll::PairCall> to_1{{true, 1, sent.data(), sent.size(), DType::kInt32}},
      from_0{{false, 0, received.data(), received.size(), DType::kInt32}};
  expect_posted(ranks[1].send_and_receive(from_0, ranks.stream_ref(1)));
  EXPECT_FALSE(ranks.stream(1).synchronize(Deadline::after_ns(50 * kMillisecond)).ok()) << "it waits";
  expect_posted(ranks[0].send_and_receive(to_1, ranks.stream_ref(0)));
  ranks.expect_finished(0);
  ranks.expect_finished(1);
  EXPECT_EQ(received, sent);
}

TEST(CollectiveErrors, AbortEndsEveryWaitAndRefusesWhatFollows) {
  for (const Nodes& nodes : {Nodes{"", {0, 0}}, Nodes{"", {0, 1}}, Nodes{"", {0, 1}, "ofi"}}) {
    CollRanks ranks(nodes, kSmallStage, {.timeout_ns = 60 * kSecond});
    std::vector<float> data(30'000);
    expect_posted(ranks[0].all_gather(data.data(), data.data(), 10'000, DType::kFloat32, ranks.stream_ref(0)));
    const uint64_t begin = now_ns();
    ranks.comm(0).abort("the test wants it");
    const Status status = ranks.finish(0);
    EXPECT_LT(now_ns() - begin, kSecond);
    EXPECT_EQ(status.message(), "all-gather: the communicator was aborted");
    EXPECT_FALSE(ranks[0].all_gather(data.data(), data.data(), 1, DType::kFloat32, ranks.stream_ref(0)).ok());
  }
}

// The order of the calls counts, not the streams.
TEST(CollectiveErrors, OperationsOnSeveralStreamsDoNotOvertakeEachOther) {
  for (const Nodes& nodes : {Nodes{"", {0, 0}}, Nodes{"", {0, 1}}}) {
    CollRanks ranks(nodes);
    ranks.on_all([&](int rank) {
      const auto other = std::move(Stream::create()).value();
      const size_t count = 20'001;
      std::vector<int64_t> data(count, rank + 1);
      for (int i = 0; i < 20; ++i) {
        const StreamRef stream = i % 2 == 0 ? ranks.stream_ref(rank) : StreamRef{other.get()};
        expect_posted(ranks[rank].all_reduce(data.data(), data.data(), count, DType::kInt64, ReduceOp::kSum, stream));
      }
      EXPECT_TRUE(other->synchronize(Deadline::after_ns(30 * kSecond)).ok());
      EXPECT_EQ(data, std::vector<int64_t>(count, int64_t(3) << 19));
    });
  }
}

}  // namespace
}  // namespace switchyard::testing
