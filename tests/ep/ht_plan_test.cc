// The plan in a handle's memory: whose it is, and what becomes of those who would follow another's.
#include <gtest/gtest.h>

#include <numeric>

#include "ep/buffer.hpp"
#include "ep/group.hpp"
#include "ep/handle.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr size_t kHidden = 16, kMaxTokens = 8;
constexpr int kNumExperts = 8;

ep::GroupConfig config_with(size_t budget) {
  ep::GroupConfig config;
  config.algorithm = ep::Algorithm::kHighThroughput;
  config.num_experts = kNumExperts;
  config.max_tokens_per_rank = kMaxTokens;
  config.max_recv_tokens_per_rank = uint32_t(budget);
  config.max_token_bytes = kHidden * sizeof(float);
  config.num_topk = 4;
  config.timeout_ns = 20 * kSecond;
  return config;
}
constexpr size_t kGenerous = 4 * kMaxTokens, kEager = 0;

// One rank with handles over one piece of memory.
class HtPlan : public ::testing::Test {
 protected:
  HtPlan()
      : ranks_(1),
        memory_(ranks_.comm(0), 1 << 16),
        tokens_(ranks_.comm(0), kMaxTokens * kHidden * sizeof(float)),
        rows_(ranks_.comm(0), kGenerous * kHidden * sizeof(float)),
        indices_(ranks_.comm(0), kMaxTokens * 4 * sizeof(int64_t)) {
    memory_.fill(0);
    tokens_.fill(0x3f);
    rows_.fill(0);
  }

  std::unique_ptr<ep::Group> make_group(size_t budget) {
    return std::move(*ep::Group::create(ranks_.comm(0), config_with(budget)));
  }
  std::unique_ptr<ep::Handle> make_handle(ep::Group& group, ep::Layout layout, int topk) {
    return std::move(*ep::Handle::create(group, layout, topk,
                                         {.memory = memory_.span().data(), .num_memory_bytes = memory_.span().size()}));
  }
  // All tokens to expert `id` and those behind it.
  Status update(ep::Handle& handle, size_t num_tokens, int64_t id) {
    std::vector<int64_t> ids(num_tokens * size_t(handle.topk()), -1);
    for (size_t i = 0; i < ids.size() && id >= 0; ++i) ids[i] = id + int64_t(i) % handle.topk();
    indices_.load(ids);
    SWITCHYARD_TRY(
        handle.update(indices_.tensor(DType::kInt64, {num_tokens, size_t(handle.topk())}), {}, ranks_.stream_ref(0)));
    return ranks_.stream(0).synchronize(Deadline::after_ns(10 * kSecond));
  }
  Status dispatch(ep::Handle& handle, size_t num_tokens, size_t num_rows) {
    ep::DispatchArgs args;
    args.direction = ep::PassDirection::kBackward;
    args.tokens = tokens_.tensor(DType::kFloat32, {num_tokens, kHidden});
    args.out_tokens = rows_.tensor(DType::kFloat32, {num_rows, kHidden});
    SWITCHYARD_TRY(handle.dispatch(args, ranks_.stream_ref(0)));
    return ranks_.stream(0).synchronize(Deadline::after_ns(10 * kSecond));
  }

  ThreadRanks ranks_;
  Buffer memory_, tokens_, rows_, indices_;
};

// Windows are numbered by each communicator.
TEST_F(HtPlan, WindowsOfAnotherCommunicatorAreRefused) {
  auto other = ranks_.comm(0).split(0, 0);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  const Buffer foreign(**other, kGenerous * kHidden * sizeof(float), /*window=*/true);
  const auto group = make_group(kGenerous);
  const auto handle = make_handle(*group, ep::Layout::kFlat, 2);
  ASSERT_TRUE(update(*handle, 6, 0).ok());
  ep::DispatchArgs args;
  args.direction = ep::PassDirection::kBackward;
  args.tokens = tokens_.tensor(DType::kFloat32, {6, kHidden});
  args.out_tokens = foreign.tensor(DType::kFloat32, {kGenerous, kHidden});
  const Status refused = handle->dispatch(args, ranks_.stream_ref(0));
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("another communicator"), std::string::npos) << refused.message();
  ep::CombineArgs combine;
  combine.tokens = args.out_tokens;
  combine.out_tokens = args.tokens;
  EXPECT_EQ(handle->combine(combine, ranks_.stream_ref(0)).code(), Code::kInvalidArgument);
  EXPECT_TRUE(dispatch(*handle, 6, kGenerous).ok());
}

