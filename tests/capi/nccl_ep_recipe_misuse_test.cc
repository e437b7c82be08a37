// Dispatches with wrong recipes, scales and windows: refused with the right code and words, outputs and group as they
// were.
#include "capi/dispatch_misuse.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;
using Call = DispatchCall;
using Misuses = DispatchMisuses;

constexpr ncclResult_t kBadArgument = ncclInvalidArgument;

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
    {"tokens of integers",
     [](Call& c) { c.tokens.desc.datatype = c.out_tokens.desc.datatype = ncclInt8; },
     kBadArgument,
     {"inputs.tokens", "float8_e4m3"}},
    {"output of another type",
     [](Call& c) { c.out_tokens.desc.datatype = ncclFloat8e5m2; },
     kBadArgument,
     {"outputs.tokens", "float8_e4m3"}},
    {"no scales", [](Call& c) { c.inputs.scales = nullptr; }, kBadArgument, {"inputs.scales", "[tokens, "}},
    {"no scale outputs", [](Call& c) { c.outputs.scales = nullptr; }, kBadArgument, {"outputs.scales", "required"}},
    {"1-D scales", [](Call& c) { c.scales.desc.ndim = 1; }, kBadArgument, {"inputs.scales", "[tokens, "}},
    {"scales of fewer rows", [](Call& c) { c.scales.sizes[0]--; }, kBadArgument, {"inputs.scales", "must be [8, 4]"}},
    {"scales without width",
     [](Call& c) { c.scales.sizes[1] = c.out_scales.sizes[2] = 0; },
     kBadArgument,
     {"0 bytes", "multiple of 16"}},
    {"a scale row of 12 bytes",
     [](Call& c) { c.scales.sizes[1] = c.out_scales.sizes[2] = 3; },
     kBadArgument,
     {"12 bytes", "multiple of 16"}},
    {"scales of integers",
     [](Call& c) { c.scales.desc.datatype = c.out_scales.desc.datatype = ncclInt32; },
     kBadArgument,
     {"inputs.scales", "uint8"}},
    {"scale outputs of another type",
     [](Call& c) { c.out_scales.desc.datatype = ncclBfloat16; },
     kBadArgument,
     {"outputs.scales", "float32"}},
    {"scale outputs of another width",
     [](Call& c) { c.out_scales.sizes[2]++; },
     kBadArgument,
     {"outputs.scales", "must be ["}},
    {"2-D scale outputs", [](Call& c) { c.out_scales.desc.ndim = 2; }, kBadArgument, {"outputs.scales", "must be ["}},
    {"tokens and scales over the group's limit",
     [](Call& c) { c.scales.sizes[1] = c.out_scales.sizes[2] = 8; },
     kBadArgument,
     {"512 token bytes and 32 scale bytes", "max_token_bytes of 528"}},
    {"misaligned tokens", move_by_4<&Call::tokens>, kBadArgument, {"inputs.tokens", "16 bytes"}},
    {"misaligned scales", move_by_4<&Call::scales>, kBadArgument, {"inputs.scales", "16 bytes"}},
    {"misaligned token outputs", move_by_4<&Call::out_tokens>, kBadArgument, {"outputs.tokens", "16 bytes"}},
    {"misaligned scale outputs", move_by_4<&Call::out_scales>, kBadArgument, {"outputs.scales", "16 bytes"}},
};

TEST(NcclEpDispatch, RefusesMisuseOfForwardedScales) {
  expect_dispatch_refusals(full_scenario(4, forwarding(Layout::kExpertMajor)), false, {&kForwardMisuses});
  expect_dispatch_refusals(full_scenario(5, forwarding(Layout::kRankMajor)), true, {&kForwardMisuses});
}

