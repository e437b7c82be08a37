// What a right program gets from the C API: round trips in every form, compared byte for byte with the model.
#include "capi/ep_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;

struct World {
  int num_ranks;
  Layout layout;
};

// Runs body(rank, group) with a group on every rank of a new communicator.
void with_groups(const oracle::Shape& shape, const std::function<void(ncclComm_t, int, ncclEpGroup_t)>& body) {
  const CommRanks ranks(shape.num_ranks);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(shape));
    ASSERT_TRUE(group);
    body(ranks.comm(rank), rank, group.get());
  });
}

void expect_round_trips(const Scenario& scenario, bool windows = false, bool staged = false) {
  with_groups(scenario.c, [&](ncclComm_t comm, int rank, ncclEpGroup_t group) {
    EpRank ep(scenario, comm, rank, windows);
    const HandleOwner handle = ep.open(group);
    const StreamOwner stream, other;
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(run_round_trip(ep, handle.get(), stream, {.staged = staged, .complete_on = other}), "");
    }
  });
}

class NcclEp : public ::testing::TestWithParam<World> {
 protected:
  oracle::Shape shape() const { return small_shape(GetParam().num_ranks, GetParam().layout); }
};

TEST_P(NcclEp, RoundTripsPlainTensors) { expect_round_trips(Scenario(1, shape())); }

TEST_P(NcclEp, RoundTripsWindowTensorsWithoutDataPointer) { expect_round_trips(Scenario(2, shape()), true); }

TEST_P(NcclEp, RoundTripsStagedCallsCompletedOnAnotherStream) { expect_round_trips(Scenario(3, shape()), false, true); }

TEST_P(NcclEp, RoundTripsStagedCallsOnWindowTensors) { expect_round_trips(Scenario(4, shape()), true, true); }

TEST_P(NcclEp, TakesEmptyTensorsWithoutDataFromRanksWithoutTokens) {
  const Scenario scenario(5, shape(), oracle::Routing::kUniform, oracle::Fill::kSomeEmpty);
  ASSERT_EQ(scenario.c.num_tokens[0], 0);
  with_groups(scenario.c, [&](ncclComm_t comm, int rank, ncclEpGroup_t group) {
    EpRank ep(scenario, comm, rank);
    EXPECT_EQ(ep.topk_idx.desc.data == nullptr, ep.num_tokens == 0);
    const HandleOwner handle = ep.open(group);
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
  });
}

TEST_P(NcclEp, TakesInt32IndicesAndGivesGlobalIds) {
  oracle::Shape s = shape();
  s.int32_indices = true;
  s.id_kind = oracle::IdKind::kGlobal;
  s.dtype = s.combine_dtype = DType::kFloat32;
  expect_round_trips(Scenario(6, s));
}

TEST_P(NcclEp, UnderstandsCallersOfTheFirstVersionAndOfALaterOne) {
  const Scenario scenario(7, shape());
  const CommRanks ranks(shape().num_ranks);
  for (const Caller caller : {Caller::kOldest, Caller::kNewer}) {
    ranks.on_all([&](int rank) {
      ncclEpGroup_t group = nullptr;
      const Aged config(group_config_for(scenario.c), NCCL_EP_GROUP_CONFIG_V1_SIZE, caller);
      expect_success(ncclEpCreateGroup(&group, ranks.comm(rank), config.get()));
      const GroupOwner owner(group);
      EpRank ep(scenario, ranks.comm(rank), rank);
      const ncclEpHandleConfig_t handle_config = NCCL_EP_HANDLE_CONFIG_INIT;
      const Aged aged(handle_config, NCCL_EP_HANDLE_CONFIG_V1_SIZE, caller);
      ep.topk_idx.desc.size = caller == Caller::kNewer ? 200 : NCCL_EP_TENSOR_V1_SIZE;
      ncclEpHandle_t handle = nullptr;
      expect_success(
          ncclEpCreateHandle(&handle, group, layout_of(scenario.c), ep.topk_idx.get(), nullptr, aged.get(), nullptr));
      const HandleOwner handle_owner(handle);
      EXPECT_EQ(run_round_trip(ep, handle, nullptr, {.caller = caller}), "");
      const ncclEpCompleteConfig_t complete = NCCL_EP_COMPLETE_CONFIG_INIT;
      expect_success(ncclEpComplete(handle, Aged(complete, NCCL_EP_COMPLETE_CONFIG_V1_SIZE, caller).get(), nullptr));
    });
  }
}

