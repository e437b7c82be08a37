// switchyard/coll.hpp: collectives.
#include "switchyard/coll.hpp"

#include "binding.hpp"

namespace switchyard::python {
namespace {

using coll::CollGroup;
using coll::Part;
using coll::ReduceOp;
using PyColl = Owned<CollGroup>;
using Counts = std::vector<size_t>;

// Posts a call that uses two tensors.
template <class Call>
void post(const PyTensor& in, const PyTensor& out, PyStream& stream, Call call) {
  if (!out.writable) throw Error(Status::invalid_argument("out is read-only"));
  expect_on(DeviceKind::kHost, in, "x");  // collectives run on CPUs today
  expect_on(DeviceKind::kHost, out, "out");
  stream.make_room();
  {
    const PyStream::Target target = stream.target();
    const Released released;
    call(in.tensor.data, out.tensor.data, in.tensor.dtype, target.stream);
  }
  stream.hold({in.owner, out.owner});
}

std::vector<Part> side_by_side(const Counts& counts) {
  std::vector<Part> parts;
  size_t offset = 0;
  for (const size_t count : counts) {
    parts.push_back({offset, count});
    offset += count;
  }
  return parts;
}

}  // namespace

void bind_coll(py::module_& module) {
  py::class_<PyColl>(module, "Collectives")
      .def(py::init([](const PyComm& comm) {
        auto made =
            interruptible([shared = comm.share()] { return std::make_unique<CollGroup>(*shared); }, aborting(comm));
        return PyColl("communicator", std::move(made), comm.share());
      }))
      .def("all_gather",
           [](const PyColl& self, const PyTensor& in, const PyTensor& out, size_t num_elements, PyStream& stream) {
             post(in, out, stream, [&](const void* from, void* to, DType dtype, StreamRef target) {
               self->all_gather(from, to, num_elements, dtype, target);
             });
           })
      .def("all_reduce",
           [](const PyColl& self, const PyTensor& in, const PyTensor& out, size_t num_elements, int op,
              PyStream& stream) {
             post(in, out, stream, [&](const void* from, void* to, DType dtype, StreamRef target) {
               self->all_reduce(from, to, num_elements, dtype, ReduceOp(op), target);
             });
           })
      .def("reduce_scatter",
           [](const PyColl& self, const PyTensor& in, const PyTensor& out, size_t num_elements, int op,
              PyStream& stream) {
             post(in, out, stream, [&](const void* from, void* to, DType dtype, StreamRef target) {
               self->reduce_scatter(from, to, num_elements, dtype, ReduceOp(op), target);
             });
           })
      .def("broadcast",
           [](const PyColl& self, const PyTensor& in, const PyTensor& out, size_t num_elements, int root,
              PyStream& stream) {
             post(in, out, stream, [&](const void* from, void* to, DType dtype, StreamRef target) {
               self->broadcast(from, to, num_elements, dtype, root, target);
             });
           })
      .def("all_to_all",
           [](const PyColl& self, const PyTensor& in, const PyTensor& out, size_t num_elements, PyStream& stream) {
             post(in, out, stream, [&](const void* from, void* to, DType dtype, StreamRef target) {
               self->all_to_all(from, to, num_elements, dtype, target);
             });
           })
      .def("all_to_all_v",
           [](const PyColl& self, const PyTensor& in, const Counts& sent, const PyTensor& out, const Counts& received,
              PyStream& stream) {
             post(in, out, stream, [&](const void* from, void* to, DType dtype, StreamRef target) {
               self->all_to_all_v(from, side_by_side(sent), to, side_by_side(received), dtype, target);
             });
           })
      .def("close", &PyColl::reset);
}

}  // namespace switchyard::python
