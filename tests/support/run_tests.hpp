// What every test program ends with. A test that was skipped is no success: the program's exit code says so where nothing
// failed, ctest lists it among those that did not run, and what was skipped, and why, is printed.
#pragma once

namespace switchyard::testing {

constexpr int kSkippedExitCode = 77;  // ctest's SKIP_RETURN_CODE

int run_tests(int& argc, char** argv);

}  // namespace switchyard::testing
