// nccl_ep.h against the frozen numbers of its contract, in C99, C11 and C++; and its prototypes, spelled out once more.
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>

#include "capi/abi_c.h"

// Twice on purpose: the header must guard itself.
#include "nccl_ep.h"

namespace {

#define ABI_CHECK(condition) static_assert(condition, #condition);
#include "capi/abi_table.h"
#undef ABI_CHECK

template <auto Function, class Expected>
constexpr bool kHasType = std::is_same_v<decltype(Function), Expected>;

using R = ncclResult_t;
using Group = ncclEpGroup_t;
using Handle = ncclEpHandle_t;
using Tensor = ncclEpTensor_t;
using LayoutInfo = ncclEpLayoutInfo_t;

static_assert(kHasType<&ncclEpGetVersion, R (*)(int*)>);
static_assert(kHasType<&ncclEpTensorAlloc,
                       R (*)(Tensor**, unsigned int, ncclDataType_t, const size_t*, const ncclEpTensorAllocConfig_t*)>);
static_assert(kHasType<&ncclEpTensorDestroy, R (*)(Tensor*)>);
static_assert(kHasType<&ncclEpCreateGroup, R (*)(Group*, ncclComm_t, const ncclEpGroupConfig_t*)>);
static_assert(kHasType<&ncclEpGroupDestroy, R (*)(Group)>);
static_assert(kHasType<&ncclEpHandleMemSize, R (*)(Group, ncclEpLayout_t, const ncclEpHandleConfig_t*, size_t*, int)>);
static_assert(kHasType<&ncclEpInitHandle,
                       R (*)(Handle*, Group, ncclEpLayout_t, const ncclEpHandleConfig_t*, int, const Tensor*)>);
static_assert(kHasType<&ncclEpUpdateHandle, R (*)(Handle, const Tensor*, const LayoutInfo*, cudaStream_t)>);
static_assert(kHasType<&ncclEpCreateHandle, R (*)(Handle*, Group, ncclEpLayout_t, const Tensor*, const LayoutInfo*,
                                                  const ncclEpHandleConfig_t*, cudaStream_t)>);
static_assert(kHasType<&ncclEpHandleDestroy, R (*)(Handle)>);
static_assert(kHasType<&ncclEpDispatch, R (*)(Handle, const ncclEpDispatchInputs_t*, const ncclEpDispatchOutputs_t*,
                                              const LayoutInfo*, const ncclEpDispatchConfig_t*, cudaStream_t)>);
static_assert(kHasType<&ncclEpCombine, R (*)(Handle, const ncclEpCombineInputs_t*, const ncclEpCombineOutputs_t*,
                                             const ncclEpCombineConfig_t*, cudaStream_t)>);
static_assert(kHasType<&ncclEpComplete, R (*)(Handle, const ncclEpCompleteConfig_t*, cudaStream_t)>);
static_assert(kHasType<&ncclEpMaskQuery, R (*)(Group, int*, cudaStream_t)>);
static_assert(kHasType<&ncclEpMaskUpdate, R (*)(Group, const int*, cudaStream_t)>);
static_assert(kHasType<&ncclEpMaskClean, R (*)(Group, cudaStream_t)>);
static_assert(kHasType<&ncclEpGetAsyncError, R (*)(Group, int*)>);
static_assert(kHasType<&ncclEpErrorClear, R (*)(Group)>);

static_assert(std::is_same_v<ncclEpAllocFn_t, cudaError_t (*)(void**, size_t, void*)>);
static_assert(std::is_same_v<ncclEpFreeFn_t, cudaError_t (*)(void*, void*)>);
static_assert(std::is_same_v<decltype(ncclEpTensor_t::win_hdl), ncclWindow_t>);
static_assert(std::is_same_v<decltype(ncclEpGroupConfig_t::rdma_buffer_size), unsigned long>);

// The tags are names of their own in C.
static_assert(std::is_same_v<struct ncclEpTensor, ncclEpTensor_t>);
static_assert(std::is_same_v<struct ncclEpCompleteConfig, ncclEpCompleteConfig_t>);
static_assert(std::is_same_v<struct ncclEpGroup*, ncclEpGroup_t>);
static_assert(std::is_same_v<struct ncclEpHandle*, ncclEpHandle_t>);

TEST(AbiTest, StrictC99SeesTheFrozenNumbers) { EXPECT_EQ(abi_c99_num_failures(), 0); }

TEST(AbiTest, StrictC99InitMacrosSetTheHeaderWordsAndNothingElse) { EXPECT_EQ(abi_c99_num_init_failures(), 0); }

TEST(AbiTest, StrictC11AcceptsTheStaticAssertions) { EXPECT_EQ(abi_c11_compiled(), 1); }

template <class Struct>
void expect_fresh(const Struct& fresh, unsigned magic) {
  Struct expected;
  std::memset(&expected, 0, sizeof(expected));
  expected.size = sizeof(Struct);
  expected.magic = magic;
  EXPECT_EQ(std::memcmp(&fresh, &expected, sizeof(Struct)), 0);
}

TEST(AbiTest, CxxInitMacrosGiveTheSameValuesAsInC) {
  expect_fresh<ncclEpTensor_t>(NCCL_EP_TENSOR_INIT, 0xCAFECAFEu);
  expect_fresh<ncclEpTensorAllocConfig_t>(NCCL_EP_TENSOR_ALLOC_CONFIG_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpLayoutInfo_t>(NCCL_EP_LAYOUT_INFO_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpDispatchInputs_t>(NCCL_EP_DISPATCH_INPUTS_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpDispatchOutputs_t>(NCCL_EP_DISPATCH_OUTPUTS_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpCombineInputs_t>(NCCL_EP_COMBINE_INPUTS_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpCombineOutputs_t>(NCCL_EP_COMBINE_OUTPUTS_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpHandleConfig_t>(NCCL_EP_HANDLE_CONFIG_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpDispatchConfig_t>(NCCL_EP_DISPATCH_CONFIG_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpCombineConfig_t>(NCCL_EP_COMBINE_CONFIG_INIT, 0xC00FFFEEu);
  expect_fresh<ncclEpCompleteConfig_t>(NCCL_EP_COMPLETE_CONFIG_INIT, 0xC00FFFEEu);

  ncclEpGroupConfig_t group = NCCL_EP_GROUP_CONFIG_INIT;
  EXPECT_EQ(group.version, 2u);
  group.version = 0;
  EXPECT_EQ(group.timeout_ns, 0u);
  EXPECT_EQ(group.num_topk, 0u);
  EXPECT_EQ(group.size, 112u);
  EXPECT_EQ(group.magic, 0xC00FFFEEu);
}

TEST(AbiTest, CxxInitMacrosAreConstantExpressions) {
  static constexpr ncclEpGroupConfig_t kGroup = NCCL_EP_GROUP_CONFIG_INIT;
  static_assert(kGroup.size == 112 && kGroup.version == 2);
}

TEST(AbiTest, AFieldIsPresentFromTheSizeThatCoversItsLastByte) {
  ncclEpDispatchConfig_t config = NCCL_EP_DISPATCH_CONFIG_INIT;
  config.size = 23;
  EXPECT_FALSE(NCCL_EP_HAS_FIELD(&config, ncclEpDispatchConfig_t, quant_recipe));
  config.size = 24;
  EXPECT_TRUE(NCCL_EP_HAS_FIELD(&config, ncclEpDispatchConfig_t, quant_recipe));
}

}  // namespace
