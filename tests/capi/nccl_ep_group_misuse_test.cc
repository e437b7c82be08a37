// Groups, handles and tensor descriptors made wrongly: every call is refused with its code, a message that names the
// argument and what is allowed, and without a trace; what exists goes on working.
#include "capi/ep_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;

// ---- Tensor descriptors ----

TEST(NcclEpTensor, AllocCopiesTheExtentsAndNothingElse) {
  size_t extents[] = {3, 5};
  ncclEpTensor_t* tensor = nullptr;
  expect_success(ncclEpTensorAlloc(&tensor, 2, ncclBfloat16, extents, nullptr));
  extents[0] = 99;
  EXPECT_EQ(tensor->size, sizeof(ncclEpTensor_t));
  EXPECT_EQ(tensor->ndim, 2u);
  EXPECT_EQ(tensor->datatype, ncclBfloat16);
  EXPECT_EQ(tensor->sizes[0], 3u);
  EXPECT_EQ(tensor->sizes[1], 5u);
  EXPECT_EQ(tensor->data, nullptr);
  EXPECT_EQ(tensor->win_hdl, nullptr);
  EXPECT_EQ(tensor->win_offset, 0u);
  tensor->sizes[0] = 7;  // extents may be edited in place
  expect_success(ncclEpTensorDestroy(tensor));
}

struct TensorAllocCall {
  size_t sizes[2] = {4, 4};
  ncclEpTensorAllocConfig_t config = NCCL_EP_TENSOR_ALLOC_CONFIG_INIT;
  ncclEpTensor_t made = NCCL_EP_TENSOR_INIT;  // never one of the library's
  ncclEpTensor_t* tensor = &made;
  ncclEpTensor_t** tensor_arg = &tensor;
  const size_t* sizes_arg = sizes;
  unsigned ndim = 2;

  ncclResult_t issue() { return ncclEpTensorAlloc(tensor_arg, ndim, ncclFloat32, sizes_arg, &config); }
  bool untouched() const { return tensor == &made; }
};

TEST(NcclEpTensor, AllocRefusesWhatCannotBeADescriptor) {
  using Call = TensorAllocCall;
  expect_refusals<Call>(
      {
          {"no tensor", [](Call& c) { c.tensor_arg = nullptr; }, ncclInvalidArgument, {"tensor"}},
          {"no sizes", [](Call& c) { c.sizes_arg = nullptr; }, ncclInvalidArgument, {"sizes"}},
          {"no dimensions", [](Call& c) { c.ndim = 0; }, ncclInvalidArgument, {"ndim", "at least 1"}},
          {"wrong magic", [](Call& c) { c.config.magic = 0; }, ncclInvalidArgument, {"config"}},
          {"short config", [](Call& c) { c.config.size = 7; }, ncclInvalidArgument, {"config"}},
      },
      [] { return Call(); });
}

TEST(NcclEpTensor, DestroyRefusesWhatAllocDidNotMake) {
  const size_t extents[] = {3, 5};
  ncclEpTensor_t on_stack = NCCL_EP_TENSOR_INIT;
  EXPECT_EQ(ncclEpTensorDestroy(&on_stack), ncclInvalidArgument);
  ncclEpTensor_t* tensor = nullptr;
  expect_success(ncclEpTensorAlloc(&tensor, 2, ncclFloat32, extents, nullptr));

  ncclEpTensor_t copy = *tensor;  // looks like the library's, but is not
  EXPECT_EQ(ncclEpTensorDestroy(&copy), ncclInvalidArgument);

  size_t others[] = {1, 1};
  size_t* const own = tensor->sizes;
  tensor->sizes = others;
  EXPECT_EQ(ncclEpTensorDestroy(tensor), ncclInvalidArgument);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("sizes"), std::string::npos);
  tensor->sizes = own;
  tensor->magic ^= 1;
  EXPECT_EQ(ncclEpTensorDestroy(tensor), ncclInvalidArgument);
  tensor->magic ^= 1;
  expect_success(ncclEpTensorDestroy(tensor));
}

// ---- Groups ----

struct CreateGroupCall {
  CreateGroupCall(ncclComm_t communicator, const oracle::Shape& shape)
      : comm(communicator), config(group_config_for(shape)) {}

