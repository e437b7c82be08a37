// The code of the SystemExit that ends the program. Python prints other exceptions and leaves them in sys.last_value;
// this one it drops, and tells nobody before the hooks of atexit run. But it drops it where no Python code is running
// any more, unlike one that was caught: so this looks at every SystemExit that goes.
#include "binding.hpp"

namespace switchyard::python {
namespace {

destructor g_dealloc = nullptr;
unsigned long g_main_thread = 0;  // NOLINT: Python's type
PyObject* g_exit_code = nullptr;  // owned; null: no SystemExit has ended the program

void look_and_dealloc(PyObject* gone) {
  if (PyEval_GetFrame() == nullptr && PyThread_get_thread_ident() == g_main_thread) {
    PyObject* code = reinterpret_cast<PySystemExitObject*>(gone)->code;
    Py_XINCREF(code);
    Py_XSETREF(g_exit_code, code);
  }
  g_dealloc(gone);
}

}  // namespace

void bind_exit(py::module_& module) {
  g_main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();  // NOLINT
  auto* type = reinterpret_cast<PyTypeObject*>(PyExc_SystemExit);
  if (type->tp_dealloc != look_and_dealloc) g_dealloc = std::exchange(type->tp_dealloc, look_and_dealloc);
  module.def("exit_code", [] {
    return g_exit_code == nullptr ? py::object(py::none()) : py::reinterpret_borrow<py::object>(g_exit_code);
  });
}

}  // namespace switchyard::python
