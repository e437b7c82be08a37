#include "ep/ht_kernel.hpp"
#include "ep/ht_launch.hpp"
#include "ep/launch_host.hpp"

namespace switchyard::ep {
namespace {

class HostHtLauncher final : public HtLauncher {
 public:
  HostHtLauncher(OperationObserver& observer, TraceRing& trace) : observer_(observer), trace_(trace) {}

  Status launch(const HtOp& op, StreamRef stream) override {
    return post_operation(stream, observer_, *op.group.report, op.group.rank, [op, this](Stream&) {
      const TraceSpan span(trace_, phase_of(op), kNoTracePeer, uint32_t(op.group.state->tag + 1),
                           uint64_t(op.num_tokens) * op.token_bytes);
      if (op.group.masks_enabled) run_admission(HostPlatform{}, op.group, Admission::kAdopt, 0);
      run_ht(HostPlatform{}, op);
    });
  }

  Status launch_admission(const GroupView& group, Admission what, uint64_t admit_tag, StreamRef stream) override {
    return post_operation(stream, observer_, *group.report, group.rank, [group, what, admit_tag, this](Stream&) {
      const TraceSpan span(trace_, TracePhase::kMask, kNoTracePeer, uint32_t(group.state->tag + 1));
      run_admission(HostPlatform{}, group, what, admit_tag);
    });
  }

 private:
  static TracePhase phase_of(const HtOp& op) {
    if (op.kind == HtKind::kRoute) return TracePhase::kHandle;
    return op.kind == HtKind::kDispatch ? TracePhase::kDispatch : TracePhase::kCombine;
  }

  OperationObserver& observer_;
  TraceRing& trace_;
};

}  // namespace

std::unique_ptr<HtLauncher> make_host_ht_launcher(OperationObserver& observer, TraceRing& trace) {
  return std::make_unique<HostHtLauncher>(observer, trace);
}

}  // namespace switchyard::ep