  ncclComm_t comm;
  ncclEpGroupConfig_t config;
  const ncclEpGroupConfig_t* config_arg = &config;
  ncclEpGroup_t const sentinel = reinterpret_cast<ncclEpGroup_t>(this);
  ncclEpGroup_t group = sentinel;
  ncclEpGroup_t* group_arg = &group;

  ncclResult_t issue() { return ncclEpCreateGroup(group_arg, comm, config_arg); }
  bool untouched() const { return group == sentinel; }
};

cudaError_t never_called(void**, size_t, void*) { return cudaErrorUnknown; }
cudaError_t never_called(void*, void*) { return cudaErrorUnknown; }

const std::vector<Misuse<CreateGroupCall>>& group_misuses() {
  using Call = CreateGroupCall;
  static const std::vector<Misuse<Call>> table{
      {"no place for the group", [](Call& c) { c.group_arg = nullptr; }, ncclInvalidArgument, {"ep_group", "NULL"}},
      {"no comm", [](Call& c) { c.comm = nullptr; }, ncclInvalidArgument, {"comm", "NULL"}},
      {"no config", [](Call& c) { c.config_arg = nullptr; }, ncclInvalidArgument, {"config", "NULL"}},
      {"wrong magic", [](Call& c) { c.config.magic = NCCL_EP_TENSOR_MAGIC; }, ncclInvalidArgument, {"config", "magic"}},
      {"short config", [](Call& c) { c.config.size = 95; }, ncclInvalidArgument, {"config", "95", "96"}},
      {"unknown algorithm",
       [](Call& c) { set_enum(c.config.algorithm, 2); },
       ncclInvalidArgument,
       {"algorithm", "0..1"}},
      {"no experts", [](Call& c) { c.config.num_experts = 0; }, ncclInvalidArgument, {"num_experts", "1.."}},
      {"no tokens",
       [](Call& c) { c.config.max_dispatch_tokens_per_rank = 0; },
       ncclInvalidArgument,
       {"max_dispatch_tokens_per_rank", "1.."}},
      {"no token bytes",
       [](Call& c) { c.config.max_token_bytes = 0; },
       ncclInvalidArgument,
       {"max_token_bytes", "1.."}},
      {"odd row in high throughput",
       [](Call& c) {
         c.config.algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
         c.config.max_token_bytes = 520;
       },
       ncclInvalidArgument,
       {"max_token_bytes", "520", "multiple of 16"}},
      {"an allocator that never frees",
       [](Call& c) { c.config.alloc.alloc_fn = never_called; },
       ncclInvalidUsage,
       {"alloc_fn", "free_fn"}},
      {"an allocator that only frees",
       [](Call& c) { c.config.alloc.free_fn = never_called; },
       ncclInvalidUsage,
       {"alloc_fn", "free_fn"}},
      {"too many processors",
       [](Call& c) { c.config.max_num_sms = 1'000'000; },
       ncclInvalidUsage,
       {"max_num_sms", "1000000", "this device has"}},
      {"unknown zero-copy mode",
       [](Call& c) { set_enum(c.config.zero_copy, 3); },
       ncclInvalidArgument,
       {"zero_copy", "0..2"}},
      {"unknown overflow policy",
       [](Call& c) { set_enum(c.config.overflow_policy, 3); },
       ncclInvalidArgument,
       {"overflow_policy", "0..2"}},
      {"a top-k above the experts",
       [](Call& c) { c.config.num_topk = c.config.num_experts + 1; },
       ncclInvalidArgument,
       {"num_topk", "0.."}},
      {"a buffer too small",
       [](Call& c) { c.config.rdma_buffer_size = 4096; },
       ncclInvalidUsage,
       {"rdma_buffer_size", "4096", "more than"}},
  };
  return table;
}

TEST(NcclEpGroup, RefusesWhatCannotBeAGroup) {
  const Scenario scenario(1, small_shape(2, Layout::kExpertMajor));
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    expect_refusals<CreateGroupCall>(group_misuses(), [&] { return CreateGroupCall(ranks.comm(rank), scenario.c); });
    // The communicator is none the worse for it.
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
  });
}

TEST(NcclEpGroup, RanksWithDifferentConfigurationsAllLearnOfIt) {
  const oracle::Shape shape = small_shape(3, Layout::kExpertMajor);
  const CommRanks ranks(3);
  ranks.on_all([&](int rank) {
    CreateGroupCall call(ranks.comm(rank), shape);
    if (rank == 2) call.config.max_dispatch_tokens_per_rank++;
    EXPECT_EQ(call.issue(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(ranks.comm(rank))).find("rank 2"), std::string::npos);
    EXPECT_TRUE(call.untouched());
  });
}

