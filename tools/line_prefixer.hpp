// Cuts a stream of bytes into lines and puts a prefix in front of each.
//
// THREADS    one at a time.
// ERRORS     none.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace switchyard::tools {

class LinePrefixer {
 public:
  // A line is held back until it is whole, so something must bound it: a longer one comes out as several.
  static constexpr size_t kMaxLineBytes = size_t{1} << 20;

  explicit LinePrefixer(std::string prefix, size_t max_line_bytes = kMaxLineBytes)
      : prefix_(std::move(prefix)), max_line_bytes_(max_line_bytes) {}

  // EFFECTS appends to `out` every line that `bytes` completes, newline included.
  void feed(std::string_view bytes, std::string& out) {
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      const size_t room_bytes = max_line_bytes_ - line_.size();
      const size_t taken_bytes = std::min({newline, bytes.size(), room_bytes});
      line_ += bytes.substr(0, taken_bytes);
      bytes.remove_prefix(taken_bytes);
      if (!bytes.empty()) {  // stopped by a newline, or by a line that is too long
        if (bytes.front() == '\n') bytes.remove_prefix(1);
        emit(out);
      }
    }
  }

  // EFFECTS appends what the stream ended with if that was no whole line.
  void finish(std::string& out) {
    if (!line_.empty()) emit(out);
  }

 private:
  void emit(std::string& out) {
    out += prefix_;
    out += line_;
    out += '\n';
    line_.clear();
  }

  std::string prefix_;
  size_t max_line_bytes_;
  std::string line_;
};

}  // namespace switchyard::tools
