// Dispatches done wrongly, in every recipe: refused with the right code and words, outputs and group as they were.
#include "capi/ep_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;
using Call = DispatchCall;
using Misuses = std::vector<Misuse<DispatchCall>>;

constexpr ncclResult_t kBadArgument = ncclInvalidArgument;
constexpr ncclResult_t kBadUsage = ncclInvalidUsage;

// Makes the misuses of a sound dispatch of this scenario; a verified round trip follows each table.
void expect_dispatch_refusals(const Scenario& scenario, bool windows, const std::vector<const Misuses*>& tables,
                              ncclEpZeroCopyMode_t zero_copy = NCCL_EP_ZERO_COPY_AUTO) {
  const CommRanks ranks(scenario.c.num_ranks);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = group_config_for(scenario.c);
    config.zero_copy = zero_copy;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    EpRank ep(scenario, ranks.comm(rank), rank, windows);
    const HandleOwner handle = ep.open(group.get());
    const StreamOwner stream;
    for (const Misuses* table : tables) {
      ep.spoil_dispatch_outputs();
      ep.combined.fill(kUntouched);
      expect_refusals<Call>(*table, [&] { return DispatchCall(ep, handle.get(), stream); });
      EXPECT_EQ(run_round_trip(ep, handle.get(), stream), "");
    }
  });
}

// All ranks have all their tokens, so that every tensor has elements.
Scenario full(uint64_t seed, const oracle::Shape& shape) {
  return Scenario(seed, shape, oracle::Routing::kUniform, oracle::Fill::kFull);
}

const Misuses kStructMisuses{
    {"no handle", [](Call& c) { c.handle = nullptr; }, kBadArgument, {"handle", "NULL"}},
    {"no inputs", [](Call& c) { c.inputs_arg = nullptr; }, kBadArgument, {"inputs", "NULL"}},
    {"inputs of wrong magic", [](Call& c) { c.inputs.magic = 0; }, kBadArgument, {"inputs", "magic"}},
    {"short inputs", [](Call& c) { c.inputs.size = 31; }, kBadArgument, {"inputs", "31", "32"}},
    {"no outputs", [](Call& c) { c.outputs_arg = nullptr; }, kBadArgument, {"outputs", "NULL"}},
    {"outputs of wrong magic", [](Call& c) { c.outputs.magic = 0; }, kBadArgument, {"outputs", "magic"}},
    {"short outputs", [](Call& c) { c.outputs.size = 39; }, kBadArgument, {"outputs", "39", "40"}},
    {"layout_info of wrong magic", [](Call& c) { c.layout_info.magic = 0; }, kBadArgument, {"layout_info", "magic"}},
    {"short layout_info", [](Call& c) { c.layout_info.size = 39; }, kBadArgument, {"layout_info", "39", "40"}},
    {"config of wrong magic", [](Call& c) { c.config.magic = 0; }, kBadArgument, {"config", "magic"}},
    {"short config", [](Call& c) { c.config.size = 19; }, kBadArgument, {"config", "19", "20"}},
    {"unknown recipe", [](Call& c) { set_enum(c.config.quant_recipe, 3); }, kBadArgument,
     {"quant_recipe", "0..2"}},
    {"negative recipe", [](Call& c) { set_enum(c.config.quant_recipe, -1); }, kBadArgument,
     {"quant_recipe", "0..2"}},
    {"unknown direction", [](Call& c) { set_enum(c.config.pass_direction, 2); }, kBadArgument,
     {"pass_direction", "0..1"}},
    {"backward pass", [](Call& c) { c.config.pass_direction = NCCL_EP_BWD_PASS; }, kBadUsage, {"backward"}},
    {"unknown id kind", [](Call& c) { set_enum(c.layout_info.recv_topk_idx_kind, 3); }, kBadArgument,
     {"recv_topk_idx_kind", "0..2"}},
    {"a stream that is none", [](Call& c) { c.stream = reinterpret_cast<cudaStream_t>(&c); }, kBadArgument, {"stream"}},
};

