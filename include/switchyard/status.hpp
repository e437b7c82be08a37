// Status and Result: how every layer below the public faces reports failure.
//
// THREADS    values; share nothing.
// OWNERSHIP  a Status owns its message; the ok Status allocates nothing.
// ERRORS     a message names who (rank, peer), what (operation, argument) and what to do or what is allowed.
//            The C API turns a Status into an ncclResult_t plus a thread-local message, the C++ face throws
//            switchyard::Error, Python raises a typed exception. Nothing below those faces throws on purpose.
//            Where operator new fails, std::bad_alloc passes through and leaves the C++ face as it is; the C API and the
//            library's threads make a Status of it. Neither a Status nor text() throws: where there is no memory for a message,
//            they say so instead.
#pragma once
#include <cassert>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace switchyard {

// The first seven values equal ncclResult_t, so that the C API needs no table.
enum class Code : int {
  kOk = 0,
  kDeviceError = 1,      // the device runtime (CUDA) failed
  kSystemError = 2,      // the operating system failed a call
  kInternalError = 3,    // a bug of ours
  kInvalidArgument = 4,  // this argument can never work
  kInvalidUsage = 5,     // valid arguments, wrong moment or wrong configuration
  kRemoteError = 6,      // a peer died, misbehaved or did not answer by the deadline
  kInProgress = 7,
};

const char* code_name(Code code);

// Joins its arguments into one string, for error messages: text("top-k is ", k, ", allowed 1..", kMaxTopk). Cold, as are the
// makers of errors below: what leads to them is kept out of the way of calls that succeed.
// Never throws for want of memory: "out of memory" needs none.
template <class... Parts>
[[gnu::cold]] std::string text(const Parts&... parts) {
  try {
    std::ostringstream out;
    (out << ... << parts);
    if (out) return out.str();
  } catch (const std::bad_alloc&) {
  }
  return "out of memory";
}

// A pointer, null for success: what a call that succeeds carries around is one word.
class [[nodiscard]] Status {
 public:
  Status() = default;
  [[gnu::cold]] Status(Code code, std::string message) noexcept;
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  Status(const Status& other) noexcept {
    if (!other.ok()) copy_failure(other);
  }
  Status& operator=(const Status& other) noexcept {
    if (this != &other) failure_ = std::move(Status(other).failure_);
    return *this;
  }
  ~Status() = default;

  [[gnu::cold]] static Status device_error(std::string message) { return {Code::kDeviceError, std::move(message)}; }
  // Appends what errno says; call it right after the failing system call.
  [[gnu::cold]] static Status system_error(std::string message);
  [[gnu::cold]] static Status internal(std::string message) { return {Code::kInternalError, std::move(message)}; }
  [[gnu::cold]] static Status invalid_argument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
  [[gnu::cold]] static Status invalid_usage(std::string message) { return {Code::kInvalidUsage, std::move(message)}; }
  [[gnu::cold]] static Status remote(std::string message) { return {Code::kRemoteError, std::move(message)}; }
  // kSystemError; needs no memory.
  [[gnu::cold]] static Status out_of_memory() noexcept;

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return failure_ == nullptr ? Code::kOk : failure_->code; }
  const std::string& message() const;
  // "invalid argument: hidden is 7, must be a multiple of 8"
  std::string to_string() const;

 private:
  struct Failure {
    Code code;
    std::string message;
  };
  struct Delete {
    [[gnu::cold]] void operator()(const Failure* failure) const;
  };
  static const Failure& no_memory();
  [[gnu::cold]] void copy_failure(const Status& other) noexcept;
  std::unique_ptr<const Failure, Delete> failure_;
};

// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  T&& operator*() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

// What the C++ face throws.
class Error : public std::runtime_error {
 public:
  explicit Error(const Status& status) : std::runtime_error(status.to_string()), code_(status.code()) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

}  // namespace switchyard

// Returns early with the Status of a failed expression.
#define SWITCHYARD_TRY(expression)                           \
  do {                                                       \
    if (::switchyard::Status sy_status_ = (expression); !sy_status_.ok()) return sy_status_; \
  } while (0)

// SWITCHYARD_ASSIGN(auto window, Window::create(...)): declares or assigns, or returns the Status.
#define SWITCHYARD_CONCAT_(a, b) a##b
#define SWITCHYARD_CONCAT(a, b) SWITCHYARD_CONCAT_(a, b)
#define SWITCHYARD_ASSIGN(target, expression) \
  SWITCHYARD_ASSIGN_(SWITCHYARD_CONCAT(sy_result_, __LINE__), target, expression)
#define SWITCHYARD_ASSIGN_(result, target, expression) \
  auto result = (expression);                          \
  if (!result.ok()) return result.status();            \
  target = std::move(result).value()
