// Masks, aborts and what is not offered, through the C API.
#include <chrono>
#include <latch>

#include "capi/ep_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;

// One of the five mask functions, each with sound arguments until spoilt.
struct MaskCall {
  enum Function { kQuery, kUpdate, kClean, kGetError, kClear };

  MaskCall(Function called, ncclEpGroup_t of_group, const DeviceBuffer& status)
      : function(called), group(of_group), status_buffer(status), status_arg(reinterpret_cast<int*>(status.data())) {}

  ncclResult_t issue() {
    switch (function) {
      case kQuery: return ncclEpMaskQuery(group, status_arg, nullptr);
      case kUpdate: return ncclEpMaskUpdate(group, mask_arg, nullptr);
      case kClean: return ncclEpMaskClean(group, nullptr);
      case kGetError: return ncclEpGetAsyncError(group, error_arg);
      case kClear: return ncclEpErrorClear(group);
    }
    return ncclInternalError;
  }
  bool untouched() const {
    return cudaStreamSynchronize(nullptr) == cudaSuccess && status_buffer.holds_only(kUntouched) && error == 4711;
  }

  Function function;
  ncclEpGroup_t group;
  const DeviceBuffer& status_buffer;
  int* status_arg;
  int mask[2] = {1, 1};
  const int* mask_arg = mask;
  int error = 4711;
  int* error_arg = &error;
};

using Misuses = std::vector<Misuse<MaskCall>>;

constexpr MaskCall::Function kAllFunctions[] = {MaskCall::kQuery, MaskCall::kUpdate, MaskCall::kClean,
                                                MaskCall::kGetError, MaskCall::kClear};
const Misuses kWithoutMasks{
    {"masks are off", [](MaskCall&) {}, ncclInvalidUsage, {"enable_mask"}},
};
const Misuses kWithoutGroup{
    {"no group", [](MaskCall& c) { c.group = nullptr; }, ncclInvalidArgument, {"ep_group", "NULL"}},
};
const Misuses kQueryMisuses{
    {"no place", [](MaskCall& c) { c.status_arg = nullptr; }, ncclInvalidArgument, {"mask_status", "NULL"}},
};
const Misuses kUpdateMisuses{
    {"no mask", [](MaskCall& c) { c.mask_arg = nullptr; }, ncclInvalidArgument, {"mask", "NULL"}},
    {"a value that is none", [](MaskCall& c) { c.mask[1] = 2; }, ncclInvalidArgument, {"mask[1] is 2", "0", "1"}},
    {"a negative value", [](MaskCall& c) { c.mask[0] = -1; }, ncclInvalidArgument, {"mask[0] is -1", "0", "1"}},
    {"everybody, itself included", [](MaskCall& c) { c.mask[0] = c.mask[1] = 0; }, ncclInvalidArgument, {"itself"}},
};
const Misuses kGetErrorMisuses{
    {"no place", [](MaskCall& c) { c.error_arg = nullptr; }, ncclInvalidArgument, {"error_out", "NULL"}},
};

TEST(NcclEpMask, IsRefusedInGroupsWithoutItAndWithWrongArguments) {
  const Scenario scenario(1, small_shape(2, Layout::kExpertMajor));
  const CommRanks ranks(2);
  for (const bool masks : {false, true}) {
    ranks.on_all([&](int rank) {
      ncclEpGroupConfig_t config = group_config_for(scenario.c);
      config.enable_mask = masks;
      const GroupOwner group = make_group(ranks.comm(rank), config);
      const DeviceBuffer status(2 * sizeof(int));
      status.fill(kUntouched);
      const auto expect = [&](MaskCall::Function function, const Misuses& misuses) {
        expect_refusals<MaskCall>(misuses, [&] { return MaskCall(function, group.get(), status); });
      };
      for (const MaskCall::Function function : kAllFunctions) {
        expect(function, kWithoutGroup);
        if (!masks) expect(function, kWithoutMasks);
      }
      expect(MaskCall::kQuery, kQueryMisuses);
      expect(MaskCall::kGetError, kGetErrorMisuses);
      if (masks) expect(MaskCall::kUpdate, kUpdateMisuses);
      EpRank ep(scenario, ranks.comm(rank), rank);
      const HandleOwner handle = ep.open(group.get());
      EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
    });
  }
}

