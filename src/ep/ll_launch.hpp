// Runs the low-latency operations of one group on streams of its platform.
#pragma once
#include <memory>

#include "base/trace.hpp"
#include "ep/admission.hpp"
#include "ep/launch.hpp"
#include "ep/ll_op.hpp"
#include "platform/runtime.hpp"

namespace switchyard::ep {

// THREADS    like the group it belongs to: one thread at a time.
// OWNERSHIP  outlives the operations it launched.
class LlLauncher {
 public:
  static std::unique_ptr<LlLauncher> create(Runtime& runtime, OperationObserver& observer, TraceRing& trace);
  virtual ~LlLauncher() = default;

  // BLOCKING  never (but for a full stream queue).
  virtual Status launch(const LlOp& op, StreamRef stream) = 0;
  virtual Status launch_admission(const GroupView& group, Admission what, uint64_t admit_tag, StreamRef stream) = 0;
  // The receive half of the staged operation in this slot will never be launched. After this nothing touches its tensors.
  virtual void forget(int slot) = 0;
  // Warps that one operation runs on; each has a row of scratch.
  virtual int num_warps() const = 0;
};

// Per platform.
std::unique_ptr<LlLauncher> make_host_launcher(OperationObserver& observer, TraceRing& trace);
#if defined(SWITCHYARD_HAVE_CUDA)
std::unique_ptr<LlLauncher> make_cuda_launcher(const Runtime& runtime);  // CUDA streams report nothing
#endif

}  // namespace switchyard::ep
