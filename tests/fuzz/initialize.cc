// What every fuzzer does once, before its first input.
#include "base/env.hpp"
#include "fuzz.hpp"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  switchyard::fuzz::be_deterministic();
  (void)switchyard::env();  // as the process was started, not as an input says
  return 0;
}
