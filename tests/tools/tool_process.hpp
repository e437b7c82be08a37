// Starts the built `switchyard` command for tests.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

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

inline size_t num_occurrences(const std::string& whole, const std::string& part) {
  size_t num = 0;
  for (size_t at = whole.find(part); at != std::string::npos; at = whole.find(part, at + part.size())) num++;
  return num;
}

}  // namespace switchyard::tools
