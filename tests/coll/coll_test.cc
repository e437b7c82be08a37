// Every collective against plain loops, byte for byte: all types and operations, many sizes, one node and several.
#include <gtest/gtest.h>

#include <algorithm>

#include "coll/coll_ranks.hpp"

namespace switchyard::testing {
namespace {

using coll::ReduceOp;

// None, one, an odd number, and enough for many pieces of the small stage, more than there is room for.
constexpr size_t kCounts[] = {0, 1, 1003, 40'009};

class Collectives : public ::testing::TestWithParam<Nodes> {
 protected:
  const std::vector<int>& nodes() const { return GetParam().of_rank; }
  size_t num_ranks() const { return nodes().size(); }

  std::vector<Bytes> inputs_of(DType dtype, size_t num_elements) const {
    std::vector<Bytes> inputs;
    for (size_t rank = 0; rank < num_ranks(); ++rank) inputs.push_back(make_input(dtype, int(rank), num_elements));
    return inputs;
  }
  static Bytes part_of(const Bytes& bytes, size_t begin, size_t num_bytes) {
    return {bytes.begin() + std::ptrdiff_t(begin), bytes.begin() + std::ptrdiff_t(begin + num_bytes)};
  }
};

// One reduction: all ranks' inputs, and what comes out.
struct Case {
  DType dtype;
  ReduceOp op;
  size_t count;
  std::vector<Bytes> inputs;
  Bytes expected;

  std::string name() const { return text(dtype_name(dtype), ", op ", int(op), ", ", count); }
};

// All types and operations; long vectors of the types of models only.
std::vector<Case> reductions(const std::vector<int>& nodes, size_t num_shares) {
  std::vector<Case> cases;
  for (const DType dtype : kReducible) {
    for (const ReduceOp op : kOps) {
      for (const size_t in_all : kCounts) {
        const size_t count = in_all > 2000 ? in_all / num_shares : in_all;
        const bool of_models = dtype == DType::kBfloat16 || dtype == DType::kFloat32;
        if (in_all > 2000 && (!of_models || op != ReduceOp::kSum)) continue;
        Case made{dtype, op, count, {}, {}};
        for (size_t rank = 0; rank < nodes.size(); ++rank) {
          made.inputs.push_back(make_input(dtype, int(rank), count * num_shares));
        }
        made.expected = reduce(dtype, op, made.inputs, nodes);
        cases.push_back(std::move(made));
      }
    }
  }
  return cases;
}

TEST_P(Collectives, AllReduceGivesEveryRankTheSameBitsInTheDocumentedOrder) {
  CollRanks ranks(GetParam());
  const std::vector<Case> cases = reductions(nodes(), 1);
  ranks.on_all([&](int rank) {
    std::vector<Bytes> outs, both;
    for (const Case& c : cases) {
      const Bytes& in = c.inputs[size_t(rank)];
      outs.emplace_back(in.size(), 0xee);
      both.push_back(in);
      expect_posted(
          ranks[rank].all_reduce(in.data(), outs.back().data(), c.count, c.dtype, c.op, ranks.stream_ref(rank)));
      void* const place = both.back().data();
      expect_posted(ranks[rank].all_reduce(place, place, c.count, c.dtype, c.op, ranks.stream_ref(rank)));
    }
    ranks.expect_finished(rank);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(cases[i].name());
      EXPECT_TRUE(outs[i] == cases[i].expected);
      EXPECT_TRUE(both[i] == cases[i].expected) << "in place";
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsShare) {
  CollRanks ranks(GetParam());
  const std::vector<Case> cases = reductions(nodes(), num_ranks());
  ranks.on_all([&](int rank) {
    std::vector<Bytes> outs, both;
    for (const Case& c : cases) {
      const Bytes& in = c.inputs[size_t(rank)];
      outs.emplace_back(c.count * dtype_bytes(c.dtype), 0xee);
      both.push_back(in);
      expect_posted(
          ranks[rank].reduce_scatter(in.data(), outs.back().data(), c.count, c.dtype, c.op, ranks.stream_ref(rank)));
      uint8_t* const place = both.back().data();
      expect_posted(ranks[rank].reduce_scatter(place, place + outs.back().size() * size_t(rank), c.count, c.dtype, c.op,
                                               ranks.stream_ref(rank)));
    }
    ranks.expect_finished(rank);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(cases[i].name());
      const size_t share = outs[i].size(), mine = share * size_t(rank);
      const Bytes expected = part_of(cases[i].expected, mine, share);
      EXPECT_TRUE(outs[i] == expected);
      EXPECT_TRUE(part_of(both[i], mine, share) == expected) << "in place";
    }
  });
}

TEST_P(Collectives, AllGatherPutsRanksSideBySide) {
  CollRanks ranks(GetParam());
  for (const DType dtype : {DType::kUint8, DType::kBfloat16, DType::kFloat64, DType::kFloat8E4M3, DType::kFloat4x2}) {
    for (const size_t count : kCounts) {
      const std::vector<Bytes> inputs = inputs_of(dtype, count);
      Bytes expected;
      for (const Bytes& input : inputs) expected.insert(expected.end(), input.begin(), input.end());
      ranks.on_all([&](int rank) {
        SCOPED_TRACE(text(dtype_name(dtype), ", ", count));
        const Bytes& in = inputs[size_t(rank)];
        Bytes out(expected.size(), 0xee), both(expected.size(), 0xee);
        uint8_t* const place = both.data() + in.size() * size_t(rank);
        std::copy(in.begin(), in.end(), place);
        expect_posted(ranks[rank].all_gather(in.data(), out.data(), count, dtype, ranks.stream_ref(rank)));
        expect_posted(ranks[rank].all_gather(place, both.data(), count, dtype, ranks.stream_ref(rank)));
        ranks.expect_finished(rank);
        EXPECT_TRUE(out == expected);
        EXPECT_TRUE(both == expected) << "in place";
      });
    }
  }
}

TEST_P(Collectives, BroadcastReachesEverybodyFromEveryRoot) {
  CollRanks ranks(GetParam());
  for (const size_t count : kCounts) {
    const std::vector<Bytes> inputs = inputs_of(DType::kFloat32, count);
    ranks.on_all([&](int rank) {
      for (int root = 0; root < ranks.size(); ++root) {
        SCOPED_TRACE(text(count, " from ", root));
        const Bytes& expected = inputs[size_t(root)];
        const void* const in = rank == root ? expected.data() : nullptr;
        Bytes out(expected.size(), 0xee), both = rank == root ? expected : out;
        expect_posted(ranks[rank].broadcast(in, out.data(), count, DType::kFloat32, root, ranks.stream_ref(rank)));
        expect_posted(
            ranks[rank].broadcast(both.data(), both.data(), count, DType::kFloat32, root, ranks.stream_ref(rank)));
        ranks.expect_finished(rank);
        EXPECT_TRUE(out == expected);
        EXPECT_TRUE(both == expected) << "in place";
      }
    });
  }
}

TEST_P(Collectives, AllToAllTransposes) {
  CollRanks ranks(GetParam());
  const size_t n = num_ranks();
  for (const DType dtype : {DType::kInt8, DType::kBfloat16, DType::kInt64}) {
    for (const size_t count : kCounts) {
      const std::vector<Bytes> inputs = inputs_of(dtype, count * n);
      const size_t share = count * dtype_bytes(dtype);
      ranks.on_all([&](int rank) {
        SCOPED_TRACE(text(dtype_name(dtype), ", ", count));
        Bytes expected;
        for (const Bytes& input : inputs) {
          const Bytes part = part_of(input, share * size_t(rank), share);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        const Bytes& in = inputs[size_t(rank)];
        Bytes out(in.size(), 0xee), both = in;
        expect_posted(ranks[rank].all_to_all(in.data(), out.data(), count, dtype, ranks.stream_ref(rank)));
        expect_posted(ranks[rank].all_to_all(both.data(), both.data(), count, dtype, ranks.stream_ref(rank)));
        ranks.expect_finished(rank);
        EXPECT_TRUE(out == expected);
        EXPECT_TRUE(both == expected) << "in place";
      });
    }
  }
}

// Between some ranks nothing, between others more than the room of many pieces.
size_t uneven_count(int from, int to, int round) {
  constexpr size_t kSome[] = {0, 1, 777, 30'011, 5};
  return round == 0 ? 0 : kSome[size_t(from * 3 + to + round) % std::size(kSome)];
}

TEST_P(Collectives, AllToAllVMovesWhatEachPairSays) {
  CollRanks ranks(GetParam());
  for (int round = 0; round < 4; ++round) {
    ranks.on_all([&](int rank) {
      SCOPED_TRACE(text("round ", round));
      std::vector<coll::Part> sent, received;
      size_t num_sent = 2, num_received = 3;  // nothing begins where the buffer does
      for (int peer = 0; peer < ranks.size(); ++peer) {
        sent.push_back({num_sent, uneven_count(rank, peer, round)});
        received.push_back({num_received, uneven_count(peer, rank, round)});
        num_sent += sent.back().num_elements + 1;
        num_received += received.back().num_elements + 2;
      }
      const auto number = [](int from, int to, size_t idx) {
        return int32_t(from * 1000 + to * 100'000 + int(idx) * 7);
      };
      std::vector<int32_t> in(num_sent, -1), out(num_received, -2), expected = out;
      for (int peer = 0; peer < ranks.size(); ++peer) {
        const auto fill = [](std::vector<int32_t>& where, const coll::Part& part, auto value) {
          for (size_t i = 0; i < part.num_elements; ++i) where[part.offset + i] = value(i);
        };
        fill(in, sent[size_t(peer)], [&](size_t i) { return number(rank, peer, i); });
        fill(expected, received[size_t(peer)], [&](size_t i) { return number(peer, rank, i); });
      }
      expect_posted(
          ranks[rank].all_to_all_v(in.data(), sent, out.data(), received, DType::kInt32, ranks.stream_ref(rank)));
      sent.clear();  // both were read
      received.clear();
      ranks.expect_finished(rank);
      EXPECT_TRUE(out == expected);
    });
  }
}

// Banks, messages and their room go on from one operation to the next, whatever that is, with nobody waiting in
// between.
void expect_right_without_a_pause(CollRanks& ranks) {
  const auto n = size_t(ranks.size());
  constexpr size_t kCount = 9'001, kRounds = 6, kShare = kCount * 2;
  constexpr DType kType = DType::kBfloat16;
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks.size(); ++rank) inputs.push_back(make_input(kType, rank, kCount * n));
  const Bytes sums = reduce(kType, ReduceOp::kSum, inputs, ranks.nodes());
  ranks.on_all([&](int rank) {
    coll::Collectives& c = ranks[rank];
    const Bytes& in = inputs[size_t(rank)];
    const StreamRef stream = ranks.stream_ref(rank);
    std::vector<Bytes> shares(kRounds, Bytes(kShare)), gathered(kRounds, Bytes(kShare * n)), added = gathered,
                                                                                             spread = shares;
    for (size_t round = 0; round < kRounds; ++round) {
      const int root = int(round % n);
      expect_posted(c.reduce_scatter(in.data(), shares[round].data(), kCount, kType, ReduceOp::kSum, stream));
      expect_posted(c.all_gather(shares[round].data(), gathered[round].data(), kCount, kType, stream));
      expect_posted(c.broadcast(shares[round].data(), spread[round].data(), kCount, kType, root, stream));
      expect_posted(c.all_reduce(in.data(), added[round].data(), kCount * n, kType, ReduceOp::kSum, stream));
    }
    ranks.expect_finished(rank);
    for (size_t round = 0; round < kRounds; ++round) {
      SCOPED_TRACE(text("round ", round));
      const auto root_share = sums.begin() + std::ptrdiff_t(kShare * (round % n));
      EXPECT_TRUE(gathered[round] == sums) << "reduce-scatter and all-gather are an all-reduce";
      EXPECT_TRUE(added[round] == sums);
      EXPECT_TRUE(std::equal(spread[round].begin(), spread[round].end(), root_share));
    }
  });
}

TEST_P(Collectives, OperationsFollowEachOtherWithoutAPause) {
  CollRanks ranks(GetParam());
  expect_right_without_a_pause(ranks);
}

// As docs/collectives.md counts them.
TEST(CollectivesBetweenNodes, SendEachByteOncePerNode) {
  for (const Nodes& nodes : {Nodes{"", {0, 0, 0, 1, 2, 2}}, Nodes{"", {0, 1, 1, 1}}, Nodes{"", {0, 0, 1, 1}, "ofi"}}) {
    CollRanks ranks(nodes);
    const auto n = uint64_t(ranks.size());
    const auto num_nodes = uint64_t(nodes.of_rank.back()) + 1;
    uint64_t pairs_between_nodes = 0;  // of ranks
    for (const int a : nodes.of_rank) {
      for (const int b : nodes.of_rank) pairs_between_nodes += a != b;
    }
    constexpr uint64_t kCount = 50'000, kBytes = kCount * 4;
    std::vector<std::vector<float>> in(n, std::vector<float>(kCount * n)), out = in;
    const auto sent_by = [&](const std::function<Status(int rank)>& call) {
      uint64_t sum = 0;
      for (int rank = 0; rank < ranks.size(); ++rank) sum -= ranks[rank].bytes_sent();
      ranks.on_all([&](int rank) {
        expect_posted(call(rank));
        ranks.expect_finished(rank);
      });
      for (int rank = 0; rank < ranks.size(); ++rank) sum += ranks[rank].bytes_sent();
      return sum;
    };
    const auto from = [&](int rank) { return in[size_t(rank)].data(); };
    const auto to = [&](int rank) { return out[size_t(rank)].data(); };
    constexpr DType kType = DType::kFloat32;
    EXPECT_EQ(sent_by([&](int r) { return ranks[r].all_gather(from(r), to(r), kCount, kType, ranks.stream_ref(r)); }),
              n * (num_nodes - 1) * kBytes);
    EXPECT_EQ(sent_by([&](int r) { return ranks[r].broadcast(from(r), to(r), kCount, kType, 1, ranks.stream_ref(r)); }),
              (num_nodes - 1) * kBytes);
    EXPECT_EQ(sent_by([&](int r) { return ranks[r].all_to_all(from(r), to(r), kCount, kType, ranks.stream_ref(r)); }),
              pairs_between_nodes * kBytes);
    const uint64_t partials = n * (num_nodes - 1) * kBytes;
    EXPECT_EQ(sent_by([&](int r) {
                return ranks[r].reduce_scatter(from(r), to(r), kCount, kType, ReduceOp::kSum, ranks.stream_ref(r));
              }),
              partials);
    EXPECT_EQ(sent_by([&](int r) {
                return ranks[r].all_reduce(from(r), to(r), kCount * n, kType, ReduceOp::kSum, ranks.stream_ref(r));
              }),
              2 * partials);
  }
}

// What is to be sent is read late: it must still be there.
TEST(CollectivesOverALateNetwork, SendWhatTheyWereGiven) {
  for (const char* net : {"mem", "ofi"}) {
    CollRanks ranks(Nodes{"", {0, 0, 1}, net}, kSmallStage,
                    {.net_decorations = {.faults = FaultPlan{.delay = 0.5, .max_delay_ns = 2 * kMillisecond}}});
    expect_right_without_a_pause(ranks);
  }
}

const Nodes kTopologies[] = {
    {"three", {0, 0, 0}},
    {"uneven", {0, 0, 0, 1, 2, 2}},
    {"one_and_three_ofi_proxy", {0, 1, 1, 1}, "ofi", "proxy"},
#if !defined(__SANITIZE_THREAD__)  // which takes ten times as long, and is interested in the kinds only
    {"one", {0}},
    {"two", {0, 0}},
    {"four", {0, 0, 0, 0}},
    {"eight", {0, 0, 0, 0, 0, 0, 0, 0}},
    {"two_nodes", {0, 1}},
    {"three_and_two", {0, 0, 0, 1, 1}},
    {"one_and_three", {0, 1, 1, 1}},
    {"seven_nodes", {0, 1, 2, 3, 4, 5, 6}},
    {"two_nodes_of_four", {0, 0, 0, 0, 1, 1, 1, 1}},
    {"two_nodes_ofi", {0, 0, 1, 1}, "ofi"},
    {"uneven_ofi", {0, 0, 0, 1, 2, 2}, "ofi"},
    {"uneven_proxy", {0, 0, 0, 1, 2, 2}, "mem", "proxy"},
#endif
};
INSTANTIATE_TEST_SUITE_P(Topologies, Collectives, ::testing::ValuesIn(kTopologies),
                         [](const auto& nodes) { return nodes.param.name; });

// As programs use them: the stage at its own size, vectors beyond it.
TEST(CollectivesOfAnySize, LargeVectorsGoThroughTheStageInPieces) {
  for (const Nodes& nodes : {Nodes{"", {0, 0, 0}}, Nodes{"", {0, 1, 1}}, Nodes{"", {0, 0, 1}, "ofi"}}) {
    CollRanks ranks(nodes, /*stage_bytes=*/0);
    const size_t count = (size_t(9) << 18) + 12'345;  // 4.5 MiB of BF16
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < 3; ++rank) inputs.push_back(make_input(DType::kFloat32, rank, count / 2));
    Bytes expected;
    for (const Bytes& input : inputs) expected.insert(expected.end(), input.begin(), input.end());
    const Bytes sums = reduce(DType::kFloat32, ReduceOp::kSum, inputs, nodes.of_rank);
    ranks.on_all([&](int rank) {
      const Bytes& in = inputs[size_t(rank)];
      Bytes out(expected.size()), added(in.size());
      expect_posted(ranks[rank].all_gather(in.data(), out.data(), count / 2, DType::kFloat32, ranks.stream_ref(rank)));
      expect_posted(ranks[rank].all_reduce(in.data(), added.data(), count / 2, DType::kFloat32, ReduceOp::kSum,
                                           ranks.stream_ref(rank)));
      ranks.expect_finished(rank);
      EXPECT_TRUE(out == expected);
      EXPECT_TRUE(added == sums);
    });
  }
}

}  // namespace
}  // namespace switchyard::testing
