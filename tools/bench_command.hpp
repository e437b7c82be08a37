// What the subcommands of `switchyard bench` have in common.
#pragma once
#include <string>

#include "tools/bench_launch.hpp"
#include "tools/commands.hpp"

namespace switchyard::tools {

// Says why and ends with this exit code.
void fail_bench(const Status& status, int exit_code);
// The file must be writable before minutes of measuring, not after. Empty: there is none.
Status check_writable(const std::string& path);
// What a benchmark's ranks run; started through `switchyard run`, not by people.
void add_rank_command(CLI::App& bench, const std::string& name, RankBody body);

void register_bench_gin(CLI::App& bench);

}  // namespace switchyard::tools