const Misuses kTokenMisuses{
    {"no tokens", [](Call& c) { c.inputs.tokens = nullptr; }, kBadArgument, {"inputs.tokens", "required"}},
    {"tokens of wrong magic", [](Call& c) { c.tokens.desc.magic = NCCL_EP_MAGIC; }, kBadArgument,
     {"inputs.tokens", "NCCL_EP_TENSOR_INIT"}},
    {"short tokens", [](Call& c) { c.tokens.desc.size = 47; }, kBadArgument, {"inputs.tokens"}},
    {"tokens without dimensions", [](Call& c) { c.tokens.desc.ndim = 0; }, kBadArgument, {"inputs.tokens", "1..4"}},
    {"tokens of many dimensions", [](Call& c) { c.tokens.desc.ndim = 5; }, kBadArgument, {"inputs.tokens", "1..4"}},
    {"tokens without extents", [](Call& c) { c.tokens.desc.sizes = nullptr; }, kBadArgument, {"inputs.tokens", "sizes"}},
    {"tokens without data", [](Call& c) { c.tokens.desc.data = nullptr; }, kBadArgument,
     {"inputs.tokens", "neither data nor win_hdl"}},
    {"tokens of unknown type", [](Call& c) { set_enum(c.tokens.desc.datatype, 13); }, kBadArgument,
     {"inputs.tokens", "datatype 13"}},
    {"1-D tokens", [](Call& c) { c.tokens.desc.ndim = 1; }, kBadArgument, {"inputs.tokens", "2 dimensions"}},
    {"3-D tokens",
     [](Call& c) {
       c.tokens.sizes[2] = 1;
       c.tokens.desc.ndim = 3;
     },
     kBadArgument, {"inputs.tokens", "2 dimensions"}},
    {"another number of tokens than indices", [](Call& c) { c.tokens.sizes[0]--; }, kBadArgument,
     {"inputs.tokens", "must be [8, "}},
    {"no token outputs", [](Call& c) { c.outputs.tokens = nullptr; }, kBadArgument, {"outputs.tokens", "required"}},
    {"other experts in the output", [](Call& c) { c.out_tokens.sizes[0]++; }, kBadArgument, {"outputs.tokens", "must be ["}},
    {"fewer rows in the output", [](Call& c) { c.out_tokens.sizes[1]--; }, kBadArgument, {"outputs.tokens", "must be ["}},
    {"narrower output", [](Call& c) { c.out_tokens.sizes[2]--; }, kBadArgument, {"outputs.tokens", "must be ["}},
    {"2-D output", [](Call& c) { c.out_tokens.desc.ndim = 2; }, kBadArgument, {"outputs.tokens", "must be ["}},
    {"output without place",
     [](Call& c) {
       c.out_tokens.desc.data = nullptr;
       c.out_tokens.desc.win_hdl = nullptr;
     },
     kBadArgument, {"outputs.tokens", "neither data nor win_hdl"}},
    {"an output whose size overflows", [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = size_t(1) << 62; },
     kBadArgument, {"too large"}},
};

const Misuses kPlainMisuses{
    {"tokens of integers", [](Call& c) { c.tokens.desc.datatype = c.out_tokens.desc.datatype = ncclInt32; },
     kBadArgument, {"inputs.tokens", "bfloat16, float16 or float32"}},
    {"tokens of FP8 without recipe",
     [](Call& c) { c.tokens.desc.datatype = c.out_tokens.desc.datatype = ncclFloat8e4m3; }, kBadArgument,
     {"inputs.tokens", "bfloat16, float16 or float32"}},
    {"output of another type", [](Call& c) { c.out_tokens.desc.datatype = ncclFloat16; }, kBadArgument,
     {"outputs.tokens", "bfloat16"}},
    {"scales without recipe", [](Call& c) { c.inputs.scales = c.spare.get(); }, kBadArgument, {"inputs.scales", "NULL"}},
    {"scale outputs without recipe", [](Call& c) { c.outputs.scales = c.spare.get(); }, kBadArgument,
     {"outputs.scales", "NULL"}},
    {"rows that are no multiple of 16 bytes", [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 252; },
     kBadArgument, {"504 bytes", "multiple of 16"}},
    {"rows without bytes", [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 0; }, kBadArgument,
     {"0 bytes", "multiple of 16"}},
    {"rows over the group's limit", [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 264; }, kBadArgument,
     {"528", "max_token_bytes of 512"}},
};

