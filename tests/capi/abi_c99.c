/* The ABI as a strict C99 program sees it. C99 has no static assertions: failures are counted at run time. */
#include "capi/abi_c.h"

#include <stdio.h>
#include <string.h>

static int check(int holds, const char* condition) {
  if (!holds) fprintf(stderr, "C99 ABI check failed: %s\n", condition);
  return !holds;
}

int abi_c99_num_failures(void) {
  int num_failures = 0;
#define ABI_CHECK(condition) num_failures += check((condition), #condition);
#include "capi/abi_table.h"
#undef ABI_CHECK
  return num_failures;
}

/* Are all bytes after the two header words zero? */
static int rest_is_zero(const void* object, size_t size_bytes, size_t header_bytes) {
  static const unsigned char kZeros[256];
  return memcmp((const unsigned char*)object + header_bytes, kZeros, size_bytes - header_bytes) == 0;
}

#define CHECK_INIT(type, BASE)                                                                       \
  do {                                                                                               \
    const type fresh = BASE##_INIT;                                                                  \
    num_failures += check(fresh.size == sizeof(type), #type " size");                                \
    num_failures += check(fresh.magic == 0xC00FFFEEu, #type " magic");                               \
    num_failures += check(rest_is_zero(&fresh, sizeof(fresh), 8), #type " is zero past its header"); \
  } while (0)

int abi_c99_num_init_failures(void) {
  int num_failures = 0;
  ncclEpGroupConfig_t group = NCCL_EP_GROUP_CONFIG_INIT;
  const ncclEpTensor_t tensor = NCCL_EP_TENSOR_INIT;
  const ncclEpTensor_t inline_tensor = {NCCL_EP_TENSOR_INIT_INLINE, .ndim = 3};
  const ncclEpGroupConfig_t* null_group = NULL;

  CHECK_INIT(ncclEpTensorAllocConfig_t, NCCL_EP_TENSOR_ALLOC_CONFIG);
  CHECK_INIT(ncclEpLayoutInfo_t, NCCL_EP_LAYOUT_INFO);
  CHECK_INIT(ncclEpDispatchInputs_t, NCCL_EP_DISPATCH_INPUTS);
  CHECK_INIT(ncclEpDispatchOutputs_t, NCCL_EP_DISPATCH_OUTPUTS);
  CHECK_INIT(ncclEpCombineInputs_t, NCCL_EP_COMBINE_INPUTS);
  CHECK_INIT(ncclEpCombineOutputs_t, NCCL_EP_COMBINE_OUTPUTS);
  CHECK_INIT(ncclEpHandleConfig_t, NCCL_EP_HANDLE_CONFIG);
  CHECK_INIT(ncclEpDispatchConfig_t, NCCL_EP_DISPATCH_CONFIG);
  CHECK_INIT(ncclEpCombineConfig_t, NCCL_EP_COMBINE_CONFIG);
  CHECK_INIT(ncclEpCompleteConfig_t, NCCL_EP_COMPLETE_CONFIG);

  num_failures += check(group.size == 112 && group.magic == 0xC00FFFEEu && group.version == 2, "group header words");
  num_failures += check(group.num_experts == 0 && group.timeout_ns == 0 && group.num_topk == 0, "group defaults");
  num_failures += check(tensor.size == 48 && tensor.magic == 0xCAFECAFEu, "tensor header words");
  num_failures += check(rest_is_zero(&tensor, sizeof(tensor), 8), "tensor is zero past its header");
  num_failures += check(inline_tensor.size == 48 && inline_tensor.magic == 0xCAFECAFEu, "inline tensor header words");
  num_failures += check(inline_tensor.ndim == 3 && inline_tensor.sizes == NULL, "inline tensor fields");

  num_failures += check(NCCL_EP_HAS_FIELD(&group, ncclEpGroupConfig_t, num_topk), "a current caller has num_topk");
  group.size = 96;
  num_failures += check(!NCCL_EP_HAS_FIELD(&group, ncclEpGroupConfig_t, zero_copy), "a V1 caller lacks zero_copy");
  num_failures += check(NCCL_EP_HAS_FIELD(&group, ncclEpGroupConfig_t, timeout_ns), "a V1 caller has timeout_ns");
  num_failures += check(!NCCL_EP_HAS_FIELD(null_group, ncclEpGroupConfig_t, size), "NULL has no field");
  return num_failures;
}
