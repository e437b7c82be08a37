#include "ep/ll_kernel.hpp"
#include "ep/ll_launch.hpp"
#include "platform/host/stream.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::ep {

Status launch_host(const LlOp& op, StreamRef stream, LlObserver& observer) {
  return static_cast<Stream*>(stream.handle)->post([op, &observer](Stream& self) {
    const HostPlatform platform;
    const bool moves_rows = op.kind == LlKind::kDispatch || op.kind == LlKind::kCombine;
    if (op.group.masks_enabled && op.part != LlPart::kReceive) run_admission(platform, op);
    if (moves_rows) run_operation(platform, op);
    if (platform.load_relaxed(&op.group.state->failure) != 0) self.fail(observer.operation_failed());
  });
}

}  // namespace switchyard::ep
