// What `switchyard run` is asked to do: its options, and which of them make sense together.
//
// THREADS  values.
// ERRORS   validate() names the option and what it allows.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "switchyard/status.hpp"

namespace switchyard::tools {

// A host that is silent, from the beginning or later, is given up.
inline constexpr const char* kDefaultAgent = "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5";

struct RunOptions {
  std::optional<int> num_ranks;
  std::optional<int> num_nodes;  // none: no pretended nodes
  std::optional<std::string> hosts_file;  // none: this machine
  std::optional<std::string> agent;       // none: kDefaultAgent
  std::string net;
  double timeout_s = 0;  // 0: none
  double grace_s = 3;
  std::vector<std::string> command;

  // REQUIRES valid options.
  uint64_t timeout_ns() const { return uint64_t(timeout_s * double(kSecond)); }
  uint64_t grace_ns() const { return uint64_t(grace_s * double(kSecond)); }
};

// The options of the subcommand; parsing writes to `options`, which must outlive it.
void add_run_options(CLI::App& subcommand, RunOptions& options);

// Afterwards there is a number of ranks, unless there is a hosts file, which may say it.
Status validate(const RunOptions& options);

}  // namespace switchyard::tools
