// Dispatches done wrongly, without a recipe: refused with the right code and words, outputs and group as they were.
#include "capi/dispatch_misuse.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;
using Call = DispatchCall;
using Misuses = DispatchMisuses;

constexpr ncclResult_t kBadArgument = ncclInvalidArgument;
constexpr ncclResult_t kBadUsage = ncclInvalidUsage;

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
    {"unknown recipe", [](Call& c) { set_enum(c.config.quant_recipe, 3); }, kBadArgument, {"quant_recipe", "0..2"}},
    {"negative recipe", [](Call& c) { set_enum(c.config.quant_recipe, -1); }, kBadArgument, {"quant_recipe", "0..2"}},
    {"unknown direction",
     [](Call& c) { set_enum(c.config.pass_direction, 2); },
     kBadArgument,
     {"pass_direction", "0..1"}},
    {"backward pass", [](Call& c) { c.config.pass_direction = NCCL_EP_BWD_PASS; }, kBadUsage, {"backward"}},
    {"unknown id kind",
     [](Call& c) { set_enum(c.layout_info.recv_topk_idx_kind, 3); },
     kBadArgument,
     {"recv_topk_idx_kind", "0..2"}},
    {"a stream that is none", [](Call& c) { c.stream = reinterpret_cast<cudaStream_t>(&c); }, kBadArgument, {"stream"}},
};

const Misuses kTokenMisuses{
    {"no tokens", [](Call& c) { c.inputs.tokens = nullptr; }, kBadArgument, {"inputs.tokens", "required"}},
    {"tokens of wrong magic",
     [](Call& c) { c.tokens.desc.magic = NCCL_EP_MAGIC; },
     kBadArgument,
     {"inputs.tokens", "NCCL_EP_TENSOR_INIT"}},
    {"short tokens", [](Call& c) { c.tokens.desc.size = 47; }, kBadArgument, {"inputs.tokens"}},
    {"tokens without dimensions", [](Call& c) { c.tokens.desc.ndim = 0; }, kBadArgument, {"inputs.tokens", "1..4"}},
    {"tokens of many dimensions", [](Call& c) { c.tokens.desc.ndim = 5; }, kBadArgument, {"inputs.tokens", "1..4"}},
    {"tokens without extents",
     [](Call& c) { c.tokens.desc.sizes = nullptr; },
     kBadArgument,
     {"inputs.tokens", "sizes"}},
    {"tokens without data",
     [](Call& c) { c.tokens.desc.data = nullptr; },
     kBadArgument,
     {"inputs.tokens", "neither data nor win_hdl"}},
    {"tokens of unknown type",
     [](Call& c) { set_enum(c.tokens.desc.datatype, 13); },
     kBadArgument,
     {"inputs.tokens", "datatype 13"}},
    {"1-D tokens", [](Call& c) { c.tokens.desc.ndim = 1; }, kBadArgument, {"inputs.tokens", "2 dimensions"}},
    {"3-D tokens",
     [](Call& c) {
       c.tokens.sizes[2] = 1;
       c.tokens.desc.ndim = 3;
     },
     kBadArgument,
     {"inputs.tokens", "2 dimensions"}},
    {"another number of tokens than indices",
     [](Call& c) { c.tokens.sizes[0]--; },
     kBadArgument,
     {"inputs.tokens", "must be [8, "}},
    {"no token outputs", [](Call& c) { c.outputs.tokens = nullptr; }, kBadArgument, {"outputs.tokens", "required"}},
    {"other experts in the output",
     [](Call& c) { c.out_tokens.sizes[0]++; },
     kBadArgument,
     {"outputs.tokens", "must be ["}},
    {"fewer rows in the output",
     [](Call& c) { c.out_tokens.sizes[1]--; },
     kBadArgument,
     {"outputs.tokens", "must be ["}},
    {"narrower output", [](Call& c) { c.out_tokens.sizes[2]--; }, kBadArgument, {"outputs.tokens", "must be ["}},
    {"2-D output", [](Call& c) { c.out_tokens.desc.ndim = 2; }, kBadArgument, {"outputs.tokens", "must be ["}},
    {"output without place",
     [](Call& c) {
       c.out_tokens.desc.data = nullptr;
       c.out_tokens.desc.win_hdl = nullptr;
     },
     kBadArgument,
     {"outputs.tokens", "neither data nor win_hdl"}},
    {"an output whose size overflows",
     [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = size_t(1) << 62; },
     kBadArgument,
     {"too large"}},
};

const Misuses kPlainMisuses{
    {"tokens of integers",
     [](Call& c) { c.tokens.desc.datatype = c.out_tokens.desc.datatype = ncclInt32; },
     kBadArgument,
     {"inputs.tokens", "bfloat16, float16 or float32"}},
    {"tokens of FP8 without recipe",
     [](Call& c) { c.tokens.desc.datatype = c.out_tokens.desc.datatype = ncclFloat8e4m3; },
     kBadArgument,
     {"inputs.tokens", "bfloat16, float16 or float32"}},
    {"output of another type",
     [](Call& c) { c.out_tokens.desc.datatype = ncclFloat16; },
     kBadArgument,
     {"outputs.tokens", "bfloat16"}},
    {"scales without recipe",
     [](Call& c) { c.inputs.scales = c.spare.get(); },
     kBadArgument,
     {"inputs.scales", "NULL"}},
    {"scale outputs without recipe",
     [](Call& c) { c.outputs.scales = c.spare.get(); },
     kBadArgument,
     {"outputs.scales", "NULL"}},
    {"rows that are no multiple of 16 bytes",
     [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 252; },
     kBadArgument,
     {"504 bytes", "multiple of 16"}},
    {"rows without bytes",
     [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 0; },
     kBadArgument,
     {"0 bytes", "multiple of 16"}},
    {"rows over the group's limit",
     [](Call& c) { c.tokens.sizes[1] = c.out_tokens.sizes[2] = 264; },
     kBadArgument,
     {"528", "max_token_bytes of 512"}},
};