const Misuses kExpertMajorMisuses{
    {"weights in", [](Call& c) { c.inputs.topk_weights = c.spare.get(); }, kBadArgument, {"inputs.topk_weights", "NULL"}},
    {"weights out", [](Call& c) { c.outputs.topk_weights = c.spare.get(); }, kBadArgument,
     {"outputs.topk_weights", "NULL"}},
    {"indices out", [](Call& c) { c.outputs.topk_idx = c.spare.get(); }, kBadArgument, {"outputs.topk_idx", "NULL"}},
    {"no layout_info", [](Call& c) { c.layout_info_arg = nullptr; }, kBadArgument, {"expert_counters", "required"}},
    {"no counters", [](Call& c) { c.layout_info.expert_counters = nullptr; }, kBadArgument,
     {"expert_counters", "required"}},
    {"too few counters", [](Call& c) { c.counters.sizes[0]--; }, kBadArgument, {"expert_counters", "must be ["}},
    {"too many counters", [](Call& c) { c.counters.sizes[0]++; }, kBadArgument, {"expert_counters", "must be ["}},
    {"64-bit counters", [](Call& c) { c.counters.desc.datatype = ncclInt64; }, kBadArgument, {"expert_counters", "int32"}},
    {"2-D counters",
     [](Call& c) {
       c.counters.sizes[1] = 1;
       c.counters.desc.ndim = 2;
     },
     kBadArgument, {"expert_counters", "must be ["}},
    {"counters without data", [](Call& c) { c.counters.desc.data = nullptr; }, kBadArgument,
     {"expert_counters", "neither data"}},
    {"a high-throughput tensor that is none",
     [](Call& c) {
       c.spare.desc.magic = 0;
       c.layout_info.expert_offsets = c.spare.get();
     },
     kBadArgument, {"expert_offsets", "NCCL_EP_TENSOR_INIT"}},
    {"another one",
     [](Call& c) {
       c.spare.desc.magic = 0;
       c.layout_info.recv_total_counter = c.spare.get();
     },
     kBadArgument, {"recv_total_counter", "NCCL_EP_TENSOR_INIT"}},
    {"counters per source", [](Call& c) { c.layout_info.src_rank_counters = c.counters.get(); }, kBadArgument,
     {"src_rank_counters", "NULL"}},
};

const Misuses kRankMajorMisuses{
    {"no weights in", [](Call& c) { c.inputs.topk_weights = nullptr; }, kBadArgument, {"inputs.topk_weights", "required"}},
    {"wide weights in", [](Call& c) { c.topk_weights.sizes[1]++; }, kBadArgument, {"inputs.topk_weights", "must be [8, 3]"}},
    {"few weights in", [](Call& c) { c.topk_weights.sizes[0]--; }, kBadArgument, {"inputs.topk_weights", "must be [8, 3]"}},
    {"double weights in", [](Call& c) { c.topk_weights.desc.datatype = ncclFloat64; }, kBadArgument,
     {"inputs.topk_weights", "float32"}},
    {"no weights out", [](Call& c) { c.outputs.topk_weights = nullptr; }, kBadArgument,
     {"outputs.topk_weights", "required"}},
    {"narrow weights out", [](Call& c) { c.out_topk_weights.sizes[2]--; }, kBadArgument,
     {"outputs.topk_weights", "must be [2, 8, 3]"}},
    {"half weights out", [](Call& c) { c.out_topk_weights.desc.datatype = ncclFloat16; }, kBadArgument,
     {"outputs.topk_weights", "float32"}},
    {"no indices out", [](Call& c) { c.outputs.topk_idx = nullptr; }, kBadArgument, {"outputs.topk_idx", "required"}},
    {"64-bit indices out", [](Call& c) { c.out_topk_idx.desc.datatype = ncclInt64; }, kBadArgument,
     {"outputs.topk_idx", "int32"}},
    {"fewer ranks in the indices", [](Call& c) { c.out_topk_idx.sizes[0]--; }, kBadArgument,
     {"outputs.topk_idx", "must be [2, 8, 3]"}},
    {"counters per expert", [](Call& c) { c.layout_info.expert_counters = c.counters.get(); }, kBadArgument,
     {"expert_counters", "NULL"}},
    {"counters of too many ranks", [](Call& c) { c.counters.sizes[0]++; }, kBadArgument,
     {"src_rank_counters", "must be [2]"}},
    {"64-bit counters", [](Call& c) { c.counters.desc.datatype = ncclInt64; }, kBadArgument,
     {"src_rank_counters", "int32"}},
};

