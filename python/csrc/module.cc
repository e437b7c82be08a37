// switchyard._core: the C++ face for Python. Its users are the modules of python/switchyard.
#include "binding.hpp"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ face of Switchyard; use the package `switchyard`.";
  module.attr("__version__") = SWITCHYARD_VERSION;
  switchyard::python::bind_status(module);
  switchyard::python::bind_tensor(module);
  switchyard::python::bind_comm(module);
  switchyard::python::bind_coll(module);
  switchyard::python::bind_ep(module);
}