TEST(NcclEpGroup, IsNotDestroyedUnderItsHandles) {
  const Scenario scenario(2, small_shape(2, Layout::kExpertMajor));
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get()), second = ep.open(group.get());
    EXPECT_EQ(ncclEpGroupDestroy(group.get()), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(ranks.comm(rank))).find("2 handles"), std::string::npos);
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
  });
}

// ---- Handles ----

// All functions that make or update a handle; `function` says which is called.
struct HandleCall {
  enum Function { kMemSize, kInit, kCreate, kUpdate };

  HandleCall(Function called, EpRank& rank, ncclEpGroup_t of_group, ncclEpHandle_t of_handle)
      : function(called), ep(rank), group(of_group), updated(of_handle), layout(layout_of(rank.c)), topk(rank.c.topk) {
    topk_idx.set(rank.indices, ncclInt64, {rank.num_tokens, rank.topk});
  }

  ncclResult_t issue() {
    switch (function) {
      case kMemSize: return ncclEpHandleMemSize(group, layout, config_arg, size_arg, topk);
      case kInit: return ncclEpInitHandle(handle_arg, group, layout, config_arg, topk, handle_mem.get());
      case kCreate:
        return ncclEpCreateHandle(handle_arg, group, layout, topk_idx_arg, layout_info_arg, config_arg, nullptr);
      case kUpdate: return ncclEpUpdateHandle(updated, topk_idx_arg, layout_info_arg, nullptr);
    }
    return ncclInternalError;
  }
  bool untouched() const { return handle == sentinel && num_bytes == 4711; }

  Function function;
  EpRank& ep;
  ncclEpGroup_t group;
  ncclEpHandle_t updated;
  ncclEpLayout_t layout;
  int topk;
  TensorArg topk_idx, handle_mem;
  const ncclEpTensor_t* topk_idx_arg = &topk_idx.desc;
  ncclEpLayoutInfo_t layout_info = NCCL_EP_LAYOUT_INFO_INIT;
  const ncclEpLayoutInfo_t* layout_info_arg = nullptr;
  ncclEpHandleConfig_t config = NCCL_EP_HANDLE_CONFIG_INIT;
  const ncclEpHandleConfig_t* config_arg = &config;
  ncclEpHandle_t const sentinel = reinterpret_cast<ncclEpHandle_t>(this);
  ncclEpHandle_t handle = sentinel;
  ncclEpHandle_t* handle_arg = &handle;
  size_t num_bytes = 4711;
  size_t* size_arg = &num_bytes;
};

using HandleMisuses = std::vector<Misuse<HandleCall>>;
using Call = HandleCall;