TEST(NcclEpDispatch, RefusesMisuseInExpertMajor) {
  expect_dispatch_refusals(full(1, small_shape(2, Layout::kExpertMajor)), false,
                           {&kStructMisuses, &kTokenMisuses, &kPlainMisuses, &kExpertMajorMisuses});
}

TEST(NcclEpDispatch, RefusesMisuseInRankMajor) {
  expect_dispatch_refusals(full(2, small_shape(2, Layout::kRankMajor)), false,
                           {&kStructMisuses, &kTokenMisuses, &kPlainMisuses, &kRankMajorMisuses});
}

TEST(NcclEpDispatch, RankMajorNeedsNoCounters) {
  const Scenario scenario = full(3, small_shape(2, Layout::kRankMajor));
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    ep.spoil_dispatch_outputs();
    DispatchCall call(ep, handle.get(), nullptr);
    call.layout_info_arg = nullptr;
    call.config_arg = nullptr;
    expect_success(call.issue());
    expect_success(cudaStreamSynchronize(nullptr));
    EXPECT_TRUE(ep.counters.holds_only(kUntouched));
    ep.counters.upload(scenario.dispatch.ranks[size_t(rank)].counters());
    EXPECT_EQ(ep.check_dispatch(), "");
  });
}

// ---- Recipes ----

oracle::Shape forwarding(Layout layout) {
  oracle::Shape shape = small_shape(2, layout);
  shape.dispatch_recipe = oracle::DispatchRecipe::kForward;
  shape.dtype = DType::kFloat8E4M3;
  shape.hidden = 512;
  shape.scale_width = 4;
  shape.combine_hidden = 256;  // rows in and out share one limit, which tokens and scales just fill
  return shape;
}

template <auto kTensor>
void move_by_4(Call& c) {
  ncclEpTensor_t& desc = (c.*kTensor).desc;
  if (desc.win_hdl != nullptr) desc.win_offset += 4;
  else desc.data = static_cast<char*>(desc.data) + 4;
}

const Misuses kForwardMisuses{
    {"rounded scales", [](Call& c) { c.config.round_scales = 1; }, kBadArgument, {"round_scales", "0"}},
    {"tokens of integers", [](Call& c) { c.tokens.desc.datatype = c.out_tokens.desc.datatype = ncclInt8; }, kBadArgument,
     {"inputs.tokens", "float8_e4m3"}},
    {"output of another type", [](Call& c) { c.out_tokens.desc.datatype = ncclFloat8e5m2; }, kBadArgument,
     {"outputs.tokens", "float8_e4m3"}},
    {"no scales", [](Call& c) { c.inputs.scales = nullptr; }, kBadArgument, {"inputs.scales", "[tokens, "}},
    {"no scale outputs", [](Call& c) { c.outputs.scales = nullptr; }, kBadArgument, {"outputs.scales", "required"}},
    {"1-D scales", [](Call& c) { c.scales.desc.ndim = 1; }, kBadArgument, {"inputs.scales", "[tokens, "}},
    {"scales of fewer rows", [](Call& c) { c.scales.sizes[0]--; }, kBadArgument, {"inputs.scales", "must be [8, 4]"}},
    {"scales without width", [](Call& c) { c.scales.sizes[1] = c.out_scales.sizes[2] = 0; }, kBadArgument,
     {"0 bytes", "multiple of 16"}},
    {"a scale row of 12 bytes", [](Call& c) { c.scales.sizes[1] = c.out_scales.sizes[2] = 3; }, kBadArgument,
     {"12 bytes", "multiple of 16"}},
    {"scales of integers", [](Call& c) { c.scales.desc.datatype = c.out_scales.desc.datatype = ncclInt32; },
     kBadArgument, {"inputs.scales", "uint8"}},
    {"scale outputs of another type", [](Call& c) { c.out_scales.desc.datatype = ncclBfloat16; }, kBadArgument,
     {"outputs.scales", "float32"}},
    {"scale outputs of another width", [](Call& c) { c.out_scales.sizes[2]++; }, kBadArgument,
     {"outputs.scales", "must be ["}},
    {"2-D scale outputs", [](Call& c) { c.out_scales.desc.ndim = 2; }, kBadArgument, {"outputs.scales", "must be ["}},
    {"tokens and scales over the group's limit", [](Call& c) { c.scales.sizes[1] = c.out_scales.sizes[2] = 8; },
     kBadArgument, {"512 token bytes and 32 scale bytes", "max_token_bytes of 528"}},
    {"misaligned tokens", move_by_4<&Call::tokens>, kBadArgument, {"inputs.tokens", "16 bytes"}},
    {"misaligned scales", move_by_4<&Call::scales>, kBadArgument, {"inputs.scales", "16 bytes"}},
    {"misaligned token outputs", move_by_4<&Call::out_tokens>, kBadArgument, {"outputs.tokens", "16 bytes"}},
    {"misaligned scale outputs", move_by_4<&Call::out_scales>, kBadArgument, {"outputs.scales", "16 bytes"}},
};

