#include "ep/ll_kernel.hpp"
#include "ep/ll_launch.hpp"
#include "platform/host/stream.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::ep {

Status launch_host(const LlOp& op, StreamRef stream, LlObserver& observer) {
  return static_cast<Stream*>(stream.handle)->post([op, &observer](Stream& self) {
    set_failpoint_rank(op.group.rank);
    const HostPlatform platform;
    if (op.group.masks_enabled && op.part != LlPart::kReceive) run_admission(platform, op);
    if (op.kind == LlKind::kDispatch) run_dispatch(platform, op);
    else if (op.kind == LlKind::kCombine) run_combine(platform, op);
    if (platform.load_relaxed(&op.group.report->fault) != 0) {
      if (const Status fault = observer.operation_faulty(); !fault.ok()) self.fail(fault);
    }
    if (platform.load_relaxed(&op.group.report->failure) != 0) self.fail(observer.operation_failed());
  });
}

}  // namespace switchyard::ep
