// What programs and the Python package use of the C++ face and nothing below it tests: ranks as threads, each with its
// own Comm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "switchyard/coll.hpp"
#include "switchyard/ep.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard {
namespace {

using ep::BatchShape;
using ep::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kNumRanks = 3;

void on_ranks(const std::function<Comm(int)>& join, const std::function<void(Comm&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Comm comm = join(rank);
      body(comm);
      comm.barrier();  // a rank that leaves early would be missed
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void on_ranks(const std::function<void(Comm&)>& body) {
  const UniqueIdBytes id = make_unique_id();
  on_ranks([&](int rank) { return Comm(id, rank, kNumRanks); }, body);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Face, RanksMeetAtAStore) {
  const std::string store = text("file://", ::testing::TempDir(), "face_test_store_", getpid());
  on_ranks([&](int rank) { return Comm::from_store(store, rank, kNumRanks); },
           [&](Comm& comm) { EXPECT_EQ(comm.num_ranks(), kNumRanks); });
  EXPECT_THROW(Comm::from_store("ftp://somewhere", 0, 2), Error);
}

TEST(Face, Collectives) {
  on_ranks([](Comm& comm) {
    coll::CollGroup coll(comm);
    HostStream stream;
    const int me = comm.rank();
    const int32_t mine[kNumRanks] = {me, 10 + me, 20 + me};
    int32_t sum[kNumRanks], share = 0, gathered[kNumRanks], turned[kNumRanks], swapped[kNumRanks];
    int32_t told = me == 1 ? 77 : 0;
    const coll::Part parts[kNumRanks] = {{0, 1}, {1, 1}, {2, 1}};
    coll.all_reduce(mine, sum, kNumRanks, DType::kInt32, coll::ReduceOp::kSum, stream);
    coll.reduce_scatter(mine, &share, 1, DType::kInt32, coll::ReduceOp::kMax, stream);
    coll.all_gather(mine, gathered, 1, DType::kInt32, stream);
    coll.broadcast(&told, &told, 1, DType::kInt32, 1, stream);
    coll.all_to_all(mine, turned, 1, DType::kInt32, stream);
    coll.all_to_all_v(mine, parts, swapped, parts, DType::kInt32, stream);
    stream.synchronize();
    EXPECT_THAT(sum, ElementsAre(3, 33, 63));
    EXPECT_EQ(share, 10 * me + 2);
    EXPECT_THAT(gathered, ElementsAre(0, 1, 2));
    EXPECT_EQ(told, 77);
    EXPECT_THAT(turned, ElementsAre(10 * me, 10 * me + 1, 10 * me + 2));
    EXPECT_THAT(swapped, ElementsAre(10 * me, 10 * me + 1, 10 * me + 2));
    EXPECT_THROW(coll.broadcast(&told, &told, 1, DType::kInt32, kNumRanks, stream), Error);
    comm.barrier();  // nobody reads this rank's buffers any more
  });
}

TEST(Face, AStreamTellsWhatHasRunAndWhatFailed) {
  HostStream stream;
  std::atomic<bool> go = false;
  stream.launch([&](const HostPlatform&) {
    while (!go) std::this_thread::yield();
    throw std::runtime_error("on purpose");
  });
  EXPECT_FALSE(stream.wait_for(1'000'000));
  EXPECT_EQ(stream.num_completed() + 1, stream.num_posted());
  go = true;
  EXPECT_TRUE(stream.wait_for(10'000'000'000));
  EXPECT_THROW(stream.synchronize(), Error);
  EXPECT_THAT(stream.take_error().message(), HasSubstr("on purpose"));
  EXPECT_TRUE(stream.take_error().ok());
  stream.synchronize();
}

TEST(Face, GroupsSayWhatTheyHoldAndCloseOnlyWithoutHandles) {
  on_ranks([](Comm& comm) {
    ep::EpGroup group(comm, {.num_experts = 7, .max_tokens_per_rank = 4, .max_token_bytes = 64});
    const std::vector<std::vector<int>> expected = {{0, 1, 2}, {3, 4}, {5, 6}};
    EXPECT_EQ(group.local_experts(), expected[size_t(comm.rank())]);
    EXPECT_FALSE(group.is_eager());
    EXPECT_GT(ep::EpHandle::memory_bytes(group, ep::Layout::kExpertMajor, 2), 0u);
    {
      const ep::EpHandle handle(group, ep::Layout::kExpertMajor, 2);
      EXPECT_THROW(group.close(), Error);
    }
    group.close();
  });
}

TEST(Face, BatchesAreCheckedByName) {
  std::vector<float> x(2 * 4), weights(2 * 2);
  std::vector<int64_t> idx = {0, -1, 4, 2};
  const BatchShape shape{2, 4, 2, 5, DType::kFloat32};
  const Tensor rows = Tensor::of(x.data(), DType::kFloat32, {2, 4});
  const Tensor indices = Tensor::of(idx.data(), DType::kInt64, {2, 2});
  const Tensor numbers = Tensor::of(weights.data(), DType::kFloat32, {2, 2});
  ep::check_batch(rows, indices, numbers, shape);
  const auto complaint = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return message_of([&] { ep::check_batch(a, b, c, shape); });
  };
  EXPECT_THAT(complaint(Tensor::of(x.data(), DType::kFloat32, {4, 2}), indices, numbers),
              HasSubstr("x is [4, 2] float32"));
  EXPECT_THAT(complaint(Tensor::of(x.data(), DType::kFloat16, {2, 4}), indices, numbers),
              HasSubstr("must be [2, 4] float32"));
  EXPECT_THAT(complaint(Tensor::of(x.data() + 1, DType::kFloat32, {1, 4}), indices, numbers),
              HasSubstr("x must be aligned to 16 bytes"));
  EXPECT_THAT(complaint(rows, Tensor::of(idx.data(), DType::kInt64, {1, 2}), numbers), HasSubstr("topk_idx is [1, 2]"));
  EXPECT_THAT(complaint(rows, indices, Tensor::of(weights.data(), DType::kFloat32, {4})),
              HasSubstr("topk_weights is [4]"));
  ep::check_indices(indices, 5);
  const auto about_indices = [&] { return message_of([&] { ep::check_indices(indices, 5); }); };
  idx[3] = 5;
  EXPECT_THAT(about_indices(), HasSubstr("topk_idx[1, 1] is 5, allowed -1..4"));
  idx[3] = -2;
  EXPECT_THAT(about_indices(), HasSubstr("topk_idx[1, 1] is -2"));
}

TEST(Face, RowsAreWeighedInFp32AndRoundedOnce) {
  std::vector<uint16_t> rows = {0x3f80, 0x4000, 0x3f80, 0x3f81};  // 1, 2; 1, 1.0078125 in BF16
  std::vector<float> weights = {3, 0.501f};
  const Tensor tokens = Tensor::of(rows.data(), DType::kBfloat16, {2, 2});
  ep::weigh_rows(tokens, Tensor::of(weights.data(), DType::kFloat32, {2}), tokens);
  EXPECT_THAT(rows, ElementsAre(0x4040, 0x40c0, 0x3f00, 0x3f01));
  EXPECT_THAT(message_of([&] { ep::weigh_rows(tokens, tokens, tokens); }), HasSubstr("weights [2, 2] bfloat16"));
}

}  // namespace
}  // namespace switchyard
