// Runs the processes of one job, its ranks or the agents of its hosts: passes on their output line by line and our
// signals, and ends all of them as soon as one fails.
//
// THREADS    the main thread, which must be the one that opened the SignalSource.
// OWNERSHIP  owns the children for the time of the call: none outlives it.
// ERRORS     a Status when a child could not be started (those started before are ended); otherwise the exit code.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "switchyard/status.hpp"
#include "tools/signals.hpp"

namespace switchyard::tools {

struct JobChild {
  std::string name;                      // among those of its kind: "3", "node2"
  std::string prefix;                    // of each line of its output; empty: they have one already
  std::vector<std::string> command;      // [0] is the path of an executable file
  std::vector<std::string> environment;  // complete
  // Its standard input begins with this and stays open: the child may be on another machine, where no signal reaches it. What
  // follows are the signals it is sent, a byte each; SIGKILL is the end of it.
  std::optional<std::string> input = {};
  std::string advice = {};  // what to try where the command itself, or what it starts, can't be executed or reached
};

struct JobSpec {
  std::vector<JobChild> children;
  std::string kind = "rank";               // what the children are, in messages
  std::string speaker = "switchyard run";  // whose messages they are
  Deadline deadline = Deadline::never();   // of the whole job
  uint64_t grace_ns = 3 * kSecond;         // from asking a child to end to killing it
  // Signals to the children come through this descriptor, a byte each. Its end asks them to end, as by SIGTERM; where they have been
  // asked, it kills.
  int lifeline = -1;
};

// Result: 0 if every child exited with 0; else the exit code of the first that failed (128 + signal if a signal ended
// it); 124 when the deadline passed; 128 + signal when we were signalled and not every child then exited with 0.
// BLOCKING until all have ended and their output is written; a second signal gives up at once.
Result<int> run_job(const JobSpec& job, SignalSource& signals);

}  // namespace switchyard::tools
