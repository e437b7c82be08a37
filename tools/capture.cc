#include "tools/capture.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

namespace switchyard::tools {
namespace {

void pull(Fd& source, std::string& target) {
  char buffer[65536];
  while (source.valid()) {
    const ssize_t num_bytes = read(source.get(), buffer, sizeof(buffer));
    if (num_bytes > 0) target.append(buffer, size_t(num_bytes));
    else if (num_bytes < 0 && errno == EAGAIN) return;
    else if (num_bytes == 0 || errno != EINTR) source.reset();
  }
}

}  // namespace

Result<Captured> capture(ChildProcess child, Deadline deadline) {
  Captured captured;
  Fd ended(int(syscall(SYS_pidfd_open, child.pid(), 0)));
  if (!ended.valid()) return Status::system_error("opening a descriptor of a child process");
  Fd &output = child.standard_output(), &error = child.standard_error();
  while (child.alive() || output.valid() || error.valid()) {
    if (deadline.expired()) return Status::remote("a child process did not end by its deadline");
    // poll(2) skips descriptors below 0, which is what a closed Fd holds.
    pollfd entries[] = {{output.get(), POLLIN, 0}, {error.get(), POLLIN, 0}, {ended.get(), POLLIN, 0}};
    poll(entries, std::size(entries), deadline.remaining_ms());
    pull(output, captured.output);
    pull(error, captured.error);
    if (auto report = child.try_reap()) {
      captured.report = *std::move(report);
      ended.reset();
    }
  }
  return captured;
}

Result<Captured> capture(std::vector<std::string> arguments, Deadline deadline) {
  SWITCHYARD_ASSIGN(arguments[0], find_program(arguments[0], std::getenv("PATH")));
  SWITCHYARD_ASSIGN(ChildProcess child, ChildProcess::start(Program::like_us(std::move(arguments))));
  return capture(std::move(child), deadline);
}

}  // namespace switchyard::tools
