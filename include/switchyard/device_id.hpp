// Which device the kernels of a rank run on.
#pragma once

namespace switchyard {

enum class DeviceKind {
  kHost,  // the CPUs of this machine
  kCuda,  // a GPU; needs a library built with SWITCHYARD_CUDA
};

struct DeviceId {
  DeviceKind kind = DeviceKind::kHost;
  int ordinal = 0;  // of the GPU, as CUDA counts them
  bool operator==(const DeviceId&) const = default;
};

}  // namespace switchyard
