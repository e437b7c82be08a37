// Reading the C API's structs: a struct is accepted if it is there, carries its magic and is at least as large as its
// first version; what an older caller does not have gets its default, what a newer one has beyond ours is ignored.
#pragma once
#include <algorithm>
#include <cstring>

#include "capi/c_result.hpp"
#include "capi/host_nccl.hpp"
#include "ep/handle.hpp"
#include "nccl_ep.h"

// The C API's opaque types are the C++ objects themselves.
struct ncclEpGroup {
  // The communicator knows its groups, in order not to be destroyed before them.
  explicit ncclEpGroup(switchyard::capi::CommPtr of);
  ~ncclEpGroup();
  ncclEpGroup(const ncclEpGroup&) = delete;
  ncclEpGroup& operator=(const ncclEpGroup&) = delete;

  const switchyard::capi::CommPtr comm;  // outlives the group, which uses it to the end
  std::unique_ptr<switchyard::ep::Group> group;
};
struct ncclEpHandle {
  std::unique_ptr<switchyard::ep::Handle> handle;
};

namespace switchyard::capi {

// Reads a versioned struct into `out`, which holds defaults. A null pointer is fine where the struct is optional.
template <class Struct>
Status read_struct(const char* name, const Struct* in, unsigned v1_size, bool required, Struct& out) {
  if (in == nullptr) {
    return required ? Status::invalid_argument(text(name, " is NULL")) : Status();
  }
  if (in->size < v1_size || in->magic != NCCL_EP_MAGIC) {
    return Status::invalid_argument(text(name, " has size ", in->size, " and magic ", in->magic, ": needed are a size of at "
                                         "least ", v1_size, " and NCCL_EP_MAGIC; use its _INIT macro"));
  }
  std::memcpy(static_cast<void*>(&out), in, std::min<size_t>(in->size, sizeof(Struct)));
  return {};
}

// The number in a caller's enum. It may be any: loading it as the enum would be undefined.
template <class Enum>
int number_of(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

template <class Enum>
Status check_enum(const char* name, const Enum& value, int low, int high) {
  const int number = number_of(value);
  if (number >= low && number <= high) return {};
  return Status::invalid_argument(text(name, " is ", number, ", allowed ", low, "..", high));
}

// A descriptor as the library uses it; an absent one gives an absent Tensor.
Status read_tensor(const char* name, const ncclEpTensor_t* in, const Communicator& comm, ep::Tensor& out);
Status read_layout_info(const ncclEpLayoutInfo_t* in, const Communicator& comm, ep::LayoutInfo& out);

// The groups and handles of this process.
Registry<ncclEpGroup>& live_groups();
Registry<ncclEpHandle>& live_handles();
Status check_group(ncclEpGroup_t group);
Status check_handle(ncclEpHandle_t handle);

}  // namespace switchyard::capi