TEST(NcclEpDispatch, RefusesMisuseOfForwardedScales) {
  expect_dispatch_refusals(full(4, forwarding(Layout::kExpertMajor)), false, {&kForwardMisuses});
  expect_dispatch_refusals(full(5, forwarding(Layout::kRankMajor)), true, {&kForwardMisuses});
}

const Misuses kFusedMisuses{
    {"FP16 in", [](Call& c) { c.tokens.desc.datatype = ncclFloat16; }, kBadArgument, {"inputs.tokens", "bfloat16"}},
    {"scales in", [](Call& c) { c.inputs.scales = c.spare.get(); }, kBadArgument, {"inputs.scales", "NULL"}},
    {"BF16 out", [](Call& c) { c.out_tokens.desc.datatype = ncclBfloat16; }, kBadArgument,
     {"outputs.tokens", "float8_e4m3"}},
    {"no token outputs", [](Call& c) { c.outputs.tokens = nullptr; }, kBadArgument, {"outputs.tokens", "required"}},
    {"no scale outputs", [](Call& c) { c.outputs.scales = nullptr; }, kBadArgument, {"outputs.scales", "required"}},
    {"half scale outputs", [](Call& c) { c.out_scales.desc.datatype = ncclFloat16; }, kBadArgument,
     {"outputs.scales", "float32"}},
    {"scale outputs too wide", [](Call& c) { c.out_scales.sizes[2]++; }, kBadArgument, {"outputs.scales", "must be ["}},
    {"2-D scale outputs", [](Call& c) { c.out_scales.desc.ndim = 2; }, kBadArgument, {"outputs.scales", "must be ["}},
    {"a width without whole groups",
     [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 192; }, kBadArgument, {"hidden is 192", "multiple of 128"}},
    {"the wrong recipe for these tensors", [](Call& c) { c.config.quant_recipe = NCCL_EP_DISP_QUANT_NONE; },
     kBadArgument, {"outputs.scales", "NULL"}},
};

TEST(NcclEpDispatch, RefusesMisuseOfFusedQuantisation) {
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    oracle::Shape shape = small_shape(2, layout);
    shape.dispatch_recipe = oracle::DispatchRecipe::kDsFp8;
    expect_dispatch_refusals(full(6, shape), false, {&kFusedMisuses});
  }
}

TEST(NcclEpDispatch, FusedQuantisationCountsItsScalesAgainstTheGroupsLimit) {
  oracle::Shape shape = small_shape(1, Layout::kExpertMajor);
  shape.dispatch_recipe = oracle::DispatchRecipe::kDsFp8;
  const Scenario scenario = full(7, shape);
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = group_config_for(shape);
    config.max_token_bytes = 256;  // the tokens alone
    const GroupOwner group = make_group(ranks.comm(rank), config);
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    EXPECT_EQ(DispatchCall(ep, handle.get(), nullptr).issue(), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("max_token_bytes of 256"), std::string::npos);
  });
}