TEST_P(NcclEp, AGroupSizedInAdvanceServesBothLayouts) {
  const oracle::Shape s = shape();
  const Scenario em(8, small_shape(s.num_ranks, Layout::kExpertMajor));
  const Scenario rm(9, small_shape(s.num_ranks, Layout::kRankMajor));
  const CommRanks ranks(s.num_ranks);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = group_config_for(s);
    config.rdma_buffer_size = 4ul << 20;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    EpRank first(em, ranks.comm(rank), rank), second(rm, ranks.comm(rank), rank);
    const HandleOwner em_handle = first.open(group.get()), rm_handle = second.open(group.get());
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(run_round_trip(first, em_handle.get(), nullptr), "");
      EXPECT_EQ(run_round_trip(second, rm_handle.get(), nullptr), "");
    }
  });
}

TEST_P(NcclEp, ForwardsTokensWithTheirScales) {
  oracle::Shape s = shape();
  s.dispatch_recipe = oracle::DispatchRecipe::kForward;
  s.dtype = DType::kFloat8E4M3;
  s.scale_width = 8;
  expect_round_trips(Scenario(10, s));
  expect_round_trips(Scenario(11, s), true);
}

TEST_P(NcclEp, QuantisesToFp8OnTheWay) {
  oracle::Shape s = shape();
  s.dispatch_recipe = oracle::DispatchRecipe::kDsFp8;
  expect_round_trips(Scenario(12, s));
  s.round_scales = true;
  expect_round_trips(Scenario(13, s), true, true);
}

TEST_P(NcclEp, CombinesOverFp4) {
  oracle::Shape s = shape();
  s.hidden = 512;
  s.combine_recipe = oracle::CombineRecipe::kNvfp4;
  expect_round_trips(Scenario(14, s));
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclEp,
                         ::testing::Values(World{1, Layout::kExpertMajor}, World{2, Layout::kExpertMajor},
                                           World{4, Layout::kExpertMajor}, World{1, Layout::kRankMajor},
                                           World{2, Layout::kRankMajor}, World{4, Layout::kRankMajor}),
                         [](const auto& world) {
                           return (world.param.layout == Layout::kExpertMajor ? "expert_major_" : "rank_major_") +
                                  std::to_string(world.param.num_ranks);
                         });

TEST(NcclEpLibrary, SaysItsVersion) {
  int version = 0;
  expect_success(ncclEpGetVersion(&version));
  EXPECT_EQ(version, 100);
  EXPECT_EQ(ncclEpGetVersion(nullptr), ncclInvalidArgument);
}

TEST(NcclEpLibrary, DestroyingNothingSucceeds) {
  expect_success(ncclEpTensorDestroy(nullptr));
  expect_success(ncclEpHandleDestroy(nullptr));
  expect_success(ncclEpGroupDestroy(nullptr));
}

TEST(NcclEpHandle, LivesInTheCallersMemoryAndIsUpdatedForTheNextBatch) {
  oracle::Shape shape = small_shape(2, Layout::kExpertMajor);
  const Scenario first(20, shape), second(21, shape, oracle::Routing::kZipf, oracle::Fill::kFull);
  with_groups(shape, [&](ncclComm_t comm, int rank, ncclEpGroup_t group) {
    size_t num_bytes = 0;
    expect_success(ncclEpHandleMemSize(group, layout_of(shape), nullptr, &num_bytes, shape.topk));
    ASSERT_GT(num_bytes, 0u);
    const DeviceBuffer memory(num_bytes);
    TensorArg handle_mem(memory, ncclUint8, {num_bytes});
    ncclEpHandle_t handle = nullptr;
    expect_success(ncclEpInitHandle(&handle, group, layout_of(shape), nullptr, shape.topk, handle_mem.get()));
    const HandleOwner owner(handle);
    for (const Scenario* scenario : {&first, &second}) {
      EpRank ep(*scenario, comm, rank);
      expect_success(ncclEpUpdateHandle(handle, ep.topk_idx.get(), nullptr, nullptr));
      EXPECT_EQ(run_round_trip(ep, handle, nullptr), "");
    }
  });
}

