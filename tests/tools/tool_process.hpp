// Starts the built `switchyard` command for tests.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "tools/capture.hpp"
#include "tools/child_process.hpp"

namespace switchyard::tools {

// Far beyond what any scenario takes, so that only a hang meets it.
inline Deadline test_deadline() { return Deadline::after_ns(60 * kSecond); }

// `environment` replaces what this process has under those names.
inline Result<ChildProcess> start_program(std::vector<std::string> arguments, std::vector<std::string> environment) {
  Program program = Program::like_us(std::move(arguments));
  for (std::string& variable : environment) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(program.environment, [&](const std::string& inherited) { return inherited.starts_with(name); });
    program.environment.push_back(std::move(variable));
  }
  return ChildProcess::start(program);
}

inline Result<ChildProcess> start_tool(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), SWITCHYARD_TOOL_PATH);
  return start_program(std::move(arguments), std::move(environment));
}

// What it wrote, once it has ended.
inline Captured finish(Result<ChildProcess> child) {
  if (!child.ok()) {
    ADD_FAILURE() << child.status().to_string();
    return {};
  }
  auto captured = capture(*std::move(child), test_deadline());
  if (!captured.ok()) {
    ADD_FAILURE() << captured.status().to_string();
    return {};
  }
  return *std::move(captured);
}

inline Captured run_tool(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  return finish(start_tool(std::move(arguments), std::move(environment)));
}

// `switchyard run options... -- sh -c script`.
inline std::vector<std::string> run_script(std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(), "run");
  options.insert(options.end(), {"--", "sh", "-c", script});
  return options;
}

// Reads from `source` until it has given `num_lines` lines; returns them all as one text.
inline std::string read_lines(const Fd& source, size_t num_lines) {
  const Deadline deadline = test_deadline();
  std::string lines;
  for (size_t seen = 0; seen < num_lines;) {
    pollfd entry{source.get(), POLLIN, 0};
    char byte = 0;
    if (deadline.expired() || poll(&entry, 1, deadline.remaining_ms()) <= 0 || read(source.get(), &byte, 1) != 1) {
      ADD_FAILURE() << "only " << seen << " of " << num_lines << " lines came: " << lines;
      return lines;
    }
    lines += byte;
    seen += byte == '\n';
  }
  return lines;
}

// Becomes true once the process has exited, zombie or not.
inline bool exits_in_time(const Fd& process) {
  pollfd entry{process.get(), POLLIN, 0};
  return poll(&entry, 1, test_deadline().remaining_ms()) == 1;
}
inline Fd open_process(pid_t pid) { return Fd(int(syscall(SYS_pidfd_open, pid, 0))); }

// Free a moment ago; nothing else on this machine asks for a certain port.
inline int free_port() {
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t num_bytes = sizeof(address);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), num_bytes), 0);
  EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &num_bytes), 0);
  return ntohs(address.sin_port);
}

// A folder that goes with the object.
class TestFolder {
 public:
  TestFolder() { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() { std::filesystem::remove_all(path_); }

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  // The path of a file with these contents.
  std::string write(const std::string& name, const std::string& contents) const {
    std::ofstream(path(name)) << contents;
    return path(name);
  }
  std::string write_program(const std::string& name, const std::string& contents) const {
    std::filesystem::permissions(write(name, contents), std::filesystem::perms::owner_all);
    return path(name);
  }

 private:
  std::string path_ = ::testing::TempDir() + "switchyard-test-XXXXXX";
};

inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

inline size_t num_occurrences(const std::string& whole, const std::string& part) {
  size_t num = 0;
  for (size_t at = whole.find(part); at != std::string::npos; at = whole.find(part, at + part.size())) num++;
  return num;
}

}  // namespace switchyard::tools
