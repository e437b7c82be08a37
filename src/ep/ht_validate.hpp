// Every check of a high-throughput call, made before anything is posted. Each refusal names the argument, what it is and what is
// allowed. In eager mode some make the host wait for the update, whose result they need.
#pragma once
#include "ep/ht_handle.hpp"
#include "ep/validate.hpp"

namespace switchyard::ep {

Status validate_layout_info(const HtHandle& handle, const LayoutInfo& info);
Status validate_ht_dispatch(HtHandle& handle, const DispatchArgs& args);
Status validate_ht_combine(HtHandle& handle, const CombineArgs& args);

}  // namespace switchyard::ep
