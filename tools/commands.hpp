// The subcommands of `switchyard`. Each adds itself to the application and runs as its callback; a result other than
// success leaves through finish().
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace switchyard::tools {

// Ends a subcommand with this exit code. CLI11's own way out of a callback is an exception that main() catches.
inline void finish(int exit_code) {
  if (exit_code != 0) throw CLI::RuntimeError(exit_code);
}

// `program` is what follows -- on the command line.
void register_run(CLI::App& app, std::vector<std::string> program);
void register_host_agent(CLI::App& app);
void register_doctor(CLI::App& app);
void register_bench(CLI::App& app);

}  // namespace switchyard::tools
