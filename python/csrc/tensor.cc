// switchyard/ep/tensor.hpp and dtype.hpp: memory that Python objects own, described.
#include <map>

#include "binding.hpp"

namespace switchyard::python {
namespace {

ep::Tensor describe(void* data, DType dtype, const std::vector<size_t>& sizes, const std::string& name) {
  if (dtype_bytes(dtype) == 0) throw Error(Status::invalid_argument(name + ": unknown datatype"));
  if (sizes.empty() || sizes.size() > size_t(ep::Tensor::kMaxDims)) {
    throw Error(
        Status::invalid_argument(text(name, " has ", sizes.size(), " dimensions, allowed 1..", ep::Tensor::kMaxDims)));
  }
  ep::Tensor tensor;
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.num_dims = int(sizes.size());
  std::copy(sizes.begin(), sizes.end(), tensor.sizes.begin());
  return tensor;
}

// NumPy's own types in the machine's byte order, by their numbers, which are the same in NumPy 1 and 2; others take the
// way through Python.
std::optional<DType> numpy_dtype(const py::dtype& dtype) {
  const char order = dtype.byteorder();
  if (order != '=' && order != '|') return std::nullopt;
  switch (dtype.num()) {
    case 1: return DType::kInt8;
    case 2: return DType::kUint8;
    case 5: return DType::kInt32;
    case 6: return DType::kUint32;
    case 7: return DType::kInt64;
    case 8: return DType::kUint64;
    case 11: return DType::kFloat32;
    case 12: return DType::kFloat64;
    case 23: return DType::kFloat16;
    default: return std::nullopt;
  }
}

std::optional<PyTensor> of_numpy(const py::object& buffer, const char* name) {
  if (!py::isinstance<py::array>(buffer)) return std::nullopt;
  const auto array = py::reinterpret_borrow<py::array>(buffer);
  const std::optional<DType> dtype = numpy_dtype(array.dtype());
  if (!dtype || (array.flags() & py::array::c_style) == 0) return std::nullopt;
  const std::vector<size_t> sizes(array.shape(), array.shape() + array.ndim());
  return PyTensor{describe(const_cast<void*>(array.data()), *dtype, sizes, name), buffer, array.writeable(),
                  DeviceId{}};
}

// torch's types, once one of them was seen; torch is not loaded here, and may never be.
class TorchTypes {
 public:
  bool is_tensor(const py::object& value) {
    if (tensor_ == nullptr) {
      const py::object torch = py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch").ptr()));
      if (!torch || !py::hasattr(torch, "Tensor")) return false;
      tensor_ = reinterpret_cast<PyTypeObject*>(py::object(torch.attr("Tensor")).release().ptr());
    }
    return PyObject_TypeCheck(value.ptr(), tensor_) != 0;
  }
  std::optional<DType> dtype(const py::object& type) {
    auto [found, is_new] = dtypes_.try_emplace(type.ptr());
    if (is_new) {
      type.inc_ref();  // torch's types live as long as torch
      const py::object code = py::module_::import("switchyard.tensor").attr("code_of")(type);
      if (!code.is_none()) found->second = DType(code.cast<int>());
    }
    return found->second;
  }

