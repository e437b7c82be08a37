#include "ep/ll_kernel.hpp"
#include "ep/ll_launch.hpp"
#include "platform/host/stream.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::ep {

Status launch_host(const LlOp& op, StreamRef stream, LlObserver& observer) {
  return static_cast<Stream*>(stream.handle)->post([op, &observer](Stream& self) {
    const HostPlatform platform;
    run_operation(platform, op);
    if (platform.load_relaxed(&op.group.state->failure) != 0) self.fail(observer.operation_failed());
  });
}

}  // namespace switchyard::ep
