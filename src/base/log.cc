#include "base/log.hpp"

#include <unistd.h>

#include <atomic>

#include "base/env.hpp"

namespace switchyard {
namespace {

void write_to_stderr(LogLevel level, const char* line) {
  static constexpr const char* kNames[] = {"error", "warn", "info", "debug"};
  const std::string whole = text("switchyard[", getpid(), "] ", kNames[int(level)], ": ", line, "\n");
  // One write per line keeps the lines of several ranks apart; a failing stderr has nobody to tell.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, whole.data(), whole.size());
}

std::atomic<void (*)(LogLevel, const char*)> g_sink{&write_to_stderr};

}  // namespace

bool log_enabled(LogLevel level) { return level <= env().log_level; }

void log_line(LogLevel level, const std::string& line) { g_sink.load(std::memory_order_acquire)(level, line.c_str()); }

void set_log_sink(void (*sink)(LogLevel, const char*)) {
  g_sink.store(sink ? sink : &write_to_stderr, std::memory_order_release);  // pairs with the acquire in log_line()
}

}  // namespace switchyard