 private:
  PyTypeObject* tensor_ = nullptr;
  std::map<PyObject*, std::optional<DType>> dtypes_;
};

// Dense torch tensors of the host or a GPU; what is wrong with others, switchyard/tensor.py says.
std::optional<PyTensor> of_torch(const py::object& buffer, const char* name) {
  static TorchTypes& types = *new TorchTypes;  // never destroyed: Python may be gone before
  if (!types.is_tensor(buffer)) return std::nullopt;
  try {
    const bool on_gpu = buffer.attr("is_cuda").cast<bool>();
    if (!on_gpu && !buffer.attr("is_cpu").cast<bool>()) return std::nullopt;
    const std::optional<DType> dtype = types.dtype(buffer.attr("dtype"));
    if (!dtype || !buffer.attr("is_contiguous")().cast<bool>()) return std::nullopt;
    const auto sizes = buffer.attr("shape").cast<std::vector<size_t>>();
    auto* data = reinterpret_cast<void*>(buffer.attr("data_ptr")().cast<uintptr_t>());  // NOLINT: torch's way to say it
    const DeviceId device = on_gpu ? DeviceId{DeviceKind::kCuda, buffer.attr("get_device")().cast<int>()} : DeviceId{};
    return PyTensor{describe(data, *dtype, sizes, name), buffer, true, device};
  } catch (const py::error_already_set&) {  // sparse ones have no address
    return std::nullopt;
  }
}

PyTensor of_memory(const PyMemory& memory, const py::object& owner, uint64_t offset, DType dtype,
                   const std::vector<size_t>& sizes, const std::string& name) {
  ep::Tensor tensor = describe(nullptr, dtype, sizes, name);
  const std::optional<size_t> num_bytes = tensor.num_bytes();
  if (offset > memory->size() || !num_bytes || *num_bytes > memory->size() - offset) {
    throw Error(Status::invalid_argument(
        text(name, " is ", tensor.shape_text(), " at byte ", offset, ", its window has ", memory->size(), " bytes")));
  }
  tensor.data = static_cast<char*>(memory->data()) + offset;
  tensor.window = &memory->window();
  tensor.window_offset = offset;
  return {tensor, owner, true, memory->device()};
}

PyTensor reshape(const PyTensor& given, const std::vector<size_t>& sizes, const std::string& name) {
  ep::Tensor tensor = describe(given.tensor.data, given.tensor.dtype, sizes, name);
  if (!tensor.num_bytes() || tensor.num_bytes() != given.tensor.num_bytes()) {
    throw Error(
        Status::invalid_argument(text(name, " is ", given.tensor.shape_text(), ", can't be ", tensor.shape_text())));
  }
  tensor.window = given.tensor.window;
  tensor.window_offset = given.tensor.window_offset;
  return {tensor, given.owner, given.writable, given.device};
}

// What NumPy does not say plainly, switchyard/tensor.py finds out.
PyTensor make_tensor(const py::object& buffer, const py::object& dtype, const py::object& shape,
                     const py::object& window, const py::object& window_offset, const std::string& name) {
  if (dtype.is_none() && shape.is_none() && window.is_none()) {
    if (std::optional<PyTensor> made = of_numpy(buffer, name.c_str())) return *made;
    if (std::optional<PyTensor> made = of_torch(buffer, name.c_str())) return *made;
  }
  const auto found = py::module_::import("switchyard.tensor")
                         .attr("describe")(buffer, dtype, shape, window, window_offset, name)
                         .cast<py::tuple>();
  const auto kind = DType(found[1].cast<int>());
  const auto sizes = found[2].cast<std::vector<size_t>>();
  if (py::isinstance<PyTensor>(found[0])) {  // another view of a tensor
    auto given = found[0].cast<PyTensor>();
    given.tensor.dtype = kind;
    return reshape(given, sizes, name);
  }
  if (!window.is_none()) {
    return of_memory(found[0].cast<const PyMemory&>(), window, found[3].cast<uint64_t>(), kind, sizes, name);
  }
  return {describe(reinterpret_cast<void*>(found[0].cast<uintptr_t>()), kind, sizes, name), found[3],
          found[4].cast<bool>(), found[5].cast<std::optional<DeviceId>>()};
}

// Of whatever a caller gave, without the choices that Tensor() offers. As often as not it is a Tensor already.
py::object as_tensor(const py::object& value, const char* name) {
  if (py::isinstance<PyTensor>(value)) return value;
  if (std::optional<PyTensor> made = of_numpy(value, name)) return py::cast(std::move(*made));
  if (std::optional<PyTensor> made = of_torch(value, name)) return py::cast(std::move(*made));
  return py::cast(make_tensor(value, py::none(), py::none(), py::none(), py::none(), name));
}

}  // namespace

void bind_tensor(py::module_& module) {
  // pybind11 looks for NumPy's functions the first time it needs one, behind a lock that it keeps while the import lets
  // go of the GIL (NumPy 2): two threads would wait for each other. So it does that now.
  static_cast<void>(py::detail::npy_api::get());
  py::dict names;
  py::dict sizes;
  for (int code = 0; dtype_bytes(DType(code)) != 0; ++code) {
    names[dtype_name(DType(code))] = code;
    sizes[dtype_name(DType(code))] = dtype_bytes(DType(code));
  }
  module.attr("DTYPE_CODES") = names;
  module.attr("DTYPE_BYTES") = sizes;

  py::class_<PyTensor>(
      module, "Tensor",
      "Memory with a type and a shape: a NumPy array, a torch tensor, anything with DLPack or an array interface,\n"
      "an address with dtype and shape, or a place in a window. Copies nothing and keeps its buffer alive.\n\n"
      ">>> import numpy, switchyard\n"
      ">>> switchyard.Tensor(numpy.zeros((4, 8), numpy.float32))\n"
      "Tensor([4, 8] float32)\n"
      ">>> switchyard.Tensor(numpy.zeros((4, 8), numpy.uint16), dtype='bfloat16').dtype\n"
      "'bfloat16'\n")
      .def(py::init(&make_tensor), py::arg("buffer"), py::kw_only(), py::arg("dtype") = py::none(),
           py::arg("shape") = py::none(), py::arg("window") = py::none(), py::arg("window_offset") = 0,
           py::arg("name") = "tensor")
      .def_property_readonly("dtype", [](const PyTensor& self) { return dtype_name(self.tensor.dtype); })
      .def_property_readonly("shape",
                             [](const PyTensor& self) {
                               py::tuple shape(self.tensor.num_dims);
                               for (int i = 0; i < self.tensor.num_dims; ++i)
                                 shape[size_t(i)] = self.tensor.sizes[size_t(i)];
                               return shape;
                             })
      .def_property_readonly("data_ptr",
                             [](const PyTensor& self) { return reinterpret_cast<uintptr_t>(self.tensor.data); })
      .def_property_readonly("buffer", [](const PyTensor& self) { return self.owner; })
      .def("reshape", &reshape, py::arg("shape"), py::arg("name") = "tensor")
      .def_readonly("writable", &PyTensor::writable)
      .def_readonly("device", &PyTensor::device)
      .def("__repr__", [](const PyTensor& self) { return "Tensor(" + self.tensor.shape_text() + ")"; });
  module.def("as_tensor", &as_tensor);
  module.attr("ABSENT") = PyTensor{};
}

}  // namespace switchyard::python