const Misuses kExpertMajorMisuses{
    {"weights in",
     [](Call& c) { c.inputs.topk_weights = c.spare.get(); },
     kBadArgument,
     {"inputs.topk_weights", "NULL"}},
    {"weights out",
     [](Call& c) { c.outputs.topk_weights = c.spare.get(); },
     kBadArgument,
     {"outputs.topk_weights", "NULL"}},
    {"indices out", [](Call& c) { c.outputs.topk_idx = c.spare.get(); }, kBadArgument, {"outputs.topk_idx", "NULL"}},
    {"no layout_info", [](Call& c) { c.layout_info_arg = nullptr; }, kBadArgument, {"expert_counters", "required"}},
    {"no counters",
     [](Call& c) { c.layout_info.expert_counters = nullptr; },
     kBadArgument,
     {"expert_counters", "required"}},
    {"too few counters", [](Call& c) { c.counters.sizes[0]--; }, kBadArgument, {"expert_counters", "must be ["}},
    {"too many counters", [](Call& c) { c.counters.sizes[0]++; }, kBadArgument, {"expert_counters", "must be ["}},
    {"64-bit counters",
     [](Call& c) { c.counters.desc.datatype = ncclInt64; },
     kBadArgument,
     {"expert_counters", "int32"}},
    {"2-D counters",
     [](Call& c) {
       c.counters.sizes[1] = 1;
       c.counters.desc.ndim = 2;
     },
     kBadArgument,
     {"expert_counters", "must be ["}},
    {"counters without data",
     [](Call& c) { c.counters.desc.data = nullptr; },
     kBadArgument,
     {"expert_counters", "neither data"}},
    {"a high-throughput tensor that is none",
     [](Call& c) {
       c.spare.desc.magic = 0;
       c.layout_info.expert_offsets = c.spare.get();
     },
     kBadArgument,
     {"expert_offsets", "NCCL_EP_TENSOR_INIT"}},
    {"another one",
     [](Call& c) {
       c.spare.desc.magic = 0;
       c.layout_info.recv_total_counter = c.spare.get();
     },
     kBadArgument,
     {"recv_total_counter", "NCCL_EP_TENSOR_INIT"}},
    {"counters per source",
     [](Call& c) { c.layout_info.src_rank_counters = c.counters.get(); },
     kBadArgument,
     {"src_rank_counters", "NULL"}},
};

const Misuses kRankMajorMisuses{
    {"no weights in",
     [](Call& c) { c.inputs.topk_weights = nullptr; },
     kBadArgument,
     {"inputs.topk_weights", "required"}},
    {"wide weights in",
     [](Call& c) { c.topk_weights.sizes[1]++; },
     kBadArgument,
     {"inputs.topk_weights", "must be [8, 3]"}},
    {"few weights in",
     [](Call& c) { c.topk_weights.sizes[0]--; },
     kBadArgument,
     {"inputs.topk_weights", "must be [8, 3]"}},
    {"double weights in",
     [](Call& c) { c.topk_weights.desc.datatype = ncclFloat64; },
     kBadArgument,
     {"inputs.topk_weights", "float32"}},
    {"no weights out",
     [](Call& c) { c.outputs.topk_weights = nullptr; },
     kBadArgument,
     {"outputs.topk_weights", "required"}},
    {"narrow weights out",
     [](Call& c) { c.out_topk_weights.sizes[2]--; },
     kBadArgument,
     {"outputs.topk_weights", "must be [2, 8, 3]"}},
    {"half weights out",
     [](Call& c) { c.out_topk_weights.desc.datatype = ncclFloat16; },
     kBadArgument,
     {"outputs.topk_weights", "float32"}},
    {"no indices out", [](Call& c) { c.outputs.topk_idx = nullptr; }, kBadArgument, {"outputs.topk_idx", "required"}},
    {"64-bit indices out",
     [](Call& c) { c.out_topk_idx.desc.datatype = ncclInt64; },
     kBadArgument,
     {"outputs.topk_idx", "int32"}},
    {"fewer ranks in the indices",
     [](Call& c) { c.out_topk_idx.sizes[0]--; },
     kBadArgument,
     {"outputs.topk_idx", "must be [2, 8, 3]"}},
    {"counters per expert",
     [](Call& c) { c.layout_info.expert_counters = c.counters.get(); },
     kBadArgument,
     {"expert_counters", "NULL"}},
    {"counters of too many ranks",
     [](Call& c) { c.counters.sizes[0]++; },
     kBadArgument,
     {"src_rank_counters", "must be [2]"}},
    {"64-bit counters",
     [](Call& c) { c.counters.desc.datatype = ncclInt64; },
     kBadArgument,
     {"src_rank_counters", "int32"}},
};

TEST(NcclEpDispatch, RefusesMisuseInExpertMajor) {
  expect_dispatch_refusals(full_scenario(1, small_shape(2, Layout::kExpertMajor)), false,
                           {&kStructMisuses, &kTokenMisuses, &kPlainMisuses, &kExpertMajorMisuses});
}

TEST(NcclEpDispatch, RefusesMisuseInRankMajor) {
  expect_dispatch_refusals(full_scenario(2, small_shape(2, Layout::kRankMajor)), false,
                           {&kStructMisuses, &kTokenMisuses, &kPlainMisuses, &kRankMajorMisuses});
}

TEST(NcclEpDispatch, RankMajorNeedsNoCounters) {
  const Scenario scenario = full_scenario(3, small_shape(2, Layout::kRankMajor));
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

}  // namespace
}  // namespace switchyard::testing
