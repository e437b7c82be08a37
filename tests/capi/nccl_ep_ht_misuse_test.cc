// High throughput used wrongly through the C API: every call is refused with its code, a message that names the argument and what is
// allowed, and without a trace; what exists goes on working.
#include "capi/ht_rank.hpp"

namespace switchyard::testing {
namespace {

using T = HtTiny;

struct GroupCall {
  explicit GroupCall(ncclComm_t its_comm) : comm(its_comm) {}
  ncclResult_t issue() { return ncclEpCreateGroup(&group, comm, &config); }
  bool untouched() const { return group == nullptr; }
  ncclComm_t comm;
  ncclEpGroupConfig_t config = T::config();
  ncclEpGroup_t group = nullptr;
};

TEST(NcclEpHtMisuse, Groups) {
  using Call = GroupCall;
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    expect_refusals<Call>(
        {{"a budget below the tokens", [](Call& c) { c.config.max_recv_tokens_per_rank = T::kTokens - 1; }, ncclInvalidArgument,
          {"max_recv_tokens_per_rank", "3", "4"}},
         {"dropping without a budget",
          [](Call& c) {
            c.config.max_recv_tokens_per_rank = 0;
            c.config.overflow_policy = NCCL_EP_OVERFLOW_DROP;
          },
          ncclInvalidUsage, {"DROP", "max_recv_tokens_per_rank"}},
         {"a top-k above the experts", [](Call& c) { c.config.num_topk = T::kExperts + 1; }, ncclInvalidArgument, {"num_topk"}},
         {"an odd row", [](Call& c) { c.config.max_token_bytes = 40; }, ncclInvalidArgument, {"max_token_bytes", "multiple of 16"}},
         {"windows only, and masks",
          [](Call& c) {
            c.config.zero_copy = NCCL_EP_ZERO_COPY_ON;
            c.config.enable_mask = true;
          },
          ncclInvalidUsage, {"zero_copy", "enable_mask"}},
         {"buffers beyond all measure",
          [](Call& c) {
            c.config.max_recv_tokens_per_rank = 0;
            c.config.num_experts = 64;
            c.config.num_topk = 64;
            c.config.max_dispatch_tokens_per_rank = 1 << 20;
            c.config.max_token_bytes = 1 << 24;
          },
          ncclInvalidArgument, {"max_token_bytes"}}},
        [&] { return Call(ranks.comm(rank)); });
  });
}

struct HandleCall {
  explicit HandleCall(ncclEpGroup_t its_group) : group(its_group) {}
  ncclResult_t issue() { return ncclEpInitHandle(&handle, group, layout, &config, topk, memory.get()); }
  bool untouched() const { return handle == nullptr; }
  ncclEpGroup_t group;
  ncclEpLayout_t layout = NCCL_EP_LAYOUT_FLAT;
  ncclEpHandleConfig_t config = NCCL_EP_HANDLE_CONFIG_INIT;
  int topk = T::kTopk;
  TensorArg memory;  // none: the group's
  ncclEpHandle_t handle = nullptr;
};

TEST(NcclEpHtMisuse, MemoryOfHandles) {
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), T::config());
    size_t num_bytes = 0;
    expect_success(ncclEpHandleMemSize(group.get(), NCCL_EP_LAYOUT_FLAT, nullptr, &num_bytes, T::kTopk));
    EXPECT_EQ(ncclEpHandleMemSize(group.get(), NCCL_EP_LAYOUT_FLAT, nullptr, nullptr, T::kTopk), ncclInvalidArgument);
    EXPECT_EQ(ncclEpHandleMemSize(group.get(), NCCL_EP_LAYOUT_UNSET, nullptr, &num_bytes, T::kTopk), ncclInvalidArgument);
    EXPECT_EQ(ncclEpHandleMemSize(group.get(), NCCL_EP_LAYOUT_FLAT, nullptr, &num_bytes, 0), ncclInvalidUsage);
    const DeviceBuffer buffer(num_bytes + 16);
    const auto with = [&](auto spoil) {
      HandleCall call(group.get());
      call.memory.set(buffer, ncclUint8, {num_bytes});
      spoil(call.memory);
      const ncclResult_t result = call.issue();
      EXPECT_EQ(call.handle == nullptr, result != ncclSuccess);
      if (call.handle != nullptr) expect_success(ncclEpHandleDestroy(call.handle));
      return result;
    };
    EXPECT_EQ(with([](TensorArg&) {}), ncclSuccess);
    EXPECT_EQ(with([](TensorArg& memory) { memory.sizes[0]--; }), ncclInvalidArgument) << "too small";
    EXPECT_EQ(with([](TensorArg& memory) { memory.desc.datatype = ncclInt8; }), ncclInvalidArgument) << "no bytes";
    EXPECT_EQ(with([](TensorArg& memory) { memory.desc.ndim = 2; }), ncclInvalidArgument) << "two dimensions";
    EXPECT_EQ(with([](TensorArg& memory) { memory.desc.data = nullptr; }), ncclInvalidArgument) << "nowhere";
    EXPECT_EQ(with([](TensorArg& memory) { memory.desc.data = static_cast<char*>(memory.desc.data) + 1; }), ncclInvalidArgument)
        << "misaligned";
  });
}

