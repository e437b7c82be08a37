/* One table of the values in host_values.h; which headers it is compiled against decides whose. */
#include "capi/host_values.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <nccl.h>

#define SWITCHYARD_VALUE(name) (long long)(name),
extern const long long SWITCHYARD_VALUES_TABLE[];
const long long SWITCHYARD_VALUES_TABLE[] = {SWITCHYARD_HOST_VALUES(SWITCHYARD_VALUE) /* size of the config struct: */
                                             (long long)sizeof(ncclConfig_t)};
