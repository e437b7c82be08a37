// Failpoints (failpoint.hpp) in code that also runs on GPUs: places where a test can make a rank die or stall; nothing there.
#pragma once

#if defined(__CUDACC__)
#define SWITCHYARD_KERNEL_FAILPOINT(name) ((void)0)
#else
#include "base/failpoint.hpp"
#define SWITCHYARD_KERNEL_FAILPOINT(name) ((void)SWITCHYARD_FAILPOINT(name))
#endif
