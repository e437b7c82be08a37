// Tensor descriptors of the C API: those callers initialise and those ncclEpTensorAlloc makes.
#pragma once
#include "nccl_ep.h"

namespace switchyard::capi {

// Carries one of the two magics, is large enough and, if the library made it, still has its own sizes array.
bool tensor_is_valid(const ncclEpTensor_t& tensor);

}  // namespace switchyard::capi
