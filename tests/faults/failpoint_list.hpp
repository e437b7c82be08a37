// Every failpoint of the library, from its sources at build time.
#pragma once
#include <span>
#include <string_view>

namespace switchyard::testing {

struct FailpointPlace {
  const char* name;
  bool can_fail;  // knows the action "error"

  bool starts_with(std::string_view prefix) const { return std::string_view(name).starts_with(prefix); }
};

std::span<const FailpointPlace> all_failpoints();

}  // namespace switchyard::testing
