// Every check of a low-latency call, made before anything is posted. Each refusal names the argument, what it is and
// what is allowed.
#pragma once
#include "ep/ll_handle.hpp"
#include "ep/validate.hpp"

namespace switchyard::ep {

// The last dimension and the bytes of the rows that a checked call moves.
struct DispatchShape {
  size_t num_elements;  // of an input row
  size_t token_bytes;   // of a row as it travels
  size_t scale_bytes;
};
struct CombineShape {
  size_t num_elements;
};

Result<DispatchShape> validate_dispatch(const LlHandle& handle, const DispatchArgs& args);
Result<CombineShape> validate_combine(const LlHandle& handle, const CombineArgs& args);

}  // namespace switchyard::ep