TEST(NcclEpHtMisuse, Handles) {
  using Call = HandleCall;
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), T::config());
    expect_refusals<Call>(
        {{"rank-major", [](Call& c) { c.layout = NCCL_EP_LAYOUT_RANK_MAJOR; }, ncclInvalidArgument, {"flat", "expert-major"}},
         {"no layout", [](Call& c) { c.layout = NCCL_EP_LAYOUT_UNSET; }, ncclInvalidArgument, {"flat"}},
         {"no top-k", [](Call& c) { c.topk = 0; }, ncclInvalidUsage, {"num_topk", "1..4"}},
         {"the header's advice for HT", [](Call& c) { c.topk = -1; }, ncclInvalidUsage, {"num_topk", "-1"}},
         {"a top-k above the group's", [](Call& c) { c.topk = 3; }, ncclInvalidUsage, {"num_topk", "3", "2"}},
         {"an alignment that is no power of two",
          [](Call& c) { c.config.dispatch_output_per_expert_alignment = 12; }, ncclInvalidArgument, {"12", "power of two"}},
         {"an alignment beyond all measure",
          [](Call& c) { c.config.dispatch_output_per_expert_alignment = 2 << 20; }, ncclInvalidArgument, {"2097152", "1048576"}}},
        [&] { return Call(group.get()); });
    ncclEpGroupConfig_t eager = T::config(true);
    eager.num_topk = 0;
    const GroupOwner eager_group = make_group(ranks.comm(rank), eager);
    expect_refusals<Call>({{"expert-major and eager without num_topk", [](Call& c) { c.layout = NCCL_EP_LAYOUT_EXPERT_MAJOR; },
                            ncclInvalidUsage, {"num_topk"}}},
                          [&] { return Call(eager_group.get()); });
    const GroupOwner eager_group_with_topk = make_group(ranks.comm(rank), T::config(true));
    expect_refusals<Call>({{"an alignment that is large for what has no budget",
                            [](Call& c) {
                              c.layout = NCCL_EP_LAYOUT_EXPERT_MAJOR;
                              c.config.dispatch_output_per_expert_alignment = 8192;
                            },
                            ncclInvalidUsage, {"8192", "4096", "max_recv_tokens_per_rank"}}},
                          [&] { return Call(eager_group_with_topk.get()); });
    int mask = 1;
    EXPECT_EQ(ncclEpMaskUpdate(group.get(), &mask, nullptr), ncclInvalidUsage) << "made without masks";
  });
}

