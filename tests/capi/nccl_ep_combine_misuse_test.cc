// Combines and staged operations done wrongly: refused with the right code and words, outputs and group as they were.
#include "capi/ep_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;
using Call = CombineCall;
using Misuses = std::vector<Misuse<CombineCall>>;

constexpr ncclResult_t kBadArgument = ncclInvalidArgument;
constexpr ncclResult_t kBadUsage = ncclInvalidUsage;

// Between a sound dispatch and its sound combine, and after both, come the misuses.
void expect_combine_refusals(const Scenario& scenario, bool windows, const std::vector<const Misuses*>& tables) {
  const CommRanks ranks(scenario.c.num_ranks);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank, windows);
    const HandleOwner handle = ep.open(group.get());
    const StreamOwner stream;
    expect_success(DispatchCall(ep, handle.get(), stream).issue());
    expect_success(cudaStreamSynchronize(stream));
    ep.spoil_dispatch_outputs();
    ep.prepare_combine();
    for (const Misuses* table : tables) {
      expect_refusals<Call>(*table, [&] { return CombineCall(ep, handle.get(), stream); });
    }
    expect_success(CombineCall(ep, handle.get(), stream).issue());
    expect_success(cudaStreamSynchronize(stream));
    EXPECT_EQ(ep.check_combine(), "");
    EXPECT_EQ(run_round_trip(ep, handle.get(), stream), "");
  });
}

const Misuses kStructMisuses{
    {"no handle", [](Call& c) { c.handle = nullptr; }, kBadArgument, {"handle", "NULL"}},
    {"no inputs", [](Call& c) { c.inputs_arg = nullptr; }, kBadArgument, {"inputs", "NULL"}},
    {"inputs of wrong magic", [](Call& c) { c.inputs.magic = 0; }, kBadArgument, {"inputs", "magic"}},
    {"short inputs", [](Call& c) { c.inputs.size = 23; }, kBadArgument, {"inputs", "23", "24"}},
    {"no outputs", [](Call& c) { c.outputs_arg = nullptr; }, kBadArgument, {"outputs", "NULL"}},
    {"outputs of wrong magic", [](Call& c) { c.outputs.magic = 0; }, kBadArgument, {"outputs", "magic"}},
    {"short outputs", [](Call& c) { c.outputs.size = 23; }, kBadArgument, {"outputs", "23", "24"}},
    {"config of wrong magic", [](Call& c) { c.config.magic = 0; }, kBadArgument, {"config", "magic"}},
    {"short config", [](Call& c) { c.config.size = 15; }, kBadArgument, {"config", "15", "16"}},
    {"unknown recipe", [](Call& c) { set_enum(c.config.quant_recipe, 2); }, kBadArgument, {"quant_recipe", "0..1"}},
    {"unknown direction",
     [](Call& c) { set_enum(c.config.pass_direction, 2); },
     kBadArgument,
     {"pass_direction", "0..1"}},
    {"backward pass", [](Call& c) { c.config.pass_direction = NCCL_EP_BWD_PASS; }, kBadUsage, {"backward"}},
    {"a stream that is none", [](Call& c) { c.stream = reinterpret_cast<cudaStream_t>(&c); }, kBadArgument, {"stream"}},
};

const Misuses kTensorMisuses{
    {"no tokens", [](Call& c) { c.inputs.tokens = nullptr; }, kBadArgument, {"inputs.tokens", "required"}},
    {"tokens of wrong magic",
     [](Call& c) { c.tokens.desc.magic = 0; },
     kBadArgument,
     {"inputs.tokens", "NCCL_EP_TENSOR_INIT"}},
    {"weights of wrong magic, though ignored",
     [](Call& c) {
       c.spare.desc.magic = 0;
       c.inputs.topk_weights = c.spare.get();
     },
     kBadArgument,
     {"inputs.topk_weights", "NCCL_EP_TENSOR_INIT"}},
    {"2-D tokens", [](Call& c) { c.tokens.desc.ndim = 2; }, kBadArgument, {"inputs.tokens", "3 dimensions"}},
    {"fewer rows", [](Call& c) { c.tokens.sizes[1]--; }, kBadArgument, {"inputs.tokens", "must be ["}},
    {"another number of blocks", [](Call& c) { c.tokens.sizes[0]--; }, kBadArgument, {"inputs.tokens", "must be ["}},
    {"tokens without place",
     [](Call& c) {
       c.tokens.desc.data = nullptr;
       c.tokens.desc.win_hdl = nullptr;
     },
     kBadArgument,
     {"inputs.tokens", "neither data nor win_hdl"}},
    {"tokens of FP8, and no output",
     [](Call& c) {
       c.tokens.desc.datatype = ncclFloat8e4m3;
       c.outputs.tokens = nullptr;
     },
     kBadArgument,
     {"inputs.tokens", "bfloat16"}},
    {"tokens of integers",
     [](Call& c) { c.tokens.desc.datatype = ncclInt32; },
     kBadArgument,
     {"inputs.tokens", "bfloat16"}},
    {"no output", [](Call& c) { c.outputs.tokens = nullptr; }, kBadArgument, {"outputs.tokens", "required"}},
    {"output of another type",
     [](Call& c) { c.out_tokens.desc.datatype = ncclFloat32; },
     kBadArgument,
     {"outputs.tokens", "bfloat16"}},
    {"output of other tokens",
     [](Call& c) { c.out_tokens.sizes[0]++; },
     kBadArgument,
     {"outputs.tokens", "must be [8, "}},
    {"output of another width",
     [](Call& c) { c.out_tokens.sizes[1] -= 8; },
     kBadArgument,
     {"outputs.tokens", "must be [8, "}},
    {"3-D output",
     [](Call& c) {
       c.out_tokens.sizes[2] = 1;
       c.out_tokens.desc.ndim = 3;
     },
     kBadArgument,
     {"outputs.tokens", "must be [8, "}},
};

