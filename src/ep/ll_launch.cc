#include "ep/ll_launch.hpp"

namespace switchyard::ep {

Status launch(Runtime& runtime, const LlOp& op, StreamRef stream, LlObserver& observer) {
#if defined(SWITCHYARD_HAVE_CUDA)
  if (runtime.kind() == Runtime::Kind::kCuda) return launch_cuda(op, stream, observer);
#endif
  (void)runtime;
  return launch_host(op, stream, observer);
}

int num_warps(Runtime& runtime) {
#if defined(SWITCHYARD_HAVE_CUDA)
  if (runtime.kind() == Runtime::Kind::kCuda) return cuda_num_warps();
#endif
  (void)runtime;
  return 1;
}

}  // namespace switchyard::ep