std::vector<int> query_mask(ncclEpGroup_t group, int num_ranks) {
  const DeviceBuffer status(size_t(num_ranks) * sizeof(int));
  expect_success(ncclEpMaskQuery(group, reinterpret_cast<int*>(status.data()), nullptr));
  expect_success(cudaStreamSynchronize(nullptr));
  return status.download<int>();
}

TEST(NcclEpMask, LeavesARankOutAndTakesItBack) {
  const oracle::Shape shape = small_shape(3, Layout::kExpertMajor);
  const Scenario everybody(2, shape);
  oracle::Case without_two = everybody.c;
  without_two.mask = {{1, 1, 0}, {1, 1, 0}, {1, 1, 1}};
  const Scenario masked(2, without_two);
  const CommRanks ranks(3);
  std::latch survivors_are_through(2);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = group_config_for(shape);
    config.enable_mask = 1;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    EpRank ep(everybody, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
    EXPECT_EQ(query_mask(group.get(), 3), (std::vector<int>{1, 1, 1}));
    if (rank != 2) {
      const int mask[] = {1, 1, 0};
      expect_success(ncclEpMaskUpdate(group.get(), mask, nullptr));
      EXPECT_EQ(query_mask(group.get(), 3), (std::vector<int>{1, 1, 0}));
      EpRank alone(masked, ranks.comm(rank), rank);
      const HandleOwner handle_alone = alone.open(group.get());
      EXPECT_EQ(run_round_trip(alone, handle_alone.get(), nullptr), "");
      int error = -1;
      expect_success(ncclEpGetAsyncError(group.get(), &error));
      EXPECT_EQ(error, 0) << "nobody timed out";
      expect_success(ncclEpErrorClear(group.get()));
      expect_success(ncclEpMaskClean(group.get(), nullptr));
      EXPECT_EQ(query_mask(group.get(), 3), (std::vector<int>{1, 1, 1}));
      survivors_are_through.count_down();
    }
    survivors_are_through.wait();
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
  });
}

TEST(NcclEpMask, ZeroCopyOnlyAndMasksExcludeEachOther) {
  const Scenario scenario(3, small_shape(1, Layout::kRankMajor));
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = group_config_for(scenario.c);
    config.enable_mask = 1;
    config.zero_copy = NCCL_EP_ZERO_COPY_ON;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    EpRank ep(scenario, ranks.comm(rank), rank, true);
    const HandleOwner handle = ep.open(group.get());
    ep.spoil_dispatch_outputs();
    EXPECT_EQ(DispatchCall(ep, handle.get(), nullptr).issue(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("enable_mask"), std::string::npos);
    EXPECT_TRUE(ep.out_tokens.holds_only(kUntouched));
  });
}

// ---- Abort ----

TEST(NcclEpAbort, EndsADispatchThatWaitsForAMissingRank) {
  using Clock = std::chrono::steady_clock;
  const Scenario scenario = full_scenario(4, small_shape(2, Layout::kExpertMajor));
  CommRanks ranks(2);
  std::latch posted(1), ended(1);
  ranks.on_all([&](int rank) {
    GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    HandleOwner handle = ep.open(group.get());
    if (rank == 0) {
      const StreamOwner stream;
      expect_success(DispatchCall(ep, handle.get(), stream).issue());
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
      const Clock::time_point start = Clock::now();
      std::thread([&] { ranks.abort(rank); }).join();
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
      EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
      EXPECT_NE(DispatchCall(ep, handle.get(), stream).issue(), ncclSuccess) << "the group can't go on";
      ended.count_down();
    }
    ended.wait();  // rank 1 never dispatches
    const Clock::time_point start = Clock::now();
    handle.reset();
    group.reset();
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(2)) << "nobody is waited for after an abort";
  });
}

}  // namespace
}  // namespace switchyard::testing