TEST_F(HtPlan, MadeByAnotherHandleOverTheSameMemoryCounts) {
  for (const size_t budget : {kGenerous, kEager}) {
    const auto group = make_group(budget);
    const auto one = make_handle(*group, ep::Layout::kFlat, 2), other = make_handle(*group, ep::Layout::kFlat, 2);
    ASSERT_TRUE(update(*one, 6, -1).ok());
    EXPECT_TRUE(dispatch(*other, 6, budget).ok());
    ASSERT_TRUE(update(*one, 8, 0).ok());
    EXPECT_EQ(dispatch(*other, 8, 0).code(), Code::kInvalidArgument) << "8 rows come now";
    EXPECT_EQ(dispatch(*other, 8, budget == kEager ? 8 : budget).to_string(), Status().to_string());
  }
}

TEST_F(HtPlan, OfAnotherTopkLayoutOrGroupIsNone) {
  for (const size_t budget : {kGenerous, kEager}) {
    const auto group = make_group(budget), other_group = make_group(budget);
    const auto maker = make_handle(*group, ep::Layout::kFlat, 4);
    const std::unique_ptr<ep::Handle> strangers[] = {make_handle(*group, ep::Layout::kFlat, 2),
                                                     make_handle(*group, ep::Layout::kExpertMajor, 4),
                                                     make_handle(*other_group, ep::Layout::kFlat, 4)};
    for (const auto& stranger : strangers) {
      ASSERT_TRUE(update(*maker, 3, 0).ok());
      EXPECT_EQ(dispatch(*stranger, 3, kGenerous).code(), Code::kInvalidUsage);
      (void)ranks_.stream(0).take_error();
      EXPECT_EQ(dispatch(*maker, 3, kGenerous).to_string(), Status().to_string()) << "it goes on";
    }
  }
}

// As with a budget: the stream tells, and the rows of the other tokens come.
TEST_F(HtPlan, WithABadIdServesTheOthersInEagerModeToo) {
  for (const size_t budget : {kGenerous, kEager}) {
    const auto group = make_group(budget);
    const auto handle = make_handle(*group, ep::Layout::kFlat, 2);
    EXPECT_EQ(update(*handle, 4, kNumExperts - 1).code(), Code::kInvalidArgument)
        << "the last expert, and one behind it";
    rows_.fill(0);
    const Status fault = dispatch(*handle, 4, kGenerous);
    EXPECT_EQ(fault.code(), Code::kInvalidArgument) << fault.to_string();
    EXPECT_EQ(rows_.span<float>()[0], tokens_.span<float>()[0]);
    (void)ranks_.stream(0).take_error();
    EXPECT_EQ(update(*handle, 4, 0).to_string(), Status().to_string());
    EXPECT_EQ(dispatch(*handle, 4, kGenerous).to_string(), Status().to_string());
  }
}

// Each source places its rows by the padding of the receiver's zones: ranks that disagree about it are told.
TEST(HtPlanOfRanks, NeedsOneAlignment) {
  ThreadRanks ranks(2);
  ranks.on_all([&](int rank) {
    auto group = std::move(*ep::Group::create(ranks.comm(rank), config_with(kGenerous * 16)));
    auto handle =
        std::move(*ep::Handle::create(*group, ep::Layout::kExpertMajor, 2, {.expert_alignment = rank == 0 ? 1u : 16u}));
    Buffer indices(ranks.comm(rank), 4 * 2 * sizeof(int64_t));
    indices.load(std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7});
    ASSERT_TRUE(handle->update(indices.tensor(DType::kInt64, {4, 2}), {}, ranks.stream_ref(rank)).ok());
    const Status told = ranks.stream(rank).synchronize(Deadline::after_ns(10 * kSecond));
    EXPECT_EQ(told.code(), Code::kRemoteError);
    EXPECT_NE(told.message().find(text("rank ", 1 - rank, " does another operation")), std::string::npos)
        << told.message();
    EXPECT_TRUE(ranks.comm(rank).barrier().ok());
    handle.reset();
    group.reset();
  });
}

}  // namespace
}  // namespace switchyard::testing
