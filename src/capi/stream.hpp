// The stream behind a cudaStream_t of the host flavour.
#pragma once
#include "capi/host_cuda.hpp"
#include "platform/host/device.hpp"
#include "platform/runtime.hpp"

namespace switchyard::capi {

// Ready to be posted to: waits that the default stream's order asks for are queued first.
inline Result<StreamRef> read_stream(cudaStream_t stream) {
  SWITCHYARD_ASSIGN(Stream * found, Device::stream_for_post(host_cuda::stream_handle(stream)));
  return StreamRef{found};
}

}  // namespace switchyard::capi
