#include "switchyard/status.hpp"

#include <cerrno>
#include <cstring>

namespace switchyard {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kDeviceError: return "device error";
    case Code::kSystemError: return "system error";
    case Code::kInternalError: return "internal error";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kInvalidUsage: return "invalid usage";
    case Code::kRemoteError: return "remote error";
    case Code::kInProgress: return "in progress";
  }
  return "unknown";
}

Status Status::system_error(std::string message) {
  const int error = errno;
  return {Code::kSystemError, message + ": " + std::strerror(error)};
}

std::string Status::to_string() const {
  return ok() ? code_name(code_) : std::string(code_name(code_)) + ": " + message_;
}

}  // namespace switchyard