// ---- Windows ----

const Misuses kWindowMisuses{
    {"past the end of the window",
     [](Call& c) { c.out_tokens.desc.win_offset = c.ep.out_tokens.window_bytes() - c.ep.out_tokens.size() + 16; },
     kBadArgument, {"outputs.tokens", "does not fit its window"}},
    {"an offset that wraps around", [](Call& c) { c.out_tokens.desc.win_offset = ~uint64_t(15); }, kBadArgument,
     {"outputs.tokens", "does not fit its window"}},
    {"data somewhere else", [](Call& c) { c.out_tokens.desc.data = c.ep.tokens.data(); }, kBadArgument,
     {"outputs.tokens", "different places"}},
    {"a window that is none", [](Call& c) { c.out_tokens.desc.win_hdl = reinterpret_cast<ncclWindow_t>(&c); },
     kBadArgument, {"outputs.tokens", "no window of this group's communicator"}},
};

TEST(NcclEpDispatch, RefusesWindowsThatDoNotHoldTheTensor) {
  expect_dispatch_refusals(full(8, small_shape(2, Layout::kRankMajor)), true, {&kWindowMisuses});
  expect_dispatch_refusals(full(9, small_shape(2, Layout::kExpertMajor)), true, {&kWindowMisuses});
}

TEST(NcclEpDispatch, RefusesWindowsOfAnotherCommunicatorAndDeadOnes) {
  const Scenario scenario = full(10, small_shape(2, Layout::kRankMajor));
  const CommRanks ranks(2), others(2);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank, true);
    const HandleOwner handle = ep.open(group.get());
    ep.spoil_dispatch_outputs();
    auto foreign = std::make_unique<DeviceBuffer>(ep.out_tokens.size(), others.comm(rank), ep.out_tokens.size());
    auto dead = std::make_unique<DeviceBuffer>(ep.out_tokens.size(), ranks.comm(rank), ep.out_tokens.size());
    const ncclWindow_t dead_window = dead->window();
    dead.reset();
    for (const ncclWindow_t window : {foreign->window(), dead_window}) {
      DispatchCall call(ep, handle.get(), nullptr);
      call.out_tokens.desc.win_hdl = window;
      EXPECT_EQ(call.issue(), ncclInvalidArgument);
      EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("no window of this group's communicator"), std::string::npos);
      EXPECT_TRUE(ep.out_tokens.holds_only(kUntouched));
    }
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
  });
}

const Misuses kZeroCopyMisuses{
    {"a plain output",
     [](Call& c) {
       c.out_tokens.desc.data = c.ep.out_tokens.data();
       c.out_tokens.desc.win_hdl = nullptr;
     },
     kBadArgument, {"zero_copy", "outputs.tokens", "window"}},
};

TEST(NcclEpDispatch, ZeroCopyOnNeedsAWindow) {
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    expect_dispatch_refusals(full(11, small_shape(2, layout)), true, {&kZeroCopyMisuses}, NCCL_EP_ZERO_COPY_ON);
  }
}

TEST(NcclEpDispatch, TakesTensorsOfTheLibraryAndRefusesTamperedOnes) {
  const Scenario scenario = full(12, small_shape(1, Layout::kExpertMajor));
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    ep.spoil_dispatch_outputs();
    DispatchCall call(ep, handle.get(), nullptr);
    ncclEpTensor_t* tokens = nullptr;
    expect_success(ncclEpTensorAlloc(&tokens, 2, ncclBfloat16, call.tokens.sizes.data(), nullptr));
    tokens->data = ep.tokens.data();
    size_t* const own = tokens->sizes;
    call.inputs.tokens = tokens;
    tokens->sizes = call.tokens.sizes.data();
    EXPECT_EQ(call.issue(), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("inputs.tokens"), std::string::npos);
    ep.combined.fill(kUntouched);
    EXPECT_TRUE(call.untouched());
    tokens->sizes = own;
    expect_success(call.issue());
    expect_success(cudaStreamSynchronize(nullptr));
    EXPECT_EQ(ep.check_dispatch(), "");
    expect_success(ncclEpTensorDestroy(tokens));
  });
}

}  // namespace
}  // namespace switchyard::testing