const std::vector<Misuse<HtUpdateCall>> kUpdates = {
    {"no indices", [](HtUpdateCall& c) { c.topk_idx = nullptr; }, ncclInvalidArgument, {"topk_idx"}},
    {"another top-k", [](HtUpdateCall& c) { c.ep.topk_idx.sizes[1] = 1; }, ncclInvalidArgument, {"topk_idx", "2"}},
    {"too many tokens", [](HtUpdateCall& c) { c.ep.topk_idx.sizes[0] = T::kTokens + 1; }, ncclInvalidArgument, {"topk_idx", "5", "4"}},
    {"indices that are no integers", [](HtUpdateCall& c) { c.ep.topk_idx.desc.datatype = ncclFloat32; }, ncclInvalidArgument, {"topk_idx"}},
    {"too few counters", [](HtUpdateCall& c) { c.counters.sizes[0] = 1; }, ncclInvalidArgument, {"expert_counters", "2"}},
    {"counters that are no integers", [](HtUpdateCall& c) { c.counters.desc.datatype = ncclFloat32; }, ncclInvalidArgument,
     {"expert_counters", "int32"}},
    {"no total in the total", [](HtUpdateCall& c) { c.total.sizes[0] = 0; }, ncclInvalidArgument, {"recv_total_counter"}},
    {"counters of sources",
     [](HtUpdateCall& c) {
       c.spare.set(c.ep.counts, ncclInt32, {T::kLocal});
       c.info.src_rank_counters = c.spare.get();
     },
     ncclInvalidArgument, {"src_rank_counters"}},
    {"wrong magic", [](HtUpdateCall& c) { c.info.magic = 1; }, ncclInvalidArgument, {"layout_info"}},
};
const std::vector<Misuse<HtUpdateCall>> kFlatUpdates = {
    {"64-bit counters", [](HtUpdateCall& c) { c.counters.desc.datatype = ncclInt64; }, ncclInvalidArgument, {"expert_counters", "int32"}},
    {"offsets",
     [](HtUpdateCall& c) {
       c.spare.set(c.ep.offsets, ncclInt32, {T::kLocal});
       c.info.expert_offsets = c.spare.get();
     },
     ncclInvalidArgument, {"expert_offsets"}},
};
const std::vector<Misuse<HtUpdateCall>> kExpertMajorUpdates = {
    {"numbers of two kinds", [](HtUpdateCall& c) { c.total.desc.datatype = ncclInt64; }, ncclInvalidArgument, {"datatype"}},
};

const std::vector<Misuse<HtDispatchCall>> kDispatches = {
    {"no tokens", [](HtDispatchCall& c) { c.inputs.tokens = nullptr; }, ncclInvalidArgument, {"inputs.tokens"}},
    {"tokens of one dimension", [](HtDispatchCall& c) { c.tokens.desc.ndim = 1; }, ncclInvalidArgument, {"inputs.tokens", "2"}},
    {"another number of tokens", [](HtDispatchCall& c) { c.tokens.sizes[0] = 3; }, ncclInvalidArgument, {"inputs.tokens", "3", "4"}},
    {"a row that is too long", [](HtDispatchCall& c) { c.tokens.sizes[1] = c.out_tokens.sizes[1] = 3 * T::kHidden; }, ncclInvalidArgument,
     {"max_token_bytes"}},
    {"a row that is no multiple of 16 bytes", [](HtDispatchCall& c) { c.tokens.sizes[1] = c.out_tokens.sizes[1] = 5; }, ncclInvalidArgument,
     {"multiple of 16"}},
    {"integers for tokens", [](HtDispatchCall& c) { c.tokens.desc.datatype = ncclInt32; }, ncclInvalidArgument, {"inputs.tokens"}},
    {"no weights", [](HtDispatchCall& c) { c.inputs.topk_weights = nullptr; }, ncclInvalidArgument, {"inputs.topk_weights"}},
    {"no output", [](HtDispatchCall& c) { c.outputs.tokens = nullptr; }, ncclInvalidArgument, {"outputs.tokens"}},
    {"fewer rows than the budget", [](HtDispatchCall& c) { c.out_tokens.sizes[0] = T::kBudget - 1; }, ncclInvalidArgument,
     {"outputs.tokens", "16"}},
    {"another width", [](HtDispatchCall& c) { c.out_tokens.sizes[1] = 4; }, ncclInvalidArgument, {"outputs.tokens"}},
    {"another type", [](HtDispatchCall& c) { c.out_tokens.desc.datatype = ncclBfloat16; }, ncclInvalidArgument, {"outputs.tokens"}},
    {"no output for weights", [](HtDispatchCall& c) { c.outputs.topk_weights = nullptr; }, ncclInvalidArgument, {"outputs.topk_weights"}},
    {"fewer weights than the budget", [](HtDispatchCall& c) { c.out_weights.sizes[0] = T::kBudget - 1; }, ncclInvalidArgument,
     {"outputs.topk_weights"}},
    {"scales without a recipe",
     [](HtDispatchCall& c) {
       c.scales.set(c.ep.weights, ncclFloat32, {T::kTokens, T::kTopk});
       c.inputs.scales = c.scales.get();
     },
     ncclInvalidArgument, {"inputs.scales"}},
    {"quantisation, which is low latency's", [](HtDispatchCall& c) { c.config.quant_recipe = NCCL_EP_DISP_QUANT_DS_FP8E3M4; },
     ncclInvalidArgument, {"QUANT_FWD"}},
    {"weights backward", [](HtDispatchCall& c) { c.config.pass_direction = NCCL_EP_BWD_PASS; }, ncclInvalidArgument,
     {"inputs.topk_weights", "backward"}},
    {"an output for weights backward",
     [](HtDispatchCall& c) {
       c.config.pass_direction = NCCL_EP_BWD_PASS;
       c.inputs.topk_weights = nullptr;
       c.outputs.topk_idx = nullptr;
     },
     ncclInvalidArgument, {"outputs.topk_weights", "backward"}},
    {"forwarded scales without any", [](HtDispatchCall& c) { c.config.quant_recipe = NCCL_EP_DISP_QUANT_FWD; }, ncclInvalidArgument,
     {"inputs.scales"}},
    {"no stream of ours", [](HtDispatchCall& c) { c.stream = reinterpret_cast<cudaStream_t>(&c); }, ncclInvalidArgument, {"stream"}},
};
const std::vector<Misuse<HtDispatchCall>> kFlatDispatches = {
    {"no ids", [](HtDispatchCall& c) { c.outputs.topk_idx = nullptr; }, ncclInvalidArgument, {"outputs.topk_idx"}},
    {"an output for ids backward",
     [](HtDispatchCall& c) {
       c.config.pass_direction = NCCL_EP_BWD_PASS;
       c.inputs.topk_weights = nullptr;
       c.outputs.topk_weights = nullptr;
     },
     ncclInvalidArgument, {"outputs.topk_idx", "backward"}},
    {"32-bit ids", [](HtDispatchCall& c) { c.out_idx.desc.datatype = ncclInt32; }, ncclInvalidArgument, {"outputs.topk_idx", "int64"}},
    {"more ids than weights", [](HtDispatchCall& c) { c.out_idx.sizes[0] = T::kBudget + 1; },
     ncclInvalidArgument, {"outputs.topk_idx", "outputs.topk_weights"}},
};
const std::vector<Misuse<HtDispatchCall>> kExpertMajorDispatches = {
    {"ids",
     [](HtDispatchCall& c) {
       c.out_idx.set(c.ep.out_idx, ncclInt64, {c.ep.num_rows, T::kTopk});
       c.outputs.topk_idx = c.out_idx.get();
     },
     ncclInvalidArgument, {"outputs.topk_idx", "expert-major"}},
};