// Counts what a group takes and gives back.
struct CountingAllocator {
  int num_allocated = 0, num_freed = 0;
  int fail_at = -1;  // this allocation fails
  static cudaError_t allocate(void** memory, size_t num_bytes, void* context) {
    auto& self = *static_cast<CountingAllocator*>(context);
    if (self.num_allocated == self.fail_at) return cudaErrorMemoryAllocation;
    self.num_allocated++;
    return cudaMalloc(memory, num_bytes);
  }
  static cudaError_t free(void* memory, void* context) {
    static_cast<CountingAllocator*>(context)->num_freed++;
    return cudaFree(memory);
  }
  ncclEpAllocConfig_t config() { return {allocate, free, this}; }
};

TEST(NcclEpGroup, TakesItsMemoryFromTheCallersAllocatorAndGivesItBack) {
  const Scenario scenario(22, small_shape(2, Layout::kRankMajor));
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    CountingAllocator allocator;
    ncclEpGroupConfig_t config = group_config_for(scenario.c);
    config.alloc = allocator.config();
    {
      const GroupOwner group = make_group(ranks.comm(rank), config);
      EpRank ep(scenario, ranks.comm(rank), rank);
      const HandleOwner handle = ep.open(group.get());
      EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
      EXPECT_GT(allocator.num_allocated, 1);
    }
    EXPECT_EQ(allocator.num_freed, allocator.num_allocated);
  });
}

TEST(NcclEpGroup, AFailingAllocatorLeavesNothingBehind) {
  const oracle::Shape shape = small_shape(2, Layout::kExpertMajor);
  const CommRanks ranks(2);
  for (const int fail_at : {0, 1, 3}) {
    ranks.on_all([&](int rank) {
      CountingAllocator allocator;
      allocator.fail_at = fail_at;
      ncclEpGroupConfig_t config = group_config_for(shape);
      config.alloc = allocator.config();
      auto* const sentinel = reinterpret_cast<ncclEpGroup_t>(&allocator);
      ncclEpGroup_t group = sentinel;
      EXPECT_EQ(ncclEpCreateGroup(&group, ranks.comm(rank), &config), ncclUnhandledCudaError);
      EXPECT_NE(std::string(ncclGetLastError(ranks.comm(rank))).find("alloc_fn"), std::string::npos);
      EXPECT_EQ(group, sentinel);
      EXPECT_EQ(allocator.num_freed, allocator.num_allocated);
    });
  }
}

TEST(NcclEpComplete, DoesNothingWhereNothingIsPending) {
  const Scenario scenario(23, small_shape(2, Layout::kExpertMajor));
  with_groups(scenario.c, [&](ncclComm_t comm, int rank, ncclEpGroup_t group) {
    EpRank ep(scenario, comm, rank);
    const HandleOwner handle = ep.open(group);
    const StreamOwner stream;
    expect_success(ncclEpComplete(handle.get(), nullptr, stream));
    EXPECT_EQ(run_round_trip(ep, handle.get(), stream), "");
    expect_success(ncclEpComplete(handle.get(), nullptr, stream));
    expect_success(ncclEpComplete(handle.get(), nullptr, nullptr));
    EXPECT_TRUE(ep.check_combine().empty());
    EXPECT_EQ(run_round_trip(ep, handle.get(), stream), "");
  });
}

TEST(NcclEpDispatch, DescriptorsMayGoWhenTheCallReturns) {
  const Scenario scenario(24, small_shape(2, Layout::kRankMajor));
  with_groups(scenario.c, [&](ncclComm_t comm, int rank, ncclEpGroup_t group) {
    EpRank ep(scenario, comm, rank, true);
    HandleOwner handle = ep.open(group);
    std::memset(&ep.topk_idx.desc, 0xee, sizeof(ep.topk_idx.desc));
    const StreamOwner stream;
    ep.spoil_dispatch_outputs();
    auto call = std::make_unique<DispatchCall>(ep, handle.get(), stream);
    call->config.send_only = 1;
    expect_success(call->issue());
    std::memset(&call->outputs, 0xee, sizeof(call->outputs));
    call.reset();
    expect_success(ncclEpComplete(handle.get(), nullptr, stream));
    expect_success(cudaStreamSynchronize(stream));
    EXPECT_EQ(ep.check_dispatch(), "");
  });
}

}  // namespace
}  // namespace switchyard::testing
