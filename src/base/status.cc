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

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) failure_.reset(new Failure{code, std::move(message)});
}

void Status::copy_failure(const Status& other) { failure_.reset(new Failure(*other.failure_)); }

const std::string& Status::message() const {
  static const std::string& none = *new std::string;
  return failure_ == nullptr ? none : failure_->message;
}

Status Status::system_error(std::string message) {
  const int error = errno;
  return {Code::kSystemError, message + ": " + std::strerror(error)};
}

std::string Status::to_string() const {
  return ok() ? code_name(code()) : std::string(code_name(code())) + ": " + message();
}

}  // namespace switchyard
