#include "tools/bench_command.hpp"

#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "tools/exit_codes.hpp"

namespace switchyard::tools {

void fail_bench(const Status& status, int exit_code) {
  fmt::print(stderr, "switchyard bench: {}\n", status.message());
  finish(exit_code);
}

Status check_writable(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return {};
  return Status::invalid_argument(text("cannot write '", path, "'; name a file in a folder that exists"));
}

void add_rank_command(CLI::App& bench, const std::string& name, RankBody body) {
  const auto folder = std::make_shared<std::string>();
  CLI::App* rank = bench.add_subcommand(name, "")->group("");
  rank->add_option("folder", *folder)->required();
  rank->callback([folder, body = std::move(body)] {
    if (const Status status = run_bench_rank(*folder, body); !status.ok()) fail_bench(status, kExitFailure);
  });
}

}  // namespace switchyard::tools
