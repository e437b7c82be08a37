// How a C function of ours ends: a Status becomes an ncclResult_t and a message for ncclGetLastError(); nothing is ever
// thrown across the C boundary.
#pragma once
#include <utility>

#include "base/guarded.hpp"
#include "base/log.hpp"
#include "host/nccl.h"
#include "switchyard/status.hpp"

namespace switchyard::capi {

// The message behind ncclGetLastError() of this thread.
void set_last_error(std::string message);
const char* last_error();

inline ncclResult_t finish(const char* function, const Status& status) {
  if (status.ok()) return ncclSuccess;
  set_last_error(text(function, ": ", status.to_string()));
  log(LogLevel::kInfo, last_error());
  return ncclResult_t(int(status.code()));
}

// Runs the body of a C function, which returns a Status.
template <class Body>
ncclResult_t guarded(const char* function, Body&& body) noexcept {
  return finish(function, switchyard::guarded(std::forward<Body>(body)));
}

}  // namespace switchyard::capi
