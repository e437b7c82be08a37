// switchyard/comm.hpp: communicators, symmetric memory, streams.
#include "switchyard/comm.hpp"

#include <pthread.h>

#include <cstring>

#include "binding.hpp"

namespace switchyard::python {

void PyHostStream::hold(std::vector<py::object> objects) {
  release_finished();
  held_.push_back({stream_->num_posted(), std::move(objects)});
}

void PyHostStream::release_finished() {
  const uint64_t completed = stream_->num_completed();
  while (!held_.empty() && held_.front().num_posted <= completed) {
    const Held finished = std::move(held_.front());  // off the list first: what goes may run Python code
    held_.pop_front();
  }
}

namespace {

// Calls wait(nanoseconds) until it returns true, and between the calls lets Python's signal handlers run.
template <class Wait>
void wait_in_slices(std::optional<double> timeout_s, const Wait& wait, const std::function<std::string()>& missing) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (;;) {
    auto slice = std::chrono::duration_cast<std::chrono::nanoseconds>(kSlice);
    if (timeout_s) {
      const std::chrono::duration<double> left(*timeout_s -
                                               std::chrono::duration<double>(Clock::now() - begin).count());
      if (left.count() <= 0) throw TimedOut(text(missing(), " within ", *timeout_s, " s"));
      slice = std::min(slice, std::chrono::duration_cast<std::chrono::nanoseconds>(left) + std::chrono::nanoseconds(1));
    }
    bool done = false;
    {
      const Released released;
      done = wait(uint64_t(slice.count()));
    }
    check_signals();
    if (done) return;
  }
}

}  // namespace

void PyHostStream::wait_until_completed(uint64_t goal, std::optional<double> timeout_s) {
  const std::shared_ptr<HostStream> shared = stream_.share();
  HostStream& stream = *shared;
  if (stream.num_completed() >= goal) return;
  // Until everything has run, or for a millisecond: room may be there earlier.
  const uint64_t most_ns = goal < stream.num_posted() ? 1'000'000 : ~uint64_t{0};
  const auto wait = [&](uint64_t timeout_ns) {
    stream.wait_for(std::min(timeout_ns, most_ns));
    return stream.num_completed() >= goal;
  };
  const auto missing = [&] { return text(goal - stream.num_completed(), " of the stream's tasks have not run"); };
  wait_in_slices(timeout_s, wait, missing);
}

void PyHostStream::make_room() {
  constexpr uint64_t kTasks = 8;  // more than an operation has
  const uint64_t posted = stream_->num_posted();
  if (posted + kTasks > HostStream::kCapacity) wait_until_completed(posted + kTasks - HostStream::kCapacity, {});
}

void PyHostStream::synchronize(std::optional<double> timeout_s) {
  const std::shared_ptr<HostStream> shared = stream_.share();
  wait_until_completed(shared->num_posted(), timeout_s);
  if (!stream_.closed()) release_finished();  // another thread may have closed it meanwhile
  if (const Status failed = shared->take_error(); !failed.ok()) throw Error(failed);
}

void PyHostStream::close() {
  if (!idle()) wait_until_completed(stream_->num_posted(), {});
  {
    const Released released;
    stream_.reset();
  }
  held_.clear();
}

void PyCudaStream::synchronize(std::optional<double> timeout_s) {
  wait_in_slices(
      timeout_s, [&](uint64_t timeout_ns) { return comm_->wait_for(stream_, timeout_ns); },
      [] { return std::string("the CUDA stream has not finished"); });
}