// What MemSize, Init and Create refuse alike.
const HandleMisuses kShapeMisuses{
    {"no group", [](Call& c) { c.group = nullptr; }, ncclInvalidArgument, {"ep_group", "NULL"}},
    {"no layout",
     [](Call& c) { c.layout = NCCL_EP_LAYOUT_UNSET; },
     ncclInvalidArgument,
     {"expert-major", "rank-major"}},
    {"a layout of the other algorithm",
     [](Call& c) { c.layout = NCCL_EP_LAYOUT_FLAT; },
     ncclInvalidArgument,
     {"expert-major", "rank-major"}},
    {"wrong magic", [](Call& c) { c.config.magic = 0; }, ncclInvalidArgument, {"config", "magic"}},
    {"short config", [](Call& c) { c.config.size = 15; }, ncclInvalidArgument, {"config", "15", "16"}},
};
const HandleMisuses kTopkMisuses{
    {"top-k 0", [](Call& c) { c.topk = 0; }, ncclInvalidArgument, {"num_topk is 0", "1.."}},
    {"negative top-k", [](Call& c) { c.topk = -1; }, ncclInvalidArgument, {"num_topk is -1", "1.."}},
    {"more than the experts",
     [](Call& c) { c.topk = c.ep.c.num_experts + 1; },
     ncclInvalidArgument,
     {"num_topk", "1..5"}},
};
const HandleMisuses kMemSizeMisuses{
    {"no place for the size", [](Call& c) { c.size_arg = nullptr; }, ncclInvalidArgument, {"size_out", "NULL"}},
};
const HandleMisuses kAlignmentMisuses{
    {"alignment 3",
     [](Call& c) { c.config.dispatch_output_per_expert_alignment = 3; },
     ncclInvalidArgument,
     {"dispatch_output_per_expert_alignment", "power of two"}},
    {"no place for the handle", [](Call& c) { c.handle_arg = nullptr; }, ncclInvalidArgument, {"handle", "NULL"}},
};
const HandleMisuses kMemoryMisuses{
    {"2-D memory",
     [](Call& c) {
       c.handle_mem.set(c.ep.out_tokens, ncclUint8, {1, 4096});
     },
     ncclInvalidArgument,
     {"handle_mem", "[bytes] uint8"}},
    {"memory of floats",
     [](Call& c) { c.handle_mem.set(c.ep.out_tokens, ncclFloat32, {1024}); },
     ncclInvalidArgument,
     {"handle_mem", "[bytes] uint8"}},
    {"too little memory",
     [](Call& c) { c.handle_mem.set(c.ep.out_tokens, ncclUint8, {64}); },
     ncclInvalidArgument,
     {"handle_mem", "64", "needed"}},
    {"empty memory",
     [](Call& c) { c.handle_mem.set(DeviceBuffer(0), ncclUint8, {0}); },
     ncclInvalidArgument,
     {"handle_mem", "ncclEpHandleMemSize"}},
    {"wrong magic",
     [](Call& c) {
       c.handle_mem.set(c.ep.out_tokens, ncclUint8, {4096});
       c.handle_mem.desc.magic = NCCL_EP_MAGIC;
     },
     ncclInvalidArgument,
     {"handle_mem", "NCCL_EP_TENSOR_INIT"}},
    {"memory past the end of its window",
     [](Call& c) {
       c.handle_mem.set(c.ep.results, ncclUint8, {4096});
       c.handle_mem.desc.win_offset = c.ep.results.window_bytes() - 4080;
     },
     ncclInvalidArgument,
     {"handle_mem", "does not fit its window"}},
};
const HandleMisuses kIndexMisuses{
    {"no indices", [](Call& c) { c.topk_idx_arg = nullptr; }, ncclInvalidArgument, {"topk_idx", "NULL"}},
    {"wrong magic", [](Call& c) { c.topk_idx.desc.magic = 0; }, ncclInvalidArgument, {"topk_idx"}},
    {"short tensor", [](Call& c) { c.topk_idx.desc.size = 47; }, ncclInvalidArgument, {"topk_idx"}},
    {"no extents", [](Call& c) { c.topk_idx.desc.sizes = nullptr; }, ncclInvalidArgument, {"topk_idx", "sizes"}},
    {"1-D indices", [](Call& c) { c.topk_idx.desc.ndim = 1; }, ncclInvalidArgument, {"topk_idx", "[tokens, "}},
    {"3-D indices",
     [](Call& c) {
       c.topk_idx.set(c.ep.indices, ncclInt64, {c.ep.num_tokens, c.ep.topk, 1});
     },
     ncclInvalidArgument,
     {"topk_idx", "[tokens, "}},
    {"indices of floats",
     [](Call& c) { c.topk_idx.desc.datatype = ncclFloat32; },
     ncclInvalidArgument,
     {"topk_idx", "int32 or int64"}},
    {"indices of unsigned",
     [](Call& c) { c.topk_idx.desc.datatype = ncclUint64; },
     ncclInvalidArgument,
     {"topk_idx", "int32 or int64"}},
    {"no data", [](Call& c) { c.topk_idx.desc.data = nullptr; }, ncclInvalidArgument, {"topk_idx", "neither data"}},
    {"more tokens than the group allows",
     [](Call& c) { c.topk_idx.sizes[0] = 9; },
     ncclInvalidArgument,
     {"topk_idx", "9", "max_dispatch_tokens_per_rank is 8"}},
    {"layout_info, which belongs to the dispatch",
     [](Call& c) { c.layout_info_arg = &c.layout_info; },
     ncclInvalidArgument,
     {"layout_info", "NULL"}},
};
const HandleMisuses kCreateMisuses{
    {"layout_info of wrong magic",
     [](Call& c) {
       c.layout_info_arg = &c.layout_info;
       c.layout_info.magic = 0;
     },
     ncclInvalidArgument,
     {"layout_info", "magic"}},
    {"short layout_info",
     [](Call& c) {
       c.layout_info_arg = &c.layout_info;
       c.layout_info.size = 39;
     },
     ncclInvalidArgument,
     {"layout_info", "39", "40"}},
    {"tokens without experts", [](Call& c) { c.topk_idx.sizes[1] = 0; }, ncclInvalidArgument, {"num_topk is 0"}},
    {"more experts a token than there are",
     [](Call& c) { c.topk_idx.sizes[1] = 6; },
     ncclInvalidArgument,
     {"num_topk is 6", "1..5"}},
    {"a top-k beyond all integers", [](Call& c) { c.topk_idx.sizes[1] = ~size_t(0); }, ncclInvalidArgument, {"top-k"}},
};
const HandleMisuses kUpdateMisuses{
    {"no handle", [](Call& c) { c.updated = nullptr; }, ncclInvalidArgument, {"handle", "NULL"}},
    {"another top-k than the handle's",
     [](Call& c) { c.topk_idx.sizes[1] = 2; },
     ncclInvalidArgument,
     {"topk_idx", "[tokens, 3]"}},
};