const std::vector<Misuse<HtCombineCall>> kCombines = {
    {"no tokens", [](HtCombineCall& c) { c.inputs.tokens = nullptr; }, ncclInvalidArgument, {"inputs.tokens"}},
    {"integers", [](HtCombineCall& c) { c.tokens.desc.datatype = ncclInt32; }, ncclInvalidArgument, {"inputs.tokens"}},
    {"no output", [](HtCombineCall& c) { c.outputs.tokens = nullptr; }, ncclInvalidArgument, {"outputs.tokens"}},
    {"another number of tokens", [](HtCombineCall& c) { c.out_tokens.sizes[0] = 3; }, ncclInvalidArgument, {"outputs.tokens", "3", "4"}},
    {"another type", [](HtCombineCall& c) { c.out_tokens.desc.datatype = ncclBfloat16; }, ncclInvalidArgument, {"outputs.tokens"}},
    {"another width", [](HtCombineCall& c) { c.out_tokens.sizes[1] = 4; }, ncclInvalidArgument, {"outputs.tokens"}},
    {"fewer rows than the budget", [](HtCombineCall& c) { c.tokens.sizes[0] = T::kBudget - 1; }, ncclInvalidArgument, {"inputs.tokens", "16"}},
    {"rows of one dimension", [](HtCombineCall& c) { c.tokens.desc.ndim = 1; }, ncclInvalidArgument, {"inputs.tokens", "2 dimensions"}},
    {"scales",
     [](HtCombineCall& c) {
       c.scales.set(c.ep.gradients, ncclFloat32, {T::kTokens, T::kTopk});
       c.inputs.scales = c.scales.get();
     },
     ncclInvalidArgument, {"inputs.scales"}},
    {"weights forward",
     [](HtCombineCall& c) {
       c.spare.set(c.ep.gradients, ncclFloat32, {c.ep.num_rows});
       c.inputs.topk_weights = c.spare.get();
     },
     ncclInvalidArgument, {"inputs.topk_weights", "forward"}},
    {"backward without gradients", [](HtCombineCall& c) { c.config.pass_direction = NCCL_EP_BWD_PASS; }, ncclInvalidArgument,
     {"inputs.topk_weights"}},
    {"backward without a place for the gradients",
     [](HtCombineCall& c) {
       c.config.pass_direction = NCCL_EP_BWD_PASS;
       if (c.ep.flat()) c.weights.set(c.ep.gradients, ncclFloat32, {c.ep.num_rows, T::kTopk});
       else c.weights.set(c.ep.gradients, ncclFloat32, {c.ep.num_rows});
       c.inputs.topk_weights = c.weights.get();
     },
     ncclInvalidArgument, {"outputs.topk_weights"}},
    {"quantisation, which is low latency's", [](HtCombineCall& c) { c.config.quant_recipe = NCCL_EP_COMB_QUANT_NVFP4; }, ncclInvalidUsage,
     {"recipe"}},
};

