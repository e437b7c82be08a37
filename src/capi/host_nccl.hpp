// What stands behind the host flavour's opaque NCCL types.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "capi/c_result.hpp"
#include "capi/registry.hpp"
#include "coll/collectives.hpp"
#include "comm/communicator.hpp"

struct ncclComm {
  std::unique_ptr<switchyard::Communicator> comm;
  std::unique_ptr<switchyard::coll::Collectives> collectives;  // made with the communicator: making it is collective
  int device_ordinal = 0;

  std::mutex mutex;                         // guards groups
  std::vector<const void*> groups;          // alive; they share ownership, for an abort may come before their end
  std::shared_ptr<ncclComm> leaked_self{};  // keeps it for ever (host_nccl_collectives.cc)
};

namespace switchyard::capi {

using CommPtr = std::shared_ptr<ncclComm>;

// The communicators of this process.
Registry<ncclComm>& live_comms();

inline Window* window_of(ncclWindow_t handle) { return reinterpret_cast<Window*>(handle); }
inline ncclWindow_t handle_of(Window* window) { return reinterpret_cast<ncclWindow_t>(window); }

}  // namespace switchyard::capi
