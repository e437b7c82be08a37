// What stands behind the host flavour's opaque NCCL types.
#pragma once
#include <memory>

#include "capi/c_result.hpp"
#include "coll/collectives.hpp"
#include "comm/communicator.hpp"

struct ncclComm {
  std::unique_ptr<switchyard::Communicator> comm;
  std::unique_ptr<switchyard::coll::Collectives> collectives;  // made with the communicator: making it is collective
  int device_ordinal = 0;
};

namespace switchyard::capi {

inline Window* window_of(ncclWindow_t handle) { return reinterpret_cast<Window*>(handle); }
inline ncclWindow_t handle_of(Window* window) { return reinterpret_cast<ncclWindow_t>(window); }

}  // namespace switchyard::capi