const Misuses kFusedMisuses{
    {"FP16 in", [](Call& c) { c.tokens.desc.datatype = ncclFloat16; }, kBadArgument, {"inputs.tokens", "bfloat16"}},
    {"scales in", [](Call& c) { c.inputs.scales = c.spare.get(); }, kBadArgument, {"inputs.scales", "NULL"}},
    {"BF16 out",
     [](Call& c) { c.out_tokens.desc.datatype = ncclBfloat16; },
     kBadArgument,
     {"outputs.tokens", "float8_e4m3"}},
    {"no token outputs", [](Call& c) { c.outputs.tokens = nullptr; }, kBadArgument, {"outputs.tokens", "required"}},
    {"no scale outputs", [](Call& c) { c.outputs.scales = nullptr; }, kBadArgument, {"outputs.scales", "required"}},
    {"half scale outputs",
     [](Call& c) { c.out_scales.desc.datatype = ncclFloat16; },
     kBadArgument,
     {"outputs.scales", "float32"}},
    {"scale outputs too wide", [](Call& c) { c.out_scales.sizes[2]++; }, kBadArgument, {"outputs.scales", "must be ["}},
    {"2-D scale outputs", [](Call& c) { c.out_scales.desc.ndim = 2; }, kBadArgument, {"outputs.scales", "must be ["}},
    {"a width without whole groups",
     [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 192; },
     kBadArgument,
     {"hidden is 192", "multiple of 128"}},
    {"the wrong recipe for these tensors",
     [](Call& c) { c.config.quant_recipe = NCCL_EP_DISP_QUANT_NONE; },
     kBadArgument,
     {"outputs.scales", "NULL"}},
};

TEST(NcclEpDispatch, RefusesMisuseOfFusedQuantisation) {
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    oracle::Shape shape = small_shape(2, layout);
    shape.dispatch_recipe = oracle::DispatchRecipe::kDsFp8;
    expect_dispatch_refusals(full_scenario(6, shape), false, {&kFusedMisuses});
  }
}

TEST(NcclEpDispatch, FusedQuantisationCountsItsScalesAgainstTheGroupsLimit) {
  oracle::Shape shape = small_shape(1, Layout::kExpertMajor);
  shape.dispatch_recipe = oracle::DispatchRecipe::kDsFp8;
  const Scenario scenario = full_scenario(7, shape);
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
     kBadArgument,
     {"outputs.tokens", "does not fit its window"}},
    {"an offset that wraps around",
     [](Call& c) { c.out_tokens.desc.win_offset = ~uint64_t(15); },
     kBadArgument,
     {"outputs.tokens", "does not fit its window"}},
    {"data somewhere else",
     [](Call& c) { c.out_tokens.desc.data = c.ep.tokens.data(); },
     kBadArgument,
     {"outputs.tokens", "different places"}},
    {"a window that is none",
     [](Call& c) { c.out_tokens.desc.win_hdl = reinterpret_cast<ncclWindow_t>(&c); },
     kBadArgument,
     {"outputs.tokens", "no window of this group's communicator"}},
};

TEST(NcclEpDispatch, RefusesWindowsThatDoNotHoldTheTensor) {
  expect_dispatch_refusals(full_scenario(8, small_shape(2, Layout::kRankMajor)), true, {&kWindowMisuses});
  expect_dispatch_refusals(full_scenario(9, small_shape(2, Layout::kExpertMajor)), true, {&kWindowMisuses});
}

TEST(NcclEpDispatch, RefusesWindowsOfAnotherCommunicatorAndDeadOnes) {
  const Scenario scenario = full_scenario(10, small_shape(2, Layout::kRankMajor));
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
      EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("no window of this group's communicator"),
                std::string::npos);
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
     kBadArgument,
     {"zero_copy", "outputs.tokens", "window"}},
};

TEST(NcclEpDispatch, ZeroCopyOnNeedsAWindow) {
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    expect_dispatch_refusals(full_scenario(11, small_shape(2, layout)), true, {&kZeroCopyMisuses},
                             NCCL_EP_ZERO_COPY_ON);
  }
}

TEST(NcclEpDispatch, TakesTensorsOfTheLibraryAndRefusesTamperedOnes) {
  const Scenario scenario = full_scenario(12, small_shape(1, Layout::kExpertMajor));
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
