// Runs a program to its end and takes what it wrote.
#pragma once
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "switchyard/status.hpp"
#include "tools/child_process.hpp"

namespace switchyard::tools {

struct Captured {
  std::string output, error;
  ExitReport report;
};

// BLOCKING until the child has ended or the deadline has passed; then it is killed and the result is an error.
Result<Captured> capture(ChildProcess child, Deadline deadline);
// The same for a program that is looked for in PATH.
Result<Captured> capture(std::vector<std::string> arguments, Deadline deadline);

}  // namespace switchyard::tools
