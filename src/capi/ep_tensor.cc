#include "capi/ep_tensor.hpp"

#include <memory>
#include <vector>

#include "capi/c_result.hpp"

namespace switchyard::capi {
namespace {

constexpr unsigned kDynamicMagic = 0xBEEFBEEF;  // only ncclEpTensorAlloc sets it

// The descriptor comes first, so that the pointer the caller holds leads back to the whole.
struct DynamicTensor {
  ncclEpTensor_t descriptor;
  std::vector<size_t> sizes;
};

const DynamicTensor& dynamic_of(const ncclEpTensor_t& tensor) { return reinterpret_cast<const DynamicTensor&>(tensor); }

}  // namespace

bool tensor_is_valid(const ncclEpTensor_t& tensor) {
  if (tensor.size < NCCL_EP_TENSOR_V1_SIZE) return false;
  if (tensor.magic == NCCL_EP_TENSOR_MAGIC) return true;
  return tensor.magic == kDynamicMagic && tensor.sizes == dynamic_of(tensor).sizes.data();
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
    auto made = std::make_unique<DynamicTensor>();
    made->sizes.assign(sizes, sizes + ndim);
    made->descriptor = NCCL_EP_TENSOR_INIT;
    made->descriptor.magic = kDynamicMagic;
    made->descriptor.ndim = ndim;
    made->descriptor.datatype = datatype;
    made->descriptor.sizes = made->sizes.data();
    *tensor = &made.release()->descriptor;
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
    delete reinterpret_cast<DynamicTensor*>(tensor);
    return {};
  });
}

}  // extern "C"
