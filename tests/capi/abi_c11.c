/* The ABI as a strict C11 program sees it: it compiles or it doesn't. */
#include "capi/abi_c.h"

#define ABI_CHECK(condition) _Static_assert(condition, #condition);
#include "capi/abi_table.h"
#undef ABI_CHECK

/* The header's own assertion macros, as a caller may use them. */
NCCL_EP_STATIC_ASSERT(NCCL_EP_API_VERSION == 2, "usable from C11");
NCCL_EP_STATIC_ASSERT_STRUCT_ABI(ncclEpGroupConfig_t, NCCL_EP_GROUP_CONFIG);
NCCL_EP_STATIC_ASSERT_STRUCT_ABI_BOUNDARY(ncclEpGroupConfig_t, NCCL_EP_GROUP_CONFIG, 1);

/* So that the test program can prove that this file was part of it. */
int abi_c11_compiled(void) { return 1; }
