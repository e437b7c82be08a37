// switchyard/status.hpp: errors become the exceptions of switchyard/errors.py.
#include "switchyard/status.hpp"

#include "binding.hpp"

namespace switchyard::python {
namespace {

// No Code of the library: a wait with a limit of the caller's own.
constexpr int kTimedOut = -1;

void raise(int code, const char* message) {
  const py::object made = py::module_::import("switchyard.errors").attr("of_code")(code, message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
}

}  // namespace

void bind_status(py::module_& /*module*/) {
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
