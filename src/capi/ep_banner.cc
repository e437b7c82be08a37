// NCCL_EP_DEBUG makes the library say who it is when it is loaded. Programs also look for this string in the file.
#include <cstdio>

#include "base/env.hpp"
#include "nccl_ep.h"

namespace {

#define SWITCHYARD_TEXT_(value) #value
#define SWITCHYARD_TEXT(value) SWITCHYARD_TEXT_(value)
constexpr char kBanner[] = "NCCL EP version " SWITCHYARD_TEXT(NCCL_EP_MAJOR) "." SWITCHYARD_TEXT(
    NCCL_EP_MINOR) "." SWITCHYARD_TEXT(NCCL_EP_PATCH) "+cuda13.0";
static_assert(CUDART_VERSION / 1000 == 13 && CUDART_VERSION % 1000 == 0, "the banner names the CUDA version");

[[gnu::constructor]] void print_banner() {
  if (switchyard::env().ep_debug) std::fprintf(stderr, "%s\n", kBanner);
}

}  // namespace