namespace {

// Made on another thread; streams of this one are its, too.
PyComm joined(std::unique_ptr<Comm> comm) {
  comm->claim_thread();
  return PyComm("communicator", std::move(comm));
}

PyComm from_environment(DeviceId device) {
  return joined(interruptible([=] { return std::make_unique<Comm>(Comm::from_environment(device)); }, {}));
}

PyComm from_store(const std::string& store, int rank, int num_ranks, const std::string& job_key, DeviceId device) {
  const auto join = [=] { return std::make_unique<Comm>(Comm::from_store(store, rank, num_ranks, job_key, device)); };
  return joined(interruptible(join, {}));
}

PyComm from_unique_id(const py::bytes& unique_id, int rank, int num_ranks, DeviceId device) {
  const std::string text_of_id = unique_id;
  UniqueIdBytes id;
  if (text_of_id.size() != id.size()) {
    throw Error(Status::invalid_argument(text("unique_id has ", text_of_id.size(), " bytes, must have ", id.size())));
  }
  std::memcpy(id.data(), text_of_id.data(), id.size());
  return joined(interruptible([=] { return std::make_unique<Comm>(id, rank, num_ranks, device); }, {}));
}

PyComm split(const PyComm& comm, int color, int key) {
  auto made = interruptible([=, shared = comm.share()] { return std::make_unique<Comm>(shared->split(color, key)); },
                            aborting(comm));
  return PyComm("communicator", std::move(made));
}

}  // namespace

void bind_comm(py::module_& module) {
  pthread_atfork(nullptr, nullptr, [] { ++g_num_forks; });
  module.def("num_without_gil", &Released::num_now);
  module.def("make_unique_id", [] {
    const UniqueIdBytes id = make_unique_id();
    return py::bytes(reinterpret_cast<const char*>(id.data()), id.size());
  });

  py::enum_<DeviceKind>(module, "DeviceKind").value("HOST", DeviceKind::kHost).value("CUDA", DeviceKind::kCuda);
  py::class_<DeviceId>(module, "DeviceId")
      .def(py::init<DeviceKind, int>())
      .def_readonly("kind", &DeviceId::kind)
      .def_readonly("ordinal", &DeviceId::ordinal)
      .def("__repr__", [](const DeviceId& self) {
        if (self.kind == DeviceKind::kHost) return std::string("cpu");
        return self.ordinal == kAnyGpu ? std::string("cuda") : text("cuda:", self.ordinal);
      });

  py::class_<PyComm>(module, "Comm")
      .def_static("from_environment", &from_environment)
      .def_static("from_store", &from_store)
      .def_static("from_unique_id", &from_unique_id)
      .def_property_readonly("rank", [](const PyComm& self) { return self->rank(); })
      .def_property_readonly("num_ranks", [](const PyComm& self) { return self->num_ranks(); })
      .def_property_readonly("num_nodes", [](const PyComm& self) { return self->num_nodes(); })
      .def_property_readonly("device", [](const PyComm& self) { return self->device(); })
      .def("split", &split)
      .def("barrier",
           [](const PyComm& self) { interruptible([shared = self.share()] { shared->barrier(); }, aborting(self)); })
      .def(
          "abort", [](const PyComm& self, const std::string& reason) { self->abort(reason); },
          py::call_guard<Released>())
      .def("check_async_error", [](const PyComm& self) { self->check_async_error(); })
      .def("close", &PyComm::reset, py::call_guard<Released>());

  py::class_<PyMemory>(module, "SymmetricMemory", py::buffer_protocol())
      .def(py::init([](const PyComm& comm, size_t num_bytes) {
        auto made =
            interruptible([=, shared = comm.share()] { return std::make_unique<SymmetricMemory>(*shared, num_bytes); },
                          aborting(comm));
        return PyMemory("memory", std::move(made), comm.share());
      }))
      .def_static("closed", [] { return PyMemory("memory", nullptr); })
      .def_property_readonly("size", [](const PyMemory& self) { return self->size(); })
      .def_property_readonly("data_ptr", [](const PyMemory& self) { return reinterpret_cast<uintptr_t>(self->data()); })
      .def_buffer([](const PyMemory& self) {
        if (self->device().kind != DeviceKind::kHost) throw py::buffer_error("memory of a GPU, which the host can't read");
        return py::buffer_info(static_cast<uint8_t*>(self->data()), py::ssize_t(self->size()));
      });

  py::class_<PyStream>(module, "Stream")
      .def("synchronize", &PyStream::synchronize, py::arg("timeout") = py::none())
      .def_property_readonly("idle", &PyStream::idle)
      .def("close", &PyStream::close);
  py::class_<PyHostStream, PyStream>(module, "HostStream").def(py::init<>());
  py::class_<PyCudaStream, PyStream>(module, "CudaStream").def(py::init<const PyComm&, uintptr_t>());
}

}  // namespace switchyard::python
