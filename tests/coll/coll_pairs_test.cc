// Sends and receives: between any ranks, in any number, in order, and without the others.
#include <gtest/gtest.h>

#include "coll/coll_ranks.hpp"

namespace switchyard::testing {
namespace {

class Pairs : public ::testing::TestWithParam<Nodes> {
 protected:
  static Status transfer(CollRanks& ranks, int rank, const std::vector<coll::PairCall>& calls) {
    return ranks[rank].send_and_receive(calls, ranks.stream_ref(rank));
  }
};

TEST_P(Pairs, OneSendAndOneReceivePerRankIsAnAllToAllV) {
  CollRanks ranks(GetParam());
  const auto count = [](int from, int to) { return size_t(from * 7919 + to * 104'729) % 90'001; };
  ranks.on_all([&](int rank) {
    const auto n = size_t(ranks.size());
    std::vector<Bytes> sent(n), received(n);
    std::vector<coll::PairCall> calls;
    for (int peer = 0; peer < ranks.size(); ++peer) {
      sent[size_t(peer)] = make_input(DType::kUint8, rank, count(rank, peer), uint64_t(peer));
      received[size_t(peer)].resize(count(peer, rank), 0xee);
      calls.push_back({true, peer, sent[size_t(peer)].data(), count(rank, peer), DType::kUint8});
      calls.push_back({false, peer, received[size_t(peer)].data(), count(peer, rank), DType::kUint8});
    }
    for (int round = 0; round < 3; ++round) expect_posted(transfer(ranks, rank, calls));
    ranks.expect_finished(rank);
    for (int peer = 0; peer < ranks.size(); ++peer) {
      EXPECT_TRUE(received[size_t(peer)] == make_input(DType::kUint8, peer, count(peer, rank), uint64_t(rank)))
          << "from " << peer;
    }
  });
}

TEST_P(Pairs, RanksThatTakeNoPartAreNotNeeded) {
  CollRanks ranks(GetParam());
  const int last = ranks.size() - 1;
  const Bytes in = make_input(DType::kUint8, 0, 200'003);
  Bytes there(in.size()), back(in.size());
  ranks.on_all([&](int rank) {
    if (rank != 0 && rank != last) return;
    // One after the other, each as an operation of its own.
    if (rank == 0)
      expect_posted(transfer(ranks, 0, {{true, last, const_cast<uint8_t*>(in.data()), in.size(), DType::kUint8}}));
    if (rank == last) expect_posted(transfer(ranks, last, {{false, 0, there.data(), there.size(), DType::kUint8}}));
    if (rank == last) expect_posted(transfer(ranks, last, {{true, 0, there.data(), there.size(), DType::kUint8}}));
    if (rank == 0) expect_posted(transfer(ranks, 0, {{false, last, back.data(), back.size(), DType::kUint8}}));
    ranks.expect_finished(rank);
  });
  EXPECT_TRUE(there == in);
  EXPECT_TRUE(back == in);
  // The others are where they were.
  ranks.on_all([&](int rank) {
    int32_t number = 1;
    expect_posted(
        ranks[rank].all_reduce(&number, &number, 1, DType::kInt32, coll::ReduceOp::kSum, ranks.stream_ref(rank)));
    ranks.expect_finished(rank);
    EXPECT_EQ(number, ranks.size());
  });
}

TEST_P(Pairs, MessagesOfAPairKeepTheirOrder) {
  CollRanks ranks(GetParam());
  constexpr size_t kNumMessages = 40;
  ranks.on_all([&](int rank) {
    const int next = (rank + 1) % ranks.size(), previous = (rank + ranks.size() - 1) % ranks.size();
    std::vector<std::vector<int32_t>> sent, received;
    std::vector<coll::PairCall> calls;
    for (size_t i = 0; i < kNumMessages; ++i) {
      sent.emplace_back(1 + i * 37, int32_t(1000 * rank + int(i)));
      received.emplace_back(1 + i * 37, -1);
    }
    for (size_t i = 0; i < kNumMessages; ++i) {
      calls.push_back({true, next, sent[i].data(), sent[i].size(), DType::kInt32});
      calls.push_back({false, previous, received[i].data(), received[i].size(), DType::kInt32});
      calls.push_back({false, previous, nullptr, 0, DType::kInt32});  // an empty one is none
    }
    expect_posted(transfer(ranks, rank, calls));
    ranks.expect_finished(rank);
    for (size_t i = 0; i < kNumMessages; ++i) {
      EXPECT_EQ(received[i], std::vector<int32_t>(1 + i * 37, int32_t(1000 * previous + int(i)))) << "message " << i;
    }
  });
}

TEST_P(Pairs, ReceiversSayThatAnotherNumberCameAndGoOn) {
  CollRanks ranks(GetParam());
  const int last = ranks.size() - 1;
  const Bytes in = make_input(DType::kUint8, 0, 50'000);
  for (const size_t expected : {size_t(20'000), size_t(60'000)}) {
    Bytes out(70'000, 0xee), second(3);
    ranks.on_all([&](int rank) {
      auto* const data = const_cast<uint8_t*>(in.data());
      if (rank == 0) {
        expect_posted(
            transfer(ranks, 0, {{true, last, data, in.size(), DType::kUint8}, {true, last, data, 3, DType::kUint8}}));
        ranks.expect_finished(0);
      } else if (rank == last) {
        expect_posted(
            transfer(ranks, last,
                     {{false, 0, out.data(), expected, DType::kUint8}, {false, 0, second.data(), 3, DType::kUint8}}));
        const Status status = ranks.finish(last);
        EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.to_string();
        EXPECT_NE(
            status.message().find(text("rank 0 sends rank ", last, " 50000 bytes, but ", expected, " are expected")),
            std::string::npos)
            << status.to_string();
      }
    });
    const size_t came = std::min(expected, in.size());
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + std::ptrdiff_t(came), in.begin()));
    EXPECT_EQ(out[came], 0xee) << "nothing beyond";
    EXPECT_TRUE(std::equal(second.begin(), second.end(), in.begin())) << "the next message is the next message";
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, Pairs,
                         ::testing::Values(Nodes{"two", {0, 0}}, Nodes{"eight", {0, 0, 0, 0, 0, 0, 0, 0}},
                                           Nodes{"uneven", {0, 0, 0, 1, 2, 2}},
                                           Nodes{"uneven_ofi", {0, 0, 0, 1, 2, 2}, "ofi"},
                                           Nodes{"two_nodes_proxy", {0, 0, 1, 1}, "ofi", "proxy"}),
                         [](const auto& nodes) { return nodes.param.name; });

}  // namespace
}  // namespace switchyard::testing
