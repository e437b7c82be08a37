// `switchyard host-agent`: started by `switchyard run --hosts` on each host, runs that host's ranks. What they are
// comes through standard input, which then stays open for as long as they shall live.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "tools/child_process.hpp"
#include "tools/commands.hpp"
#include "tools/exit_codes.hpp"
#include "tools/host_share.hpp"
#include "tools/launcher.hpp"
#include "tools/rank_child.hpp"

namespace switchyard::tools {
namespace {

// Appends so many bytes of standard input, or what there is to its end. BLOCKING until they are there: whoever starts
// us sends them at once, and if it is gone that is the end.
void read_bytes(size_t num_bytes, std::string& bytes) {
  char buffer[4096];
  while (num_bytes > 0) {
    const ssize_t num_read = read(STDIN_FILENO, buffer, std::min(sizeof(buffer), num_bytes));
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read <= 0) return;
    bytes.append(buffer, size_t(num_read));
    num_bytes -= size_t(num_read);
  }
}

Result<HostShare> read_share() {
  std::string bytes;
  read_bytes(kShareHeaderBytes, bytes);
  SWITCHYARD_ASSIGN(const size_t body_bytes, share_body_bytes(bytes));
  read_bytes(body_bytes, bytes);
  return decode(bytes);
}

// As the job was started where it was started: its variables, its directory.
Status enter(const HostShare& share) {
  for (const std::string& variable : share.environment) {
    const size_t equals = variable.find('=');
    if (setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, /*overwrite=*/1) != 0) {
      return Status::system_error("setting a variable");
    }
  }
  if (chdir(share.directory.c_str()) == 0) return {};
  return Status::system_error(text("cannot go to the directory '", share.directory,
                                   "'; start the job from one that every host has, on a shared file system or copied"));
}

Result<int> run_share(const HostShare& share, const std::string& program_path, const std::string& who) {
  SWITCHYARD_ASSIGN(SignalSource signals, SignalSource::open());
  JobSpec job;
  job.speaker = who;
  job.grace_ns = share.grace_ns;
  job.lifeline = STDIN_FILENO;
  std::vector<std::string> command = share.command;
  command[0] = program_path;
  for (int local_rank = 0; local_rank < share.num_local_ranks; local_rank++) {
    job.children.push_back(rank_child({share.first_rank + local_rank, share.num_ranks, local_rank}, share.id, command));
  }
  return run_job(job, signals);
}

void run_agent() {
  occupy_standard_descriptors();
  const auto fail = [](const std::string& who, const Status& status, int exit_code) {
    fmt::print(stderr, "{}: {}\n", who, status.message());
    finish(exit_code);
  };
  const auto share = read_share();
  if (!share.ok()) return fail("switchyard host-agent", share.status(), kExitUsage);
  const std::string who = "switchyard run on " + share.value().host;
  if (const Status status = enter(share.value()); !status.ok()) return fail(who, status, kExitFailure);
  const auto program_path = find_program(share.value().command.front(), getenv("PATH"));
  if (!program_path.ok()) return fail(who, program_path.status(), kExitNotFound);
  const auto exit_code = run_share(share.value(), program_path.value(), who);
  if (!exit_code.ok()) return fail(who, exit_code.status(), kExitFailure);
  finish(exit_code.value());
}

}  // namespace

void register_host_agent(CLI::App& app) {
  CLI::App* command = app.add_subcommand("host-agent", "Start the ranks of a host; `switchyard run --hosts` calls it");
  command->group("");  // not for people, so not in the help
  command->callback(run_agent);
}

}  // namespace switchyard::tools
