// Runs the low-latency operations of one group on streams of its platform.
#pragma once
#include <memory>

#include "base/trace.hpp"
#include "ep/ll_op.hpp"
#include "platform/runtime.hpp"

namespace switchyard::ep {

// Hears of operations that failed on the stream. Outlives every operation launched with it.
class LlObserver {
 public:
  virtual ~LlObserver() = default;
  // Called on the stream's thread after an operation that found or left a failure; returns what the stream shall report.
  virtual Status operation_failed() = 0;
  // The same after an operation that went to its end but found something wrong. Ok: nothing the caller's data caused.
  virtual Status operation_faulty() = 0;
};

// THREADS    like the group it belongs to: one thread at a time.
// OWNERSHIP  outlives the operations it launched.
class LlLauncher {
 public:
  static std::unique_ptr<LlLauncher> create(Runtime& runtime, LlObserver& observer, TraceRing& trace);
  virtual ~LlLauncher() = default;

  // BLOCKING  never (but for a full stream queue).
  virtual Status launch(const LlOp& op, StreamRef stream) = 0;
  // The receive half of the staged operation in this slot will never be launched. After this nothing touches its tensors.
  virtual void forget(int slot) = 0;
  // Warps that one operation runs on; each has a row of scratch.
  virtual int num_warps() const = 0;
};

// Per platform.
std::unique_ptr<LlLauncher> make_host_launcher(LlObserver& observer, TraceRing& trace);
#if defined(SWITCHYARD_HAVE_CUDA)
std::unique_ptr<LlLauncher> make_cuda_launcher();  // CUDA streams report nothing
#endif

}  // namespace switchyard::ep
