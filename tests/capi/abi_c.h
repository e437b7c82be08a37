/* What the C halves of the ABI test offer the C++ half. nccl_ep.h comes first, so that it must stand on its own. */
#ifndef SWITCHYARD_TESTS_CAPI_ABI_C_H_
#define SWITCHYARD_TESTS_CAPI_ABI_C_H_

#include "nccl_ep.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each failure is also printed. */
int abi_c99_num_failures(void);
int abi_c99_num_init_failures(void);
int abi_c11_compiled(void);

#ifdef __cplusplus
}
#endif

#endif