const Misuses kPlainMisuses{
    {"scales without recipe",
     [](Call& c) { c.inputs.scales = c.spare.get(); },
     kBadArgument,
     {"inputs.scales", "NULL"}},
    {"rows that are no multiple of 16 bytes",
     [](Call& c) { c.tokens.sizes[2] = c.out_tokens.sizes[1] = 252; },
     kBadArgument,
     {"504 bytes", "multiple of 16"}},
    {"rows over the group's limit",
     [](Call& c) { c.tokens.sizes[2] = c.out_tokens.sizes[1] = 264; },
     kBadArgument,
     {"528", "max_token_bytes of 512"}},
};

const Misuses kWeightMisuses{
    {"no weights",
     [](Call& c) { c.outputs.topk_weights = nullptr; },
     kBadArgument,
     {"outputs.topk_weights", "required"}},
    {"weights of another top-k",
     [](Call& c) { c.out_topk_weights.sizes[1]--; },
     kBadArgument,
     {"outputs.topk_weights", "must be [8, 3]"}},
    {"weights of other tokens",
     [](Call& c) { c.out_topk_weights.sizes[0]--; },
     kBadArgument,
     {"outputs.topk_weights", "must be [8, 3]"}},
    {"half weights",
     [](Call& c) { c.out_topk_weights.desc.datatype = ncclFloat16; },
     kBadArgument,
     {"outputs.topk_weights", "float32"}},
};

const Misuses kWindowMisuses{
    {"past the end of the window",
     [](Call& c) { c.tokens.desc.win_offset = c.ep.results.window_bytes() - c.ep.results.size() + 16; },
     kBadArgument,
     {"inputs.tokens", "does not fit its window"}},
    {"a window that is none",
     [](Call& c) { c.tokens.desc.win_hdl = reinterpret_cast<ncclWindow_t>(&c); },
     kBadArgument,
     {"inputs.tokens", "no window of this group's communicator"}},
};

TEST(NcclEpCombine, RefusesMisuseInExpertMajor) {
  expect_combine_refusals(full_scenario(1, small_shape(2, Layout::kExpertMajor)), false,
                          {&kStructMisuses, &kTensorMisuses, &kPlainMisuses, &kWeightMisuses});
}

TEST(NcclEpCombine, RefusesMisuseInRankMajor) {
  expect_combine_refusals(full_scenario(2, small_shape(2, Layout::kRankMajor)), true,
                          {&kStructMisuses, &kTensorMisuses, &kPlainMisuses, &kWindowMisuses});
}

const Misuses kFp4Misuses{
    {"no scales", [](Call& c) { c.inputs.scales = nullptr; }, kBadArgument, {"inputs.scales", "required"}},
    {"scales of halves",
     [](Call& c) { c.scales.desc.datatype = ncclFloat16; },
     kBadArgument,
     {"inputs.scales", "float32"}},
    {"2-D scales", [](Call& c) { c.scales.desc.ndim = 2; }, kBadArgument, {"inputs.scales", "must be ["}},
    {"two scales a row", [](Call& c) { c.scales.sizes[2] = 2; }, kBadArgument, {"inputs.scales", "1]"}},
    {"FP16 rows",
     [](Call& c) { c.tokens.desc.datatype = c.out_tokens.desc.datatype = ncclFloat16; },
     kBadArgument,
     {"inputs.tokens", "bfloat16"}},
    {"FP16 output",
     [](Call& c) { c.out_tokens.desc.datatype = ncclFloat16; },
     kBadArgument,
     {"outputs.tokens", "bfloat16"}},
    {"a width without whole blocks",
     [](Call& c) { c.tokens.sizes[2] = c.out_tokens.sizes[1] = 248; },
     kBadArgument,
     {"hidden is 248", "multiple of"}},
    {"the wrong recipe for these tensors",
     [](Call& c) { c.config.quant_recipe = NCCL_EP_COMB_QUANT_NONE; },
     kBadArgument,
     {"inputs.scales", "NULL"}},
};