// A dispatch that forwards four scales a row, until it is spoiled.
template <auto kSpoil>
void forwarded(HtDispatchCall& c) {
  constexpr size_t kScales = 4;
  c.scales.set(c.ep.gradients, ncclFloat32, {T::kTokens, kScales});
  c.out_scales.set(c.ep.out_idx, ncclFloat32, {c.ep.num_rows, kScales});
  c.inputs.scales = c.scales.get();
  c.outputs.scales = c.out_scales.get();
  c.config.quant_recipe = NCCL_EP_DISP_QUANT_FWD;
  kSpoil(c);
}
void move_by_4(TensorArg& tensor) { tensor.desc.data = static_cast<char*>(tensor.desc.data) + 4; }

using Forwarded = HtDispatchCall;
const std::vector<Misuse<Forwarded>> kForwardedDispatches = {
    {"scales of one dimension", forwarded<[](Forwarded& c) { c.scales.desc.ndim = 1; }>, ncclInvalidArgument, {"inputs.scales", "["}},
    {"scales of other tokens", forwarded<[](Forwarded& c) { c.scales.sizes[0] = 3; }>, ncclInvalidArgument, {"inputs.scales", "3", "4"}},
    {"integers for scales", forwarded<[](Forwarded& c) { c.scales.desc.datatype = ncclInt32; }>, ncclInvalidArgument, {"inputs.scales", "int32"}},
    {"integers for tokens", forwarded<[](Forwarded& c) { c.tokens.desc.datatype = ncclInt64; }>, ncclInvalidArgument, {"inputs.tokens", "int64"}},
    {"scale rows that are no multiple of 16 bytes", forwarded<[](Forwarded& c) { c.scales.sizes[1] = c.out_scales.sizes[1] = 3; }>,
     ncclInvalidArgument, {"12 bytes", "multiple of 16"}},
    {"no scales in a row", forwarded<[](Forwarded& c) { c.scales.sizes[1] = c.out_scales.sizes[1] = 0; }>, ncclInvalidArgument,
     {"0 bytes", "multiple of 16"}},
    {"tokens and scales over the limit", forwarded<[](Forwarded& c) { c.scales.sizes[1] = c.out_scales.sizes[1] = 12; }>,
     ncclInvalidArgument, {"32 token bytes and 48 scale bytes", "max_token_bytes of 64"}},
    {"rounded scales", forwarded<[](Forwarded& c) { c.config.round_scales = 1; }>, ncclInvalidArgument, {"round_scales"}},
    {"no output for scales", forwarded<[](Forwarded& c) { c.outputs.scales = nullptr; }>, ncclInvalidArgument, {"outputs.scales", "required"}},
    {"fewer rows of scales than of tokens", forwarded<[](Forwarded& c) { c.out_scales.sizes[0]--; }>, ncclInvalidArgument,
     {"outputs.scales", "15", "16"}},
    {"scale outputs of another width", forwarded<[](Forwarded& c) { c.out_scales.sizes[1] = 8; }>, ncclInvalidArgument, {"outputs.scales"}},
    {"scale outputs of another type", forwarded<[](Forwarded& c) { c.out_scales.desc.datatype = ncclBfloat16; }>, ncclInvalidArgument,
     {"outputs.scales", "float32"}},
    {"misaligned tokens", forwarded<[](Forwarded& c) { move_by_4(c.tokens); }>, ncclInvalidArgument, {"inputs.tokens", "16 bytes"}},
    {"misaligned scales", forwarded<[](Forwarded& c) { move_by_4(c.scales); }>, ncclInvalidArgument, {"inputs.scales", "16 bytes"}},
    {"misaligned token outputs", forwarded<[](Forwarded& c) { move_by_4(c.out_tokens); }>, ncclInvalidArgument, {"outputs.tokens", "16 bytes"}},
    {"misaligned scale outputs", forwarded<[](Forwarded& c) { move_by_4(c.out_scales); }>, ncclInvalidArgument, {"outputs.scales", "16 bytes"}},
};