TEST(NcclEpHandle, RefusesWhatCannotBeAHandle) {
  const Scenario scenario = full_scenario(3, small_shape(2, Layout::kExpertMajor));
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank, true);
    const HandleOwner handle = ep.open(group.get());
    const auto expect = [&](HandleCall::Function function, const HandleMisuses& misuses) {
      SCOPED_TRACE("function " + std::to_string(int(function)));
      expect_refusals<HandleCall>(misuses, [&] { return HandleCall(function, ep, group.get(), handle.get()); });
    };
    for (const auto* misuses : {&kShapeMisuses, &kTopkMisuses, &kMemSizeMisuses})
      expect(HandleCall::kMemSize, *misuses);
    for (const auto* misuses : {&kShapeMisuses, &kTopkMisuses, &kAlignmentMisuses, &kMemoryMisuses}) {
      expect(HandleCall::kInit, *misuses);
    }
    for (const auto* misuses : {&kShapeMisuses, &kAlignmentMisuses, &kIndexMisuses, &kCreateMisuses}) {
      expect(HandleCall::kCreate, *misuses);
    }
    for (const auto* misuses : {&kIndexMisuses, &kUpdateMisuses}) expect(HandleCall::kUpdate, *misuses);
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
  });
}

TEST(NcclEpHandle, NeedsARoutingBeforeItIsUsed) {
  const Scenario scenario(4, small_shape(2, Layout::kExpertMajor));
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    ncclEpHandle_t handle = nullptr;
    expect_success(ncclEpInitHandle(&handle, group.get(), layout_of(ep.c), nullptr, ep.c.topk, nullptr));
    const HandleOwner owner(handle);
    ep.spoil_dispatch_outputs();
    ep.prepare_combine();
    EXPECT_EQ(DispatchCall(ep, handle, nullptr).issue(), ncclInvalidUsage);
    EXPECT_EQ(CombineCall(ep, handle, nullptr).issue(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("ncclEpUpdateHandle"), std::string::npos);
    EXPECT_TRUE(ep.outputs_untouched());
    expect_success(ncclEpUpdateHandle(handle, ep.topk_idx.get(), nullptr, nullptr));
    EXPECT_EQ(run_round_trip(ep, handle, nullptr), "");
  });
}

TEST(NcclEpHandle, RefusesATamperedDescriptorOfTheLibrary) {
  const Scenario scenario = full_scenario(5, small_shape(1, Layout::kExpertMajor));
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    ncclEpTensor_t* indices = nullptr;
    expect_success(ncclEpTensorAlloc(&indices, 2, ncclInt64, ep.topk_idx.sizes.data(), nullptr));
    indices->data = ep.indices.data();
    size_t* const own = indices->sizes;
    indices->sizes = ep.topk_idx.sizes.data();
    EXPECT_EQ(ncclEpUpdateHandle(handle.get(), indices, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("sizes pointer"), std::string::npos);
    indices->sizes = own;
    expect_success(ncclEpUpdateHandle(handle.get(), indices, nullptr, nullptr));
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
    expect_success(ncclEpTensorDestroy(indices));
  });
}

}  // namespace
}  // namespace switchyard::testing
