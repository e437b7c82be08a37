// What `switchyard doctor` looks at: one Check per thing that the library needs or can use.
//
// THREADS    the main one; checks start helper programs and load libraries.
// ERRORS     none: what can't be found out is a finding.
// BLOCKING   every helper program has a deadline of some seconds.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace switchyard::tools {

enum class Finding {
  kOk,
  kLimited,  // works, below its best
  kMissing,
};

enum class Need { kRequired, kOptional };

struct Check {
  std::string name;
  Need need;
  Finding finding;
  std::string detail;  // what was found
  std::string fix;     // the command that improves it; empty if all is well
};

constexpr std::string_view finding_name(Finding finding) {
  switch (finding) {
    case Finding::kOk: return "ok";
    case Finding::kLimited: return "limited";
    case Finding::kMissing: return "missing";
  }
  return "unknown";
}

std::vector<Check> check_system();    // processor, memory, kernel
std::vector<Check> check_software();  // libraries and programs

}  // namespace switchyard::tools
