// The one log sink. Levels come from SWITCHYARD_LOG (error, warn, info, debug); the default is warn.
// An error is logged once, where it is first seen; layers above only pass the Status on.
//
// THREADS  any; a line is written whole.
#pragma once
#include <string>

#include "switchyard/status.hpp"

namespace switchyard {

enum class LogLevel { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& line);
// Replaces standard error as the sink (tests, embedding programs); nullptr restores it.
void set_log_sink(void (*sink)(LogLevel level, const char* line));

template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (log_enabled(level)) log_line(level, text(parts...));
}

}  // namespace switchyard