TEST(NcclEpCombine, RefusesMisuseOfFp4) {
  for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
    oracle::Shape shape = small_shape(2, layout);
    shape.combine_recipe = oracle::CombineRecipe::kNvfp4;
    expect_combine_refusals(full_scenario(3, shape), false, {&kFp4Misuses});
  }
}

// ---- Staging ----

TEST(NcclEpComplete, RefusesWhatIsNoHandleOrConfig) {
  const Scenario scenario = full_scenario(4, small_shape(1, Layout::kExpertMajor));
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    ncclEpCompleteConfig_t config = NCCL_EP_COMPLETE_CONFIG_INIT;
    EXPECT_EQ(ncclEpComplete(nullptr, &config, nullptr), ncclInvalidArgument);
    config.magic = 0;
    EXPECT_EQ(ncclEpComplete(handle.get(), &config, nullptr), ncclInvalidArgument);
    config = NCCL_EP_COMPLETE_CONFIG_INIT;
    config.size = 7;
    EXPECT_EQ(ncclEpComplete(handle.get(), &config, nullptr), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("config"), std::string::npos);
  });
}

TEST(NcclEpCombine, AnswersADispatchThatIsComplete) {
  const Scenario scenario = full_scenario(7, small_shape(2, Layout::kExpertMajor));
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(scenario.c));
    EpRank ep(scenario, ranks.comm(rank), rank);
    const HandleOwner handle = ep.open(group.get());
    ep.spoil_dispatch_outputs();
    ep.prepare_combine();
    EXPECT_EQ(CombineCall(ep, handle.get(), nullptr).issue(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("dispatch"), std::string::npos);
    EXPECT_TRUE(ep.outputs_untouched());

    DispatchCall dispatch(ep, handle.get(), nullptr);
    dispatch.config.send_only = 1;
    expect_success(dispatch.issue());
    EXPECT_EQ(CombineCall(ep, handle.get(), nullptr).issue(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(ep.comm)).find("ncclEpComplete"), std::string::npos);
    EXPECT_TRUE(ep.combined.holds_only(kUntouched));
    expect_success(ncclEpComplete(handle.get(), nullptr, nullptr));
    expect_success(CombineCall(ep, handle.get(), nullptr).issue());
    expect_success(cudaStreamSynchronize(nullptr));
    EXPECT_EQ(ep.check_dispatch(), "");
    EXPECT_EQ(ep.check_combine(), "");
  });
}

// Two micro-batches in flight; whatever else is started meanwhile is refused, and both arrive all the same.
TEST(NcclEpComplete, TwoStagedOperationsMayBeOpenAndAThirdIsRefused) {
  const oracle::Shape shape = small_shape(2, Layout::kRankMajor);
  const Scenario first_batch = full_scenario(5, shape), second_batch = full_scenario(6, shape);
  const CommRanks ranks(2);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), group_config_for(shape));
    EpRank first(first_batch, ranks.comm(rank), rank), second(second_batch, ranks.comm(rank), rank);
    EpRank third(first_batch, ranks.comm(rank), rank);
    const HandleOwner handles[] = {first.open(group.get()), second.open(group.get()), third.open(group.get())};
    const StreamOwner stream, other;
    const auto staged = [&](const EpRank& ep, const HandleOwner& handle) {
      DispatchCall call(ep, handle.get(), stream);
      call.config.send_only = 1;
      return call.issue();
    };
    for (const EpRank* ep : {&first, &second, &third}) {
      ep->spoil_dispatch_outputs();
      ep->prepare_combine();
    }
    expect_success(staged(first, handles[0]));
    expect_success(staged(second, handles[1]));
    EXPECT_EQ(staged(third, handles[2]), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(first.comm)).find("ncclEpComplete"), std::string::npos);
    EXPECT_TRUE(third.outputs_untouched());

    // The handle's own combine, and another routing, have to wait as well.
    EXPECT_EQ(CombineCall(first, handles[0].get(), stream).issue(), ncclInvalidUsage);
    EXPECT_EQ(ncclEpUpdateHandle(handles[0].get(), first.topk_idx.get(), nullptr, nullptr), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(first.comm)).find("ncclEpComplete"), std::string::npos);

    expect_success(ncclEpComplete(handles[0].get(), nullptr, other));
    expect_success(ncclEpComplete(handles[1].get(), nullptr, stream));
    expect_success(cudaStreamSynchronize(other));
    expect_success(cudaStreamSynchronize(stream));
    EXPECT_EQ(first.check_dispatch(), "");
    EXPECT_EQ(second.check_dispatch(), "");
    EXPECT_EQ(run_round_trip(third, handles[2].get(), stream), "");
  });
}

}  // namespace
}  // namespace switchyard::testing
