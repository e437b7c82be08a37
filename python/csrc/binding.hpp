// What the files of the binding share: who owns native objects, how tensors are kept while operations use them, and how
// a wait lets Python go on. The binding converts, releases the GIL and translates errors; what is allowed is the
// library's to say.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "switchyard/coll.hpp"
#include "switchyard/ep.hpp"

namespace switchyard::python {

namespace py = pybind11;

// One for each C++ header.
void bind_status(py::module_& module);
void bind_tensor(py::module_& module);
void bind_comm(py::module_& module);
void bind_coll(py::module_& module);
void bind_ep(py::module_& module);

// A wait that ended before what it waited for: switchyard.TimeoutError.
struct TimedOut : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How often this process is the child of a fork() since the module was loaded; bind_comm() counts. (getpid() would
// tell, too, but is a system call, and every operation asks.)
inline int g_num_forks = 0;

// A native object that Python closes, and what must outlive it. Who uses it without the GIL shares it, so that another
// thread that closes it meanwhile takes nothing away. A forked child has none of its threads: there it is left alone.
template <class T>
class Owned {
 public:
  Owned(std::string name, std::unique_ptr<T> value, std::shared_ptr<const void> outlived_by = nullptr)
      : name_(std::move(name)), value_(value.release(), [outlived_by](T* gone) { delete gone; }) {}
  Owned(Owned&&) noexcept = default;
  ~Owned() { reset(); }

  const std::shared_ptr<T>& share() const {
    if (value_ == nullptr) throw Error(Status::invalid_usage("the " + name_ + " is closed"));
    if (g_num_forks == num_forks_) return value_;
    throw Error(Status::invalid_usage("the " + name_ + " was made before fork(), in the parent"));
  }
  T* operator->() const { return share().get(); }
  bool closed() const { return value_ == nullptr; }
  void reset() {
    if (g_num_forks != num_forks_) static_cast<void>(new std::shared_ptr<T>(std::move(value_)));
    value_.reset();
  }

 private:
  std::string name_;
  std::shared_ptr<T> value_;
  int num_forks_ = g_num_forks;
};

// Lets other threads of Python run, and counts those who do without: the end of the program waits for them, because a
// thread that comes back to a Python that is going can't end well.
class Released {
 public:
  static int num_now() { return s_num_now.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<int> s_num_now{0};
  struct Counted {
    Counted() { s_num_now.fetch_add(1, std::memory_order_relaxed); }
    ~Counted() { s_num_now.fetch_sub(1, std::memory_order_relaxed); }
  };
  const Counted counted_;  // until the GIL is back
  const py::gil_scoped_release released_;
};

// Python's signal handlers run when a wait gives Python this often a chance.
constexpr std::chrono::milliseconds kSlice{50};

// Throws what a signal handler raised: KeyboardInterrupt, as a rule. REQUIRES  the GIL.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Runs a blocking call on a thread of its own, and meanwhile looks for signals here. When a handler raises, end_early()
// makes the call return; without one the call is left to its own deadline, and what it makes is thrown away.
template <class Call>
auto interruptible(Call call, const std::function<void()>& end_early) -> decltype(call()) {
  auto task = std::make_shared<std::packaged_task<decltype(call())()>>(std::move(call));
  auto result = task->get_future();
  std::thread worker([task = std::move(task)] { (*task)(); });
  for (;;) {
    {
      const Released released;
      if (result.wait_for(kSlice) == std::future_status::ready) {
        worker.join();
        break;
      }
    }
    if (PyErr_CheckSignals() == 0) continue;
    py::error_already_set raised;
    if (end_early) {
      const Released released;
      end_early();
      worker.join();
    } else {
      worker.detach();
    }
    throw raised;
  }
  return result.get();
}

using PyComm = Owned<Comm>;
using PyMemory = Owned<SymmetricMemory>;

// A tensor and what keeps its memory alive.
struct PyTensor {
  ep::Tensor tensor;
  py::object owner = py::none();
  bool writable = true;
  std::optional<DeviceId> device{};  // none: nobody said
};

// The ordinal of a GPU that nobody named.
constexpr int kAnyGpu = -1;

inline std::string memory_of(DeviceId device) {
  if (device.kind == DeviceKind::kHost) return "the host's memory";
  return device.ordinal == kAnyGpu ? "a GPU's memory" : text("the memory of GPU ", device.ordinal);
}

// Refuses memory of another device than the communicator's, which its kernels could not touch.
inline void expect_on(DeviceId device, const PyTensor& tensor, const char* name) {
  if (!tensor.device || *tensor.device == device) return;
  const bool either_gpu = tensor.device->ordinal == kAnyGpu || device.ordinal == kAnyGpu;
  if (tensor.device->kind == device.kind && (either_gpu || device.kind == DeviceKind::kHost)) return;
  throw Error(Status::invalid_argument(text(name, " is in ", memory_of(*tensor.device), ", this communicator needs ",
                                            memory_of(device), " (init(device=...))")));
}
inline void expect_on(DeviceKind device, const PyTensor& tensor, const char* name) {
  expect_on(DeviceId{device, kAnyGpu}, tensor, name);
}

// Where operations are queued.
class PyStream {
 public:
  virtual ~PyStream() = default;
  // The stream, and what keeps it while others use it without the GIL.
  struct Target {
    StreamRef stream;
    std::shared_ptr<const void> alive;
  };
  virtual Target target() const = 0;
  // BLOCKING  until an operation can be posted without waiting.
  virtual void make_room() = 0;
  // The objects stay alive until everything posted so far has run. REQUIRES  the GIL.
  virtual void hold(std::vector<py::object> objects) = 0;
  // BLOCKING  until everything posted so far has run; throws what failed since the last time. No limit: operations have
  // their own.
  virtual void synchronize(std::optional<double> timeout_s) = 0;
  virtual bool idle() const = 0;
  // BLOCKING  until it is idle.
  virtual void close() = 0;
};

// The library's own, on CPUs.
class PyHostStream final : public PyStream {
 public:
  PyHostStream() : stream_("stream", std::make_unique<HostStream>()) {}

  const std::shared_ptr<HostStream>& share() const { return stream_.share(); }
  Target target() const override { return {*share(), share()}; }
  void make_room() override;
  void hold(std::vector<py::object> objects) override;
  void synchronize(std::optional<double> timeout_s) override;
  bool idle() const override { return stream_.closed() || stream_->num_completed() == stream_->num_posted(); }
  void close() override;

 private:
  void wait_until_completed(uint64_t goal, std::optional<double> timeout_s);
  void release_finished();

  struct Held {
    uint64_t num_posted;
    std::vector<py::object> objects;
  };
  Owned<HostStream> stream_;
  std::deque<Held> held_;
};

// One of CUDA that the caller has. Who frees a tensor gives its memory to later work of the stream it was made on, as
// everywhere with CUDA: so nothing is held.
class PyCudaStream final : public PyStream {
 public:
  PyCudaStream(const PyComm& comm, uintptr_t stream)
      : comm_(comm.share()), stream_{reinterpret_cast<void*>(stream)} {}  // NOLINT: a handle's number

  Target target() const override { return {stream_, nullptr}; }
  void make_room() override {}  // CUDA's own queue
  void hold(std::vector<py::object> /*objects*/) override {}
  void synchronize(std::optional<double> timeout_s) override;
  bool idle() const override { return comm_->wait_for(stream_, 0); }
  void close() override {}

 private:
  std::shared_ptr<Comm> comm_;
  StreamRef stream_;
};

// End a wait of this communicator: what else would, the user no longer wants to wait for.
inline std::function<void()> aborting(const PyComm& comm) {
  return [shared = comm.share()] { shared->abort("interrupted by a signal"); };
}

}  // namespace switchyard::python
