// Verdict: how a step of a test ended, for tests in which the library may fail but must not be wrong.
//
// What is made of words is wrong: only a Status of the library can be an error, so no fault is ever taken for one. Nor
// is a Status an error that tells of a bug, in the library or in the arguments of the test.
#pragma once
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "switchyard/status.hpp"

namespace switchyard::testing {

class [[nodiscard]] Verdict {
 public:
  Verdict() = default;
  // Empty, or what a check found.
  Verdict(std::string fault) : fault_(std::move(fault)) {}  // NOLINT: implicit by design
  Verdict(const Status& status)                             // NOLINT: implicit by design
      : fault_(status.ok() ? "" : status.to_string()), is_error_(!status.ok() && !tells_of_bug(status.code())) {}

  bool right() const { return fault_.empty(); }
  // The library said that it failed, and nothing was found wrong before.
  bool error() const { return is_error_; }
  // Says where it happened.
  Verdict in(const std::string& where) && {
    if (!right()) fault_ = where + ": " + fault_;
    return std::move(*this);
  }

  // For tests in which both are faults.
  operator std::string() const { return fault_; }  // NOLINT: implicit by design
  friend bool operator==(const Verdict& verdict, std::string_view fault) { return verdict.fault_ == fault; }
  friend std::ostream& operator<<(std::ostream& out, const Verdict& verdict) { return out << verdict.fault_; }

 private:
  static bool tells_of_bug(Code code) { return code == Code::kInternalError || code == Code::kInvalidArgument; }

  std::string fault_;
  bool is_error_ = false;
};

}  // namespace switchyard::testing
