// switchyard/status.hpp: errors become the exceptions of switchyard/errors.py.
#include "switchyard/status.hpp"

#include <map>

#include "binding.hpp"

namespace switchyard::python {
namespace {

// No Code of the library: a wait with a limit of the caller's own.
constexpr int kTimedOut = -1;

// By code; kept for good. Looked up once: a translator that runs Python code could be cut off in the middle, in a
// daemon thread at the end of the program.
std::map<int, PyObject*>& exception_types() {
  static auto& types = *new std::map<int, PyObject*>;
  return types;
}

void raise(int code, const char* message) {
  const auto found = exception_types().find(code);
  PyErr_SetString(found == exception_types().end() ? PyExc_RuntimeError : found->second, message);
}

}  // namespace

void bind_status(py::module_& /*module*/) {
  const py::dict types = py::module_::import("switchyard.errors").attr("BY_CODE");
  for (const auto& [code, type] : types) exception_types()[code.cast<int>()] = type.inc_ref().ptr();
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise(int(error.code()), error.what());
    } catch (const TimedOut& error) {
      raise(kTimedOut, error.what());
    }
  });
}

}  // namespace switchyard::python
