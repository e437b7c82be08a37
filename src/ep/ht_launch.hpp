// Runs the high-throughput operations of one group on streams of its platform.
#pragma once
#include <memory>

#include "base/trace.hpp"
#include "ep/admission.hpp"
#include "ep/ht_op.hpp"
#include "ep/launch.hpp"
#include "platform/runtime.hpp"

namespace switchyard::ep {

// THREADS    like the group it belongs to: one thread at a time.
// OWNERSHIP  outlives the operations it launched.
class HtLauncher {
 public:
  virtual ~HtLauncher() = default;
  // BLOCKING  never (but for a full stream queue).
  virtual Status launch(const HtOp& op, StreamRef stream) = 0;
  virtual Status launch_admission(const GroupView& group, Admission what, uint64_t admit_tag, StreamRef stream) = 0;
};

std::unique_ptr<HtLauncher> make_host_ht_launcher(OperationObserver& observer, TraceRing& trace);

}  // namespace switchyard::ep
