#include "ep/ll_launch.hpp"

namespace switchyard::ep {

std::unique_ptr<LlLauncher> LlLauncher::create(Runtime& runtime, OperationObserver& observer, TraceRing& trace) {
#if defined(SWITCHYARD_HAVE_CUDA)
  if (runtime.device().kind == DeviceKind::kCuda) return make_cuda_launcher(runtime);
#endif
  (void)runtime;
  return make_host_launcher(observer, trace);
}

}  // namespace switchyard::ep
