// What `switchyard run` is asked to do: its options, and which of them make sense together.
//
// THREADS  values.
// ERRORS   validate() names the option and what it allows.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "switchyard/status.hpp"

namespace switchyard::tools {

struct RunOptions {
  int num_ranks = 0;
  int num_nodes = 0;  // 0: no pretended nodes
  std::string net;
  double timeout_s = 0;  // 0: none
  double grace_s = 3;
  std::vector<std::string> command;
};

// The options of the subcommand; parsing writes to `options`, which must outlive it.
void add_run_options(CLI::App& subcommand, RunOptions& options);

Status validate(const RunOptions& options);

}  // namespace switchyard::tools
