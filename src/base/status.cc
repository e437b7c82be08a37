#include "switchyard/status.hpp"

#include <cerrno>
#include <cstddef>
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

// The one failure that all share who have no memory for their own. Its message is so short that it lies inside the string.
const Status::Failure& Status::no_memory() {
  alignas(Failure) static std::byte place[sizeof(Failure)];  // never destroyed: threads may fail while the process exits
  static const Failure& failure = *new (place) Failure{Code::kSystemError, "out of memory"};
  return failure;
}

void Status::Delete::operator()(const Failure* failure) const {
  if (failure != &no_memory()) delete failure;
}

Status Status::out_of_memory() noexcept {
  Status status;
  status.failure_.reset(&no_memory());
  return status;
}

Status::Status(Code code, std::string message) noexcept {
  if (code == Code::kOk) return;
  const Failure* const failure = new (std::nothrow) Failure{code, std::move(message)};
  failure_.reset(failure == nullptr ? &no_memory() : failure);
}

void Status::copy_failure(const Status& other) noexcept {
  failure_.reset(&no_memory());
  if (other.failure_.get() == &no_memory()) return;
  try {
    failure_.reset(new Failure(*other.failure_));
  } catch (const std::bad_alloc&) {
  }
}

const std::string& Status::message() const {
  // Made without memory, and there for who asks while the process ends.
  union Lasting {
    std::string string;
    constexpr Lasting() : string() {}
    constexpr ~Lasting() {}
  };
  static const Lasting none;
  return failure_ == nullptr ? none.string : failure_->message;
}

Status Status::system_error(std::string message) {
  const int error = errno;
  return {Code::kSystemError, text(message, ": ", std::strerror(error))};
}

std::string Status::to_string() const {
  return ok() ? code_name(code()) : text(code_name(code()), ": ", message());
}

}  // namespace switchyard
