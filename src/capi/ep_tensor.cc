#include "capi/ep_tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "capi/c_result.hpp"

namespace switchyard::capi {
namespace {

constexpr unsigned kDynamicMagic = 0xBEEFBEEF;  // only ncclEpTensorAlloc sets it

// The extents follow their descriptor in one allocation. So neither a copy of a descriptor nor one whose pointer was
// changed passes for the library's own, and finding that out reads nothing but the descriptor.
size_t* own_sizes(ncclEpTensor_t* tensor) { return reinterpret_cast<size_t*>(tensor + 1); }
static_assert(sizeof(ncclEpTensor_t) % alignof(size_t) == 0);

}  // namespace

bool tensor_is_valid(const ncclEpTensor_t& tensor) {
  if (tensor.size < NCCL_EP_TENSOR_V1_SIZE) return false;
  if (tensor.magic == NCCL_EP_TENSOR_MAGIC) return true;
  return tensor.magic == kDynamicMagic && tensor.sizes == own_sizes(const_cast<ncclEpTensor_t*>(&tensor));
}

}  // namespace switchyard::capi

using namespace switchyard;        // NOLINT: the file's only purpose is to give C names to this namespace
using namespace switchyard::capi;  // NOLINT

extern "C" {

ncclResult_t ncclEpTensorAlloc(ncclEpTensor_t** tensor, unsigned int ndim, ncclDataType_t datatype, const size_t* sizes,
                               const ncclEpTensorAllocConfig_t* config) {
  return guarded("ncclEpTensorAlloc", [&]() -> Status {
    if (config != nullptr && (config->size < NCCL_EP_TENSOR_ALLOC_CONFIG_V1_SIZE || config->magic != NCCL_EP_MAGIC)) {
      return Status::invalid_argument("config is not initialised: use NCCL_EP_TENSOR_ALLOC_CONFIG_INIT");
    }
    if (tensor == nullptr || sizes == nullptr || ndim == 0) {
      return Status::invalid_argument("tensor and sizes must not be NULL and ndim must be at least 1");
    }
    auto memory = std::make_unique<std::byte[]>(sizeof(ncclEpTensor_t) + size_t(ndim) * sizeof(size_t));
    auto* made = new (memory.get()) ncclEpTensor_t(NCCL_EP_TENSOR_INIT);
    made->magic = kDynamicMagic;
    made->ndim = ndim;
    made->datatype = datatype;
    made->sizes = own_sizes(made);
    std::copy_n(sizes, ndim, made->sizes);
    memory.release();  // NOLINT: it is *tensor now
    *tensor = made;
    return {};
  });
}

ncclResult_t ncclEpTensorDestroy(ncclEpTensor_t* tensor) {
  return guarded("ncclEpTensorDestroy", [&]() -> Status {
    if (tensor == nullptr) return {};
    if (tensor->magic != kDynamicMagic || !tensor_is_valid(*tensor)) {
      return Status::invalid_argument("this tensor was not made by ncclEpTensorAlloc, or its sizes pointer was changed");
    }
    tensor->magic = 0;  // a second destroy of the same pointer is noticed while the memory is not reused
    delete[] reinterpret_cast<std::byte*>(tensor);
    return {};
  });
}

}  // extern "C"
