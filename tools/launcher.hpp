// Runs the ranks of one job as child processes: passes on their output line by line and their signals, and ends all
// of them as soon as one fails.
//
// THREADS    the main thread, which must be the one that opened the SignalSource.
// OWNERSHIP  owns the children for the time of the call: none outlives it.
// ERRORS     a Status when a rank could not be started (those started before are ended); otherwise the exit code.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "switchyard/status.hpp"
#include "tools/signals.hpp"

namespace switchyard::tools {

struct JobSpec {
  std::vector<std::string> command;                         // [0] is the path of an executable file
  std::vector<std::vector<std::string>> rank_environments;  // one complete environment a rank
  Deadline deadline = Deadline::never();                    // of the whole job
  uint64_t grace_ns = 3 * kSecond;                          // from asking a rank to end to killing it
};

// Result: 0 if every rank exited with 0; else the exit code of the first that failed (128 + signal if a signal ended
// it); 124 when the deadline passed; 128 + signal when we were signalled and not every rank then exited with 0.
// BLOCKING until all ranks have ended and their output is written; a second signal gives up at once.
Result<int> run_job(const JobSpec& job, SignalSource& signals);

}  // namespace switchyard::tools
