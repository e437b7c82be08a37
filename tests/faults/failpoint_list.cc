#include "faults/failpoint_list.hpp"

namespace switchyard::testing {

std::span<const FailpointPlace> all_failpoints() {
  static constexpr FailpointPlace kPlaces[] = {
#include "failpoint_list.inc"
  };
  return kPlaces;
}

}  // namespace switchyard::testing
