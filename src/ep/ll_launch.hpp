// Runs a low-latency operation on a stream of the platform.
#pragma once
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

// BLOCKING  never (but for a full stream queue).
Status launch(Runtime& runtime, const LlOp& op, StreamRef stream, LlObserver& observer);
// Warps that one operation runs on; each has a row of scratch.
int num_warps(Runtime& runtime);

// Per platform.
Status launch_host(const LlOp& op, StreamRef stream, LlObserver& observer);
#if defined(SWITCHYARD_HAVE_CUDA)
Status launch_cuda(const LlOp& op, StreamRef stream, LlObserver& observer);
int cuda_num_warps();
#endif

}  // namespace switchyard::ep