class NcclEpHtCalls : public ::testing::TestWithParam<ncclEpLayout_t> {};

TEST_P(NcclEpHtCalls, AreRefusedWithoutATraceAndTheHandleWorksOn) {
  const bool flat = GetParam() == NCCL_EP_LAYOUT_FLAT;
  const CommRanks ranks(T::kRanks);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), T::config());
    HtRankC ep(ranks.comm(rank), rank, GetParam());
    const HandleOwner handle = make_ht_handle(group.get(), GetParam());
    const StreamOwner stream;
    const auto dispatch = [&] { return HtDispatchCall(ep, handle.get(), stream); };
    const auto combine = [&] { return HtCombineCall(ep, handle.get(), stream); };
    const auto update = [&] {
      ep.topk_idx.set(ep.indices, ncclInt64, {T::kTokens, T::kTopk});
      return HtUpdateCall(ep, handle.get(), stream);
    };
    expect_refusals<HtDispatchCall>({{"before any update", [](HtDispatchCall&) {}, ncclInvalidUsage, {"ncclEpUpdateHandle"}}}, dispatch);
    expect_refusals<HtCombineCall>({{"before any update", [](HtCombineCall&) {}, ncclInvalidUsage, {"ncclEpUpdateHandle"}}}, combine);
    expect_refusals<HtUpdateCall>(kUpdates, update);
    expect_refusals<HtUpdateCall>(flat ? kFlatUpdates : kExpertMajorUpdates, update);
    expect_success(update().issue());
    expect_refusals<HtDispatchCall>(kDispatches, dispatch);
    expect_refusals<HtDispatchCall>(flat ? kFlatDispatches : kExpertMajorDispatches, dispatch);
    expect_refusals<HtDispatchCall>(kForwardedDispatches, dispatch);
    expect_refusals<HtCombineCall>(kCombines, combine);
    expect_success(dispatch().issue());
    expect_success(combine().issue());
    expect_success(cudaStreamSynchronize(stream));
    EXPECT_FALSE(ep.combined.holds_only(kUntouched));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, NcclEpHtCalls, ::testing::Values(NCCL_EP_LAYOUT_FLAT, NCCL_EP_LAYOUT_EXPERT_MAJOR));

TEST(NcclEpHtMisuse, ZeroCopyOnWantsWindows) {
  const CommRanks ranks(T::kRanks);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = T::config();
    config.zero_copy = NCCL_EP_ZERO_COPY_ON;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    HtRankC plain(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT);
    HtRankC windows(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT, T::kBudget, true);
    const HandleOwner handle = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT);
    const StreamOwner stream;
    expect_success(HtUpdateCall(plain, handle.get(), stream).issue());
    EXPECT_EQ(HtDispatchCall(plain, handle.get(), stream).issue(), ncclInvalidArgument);
    EXPECT_EQ(HtCombineCall(plain, handle.get(), stream).issue(), ncclInvalidArgument);
    expect_refusals<HtDispatchCall>({{"tokens in a window and scales in none", forwarded<[](HtDispatchCall&) {}>, ncclInvalidArgument,
                                      {"outputs.tokens", "outputs.scales", "both", "neither"}}},
                                    [&] { return HtDispatchCall(windows, handle.get(), stream); });
    expect_success(HtDispatchCall(windows, handle.get(), stream).issue());
    expect_success(HtCombineCall(windows, handle.get(), stream).issue());
    expect_success(cudaStreamSynchronize(stream));
  });
}

// Eager: what the output needs is known only after the update, and is looked at before anything is written.
TEST(NcclEpHtMisuse, EagerOutputsMustHoldWhatComes) {
  const CommRanks ranks(T::kRanks);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), T::config(true));
    HtRankC ep(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT);
    const HandleOwner handle = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT);
    const StreamOwner stream;
    expect_success(HtUpdateCall(ep, handle.get(), stream).issue());
    HtDispatchCall dispatch(ep, handle.get(), stream);
    dispatch.out_tokens.sizes[0] = T::flat_arrivals(size_t(rank)).size() - 1;
    EXPECT_EQ(dispatch.issue(), ncclInvalidArgument);
    EXPECT_TRUE(ep.untouched());
    dispatch.out_tokens.sizes[0] = T::flat_arrivals(size_t(rank)).size();
    expect_success(dispatch.issue());
    expect_success(cudaStreamSynchronize(stream));
  });
}

}  // namespace
}  // namespace switchyard::testing
