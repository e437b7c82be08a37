// switchyard/ep.hpp: groups and handles.
#include "switchyard/ep.hpp"

#include "binding.hpp"

namespace switchyard::python {
namespace {

using namespace ep;  // NOLINT: the file gives Python names to this namespace
using PyGroup = Owned<EpGroup>;
// Or no tensor: `ABSENT`. (None would do, but pybind11 searches long before it takes None for a pointer.)
using MaybeTensor = const PyTensor&;
using Objects = std::vector<py::object>;

// The tensors of one call: all of the communicator's device, their owners kept for as long as it runs.
class Arguments {
 public:
  explicit Arguments(DeviceId device, Objects used) : device_(device), used_(std::move(used)) {}

  Tensor input(const char* name, MaybeTensor given) {
    expect_on(device_, given, name);
    if (given.tensor.present()) used_.push_back(given.owner);
    return given.tensor;
  }
  Tensor output(const char* name, MaybeTensor given) {
    if (!given.writable) throw Error(Status::invalid_argument(text(name, " is read-only")));
    return input(name, given);
  }
  LayoutInfo info(MaybeTensor expert_counters, MaybeTensor src_rank_counters, MaybeTensor expert_offsets,
                  MaybeTensor recv_total_counter, int id_kind) {
    LayoutInfo info;
    info.expert_counters = output("layout_info.expert_counters", expert_counters);
    info.src_rank_counters = output("layout_info.src_rank_counters", src_rank_counters);
    info.expert_offsets = output("layout_info.expert_offsets", expert_offsets);
    info.recv_total_counter = output("layout_info.recv_total_counter", recv_total_counter);
    info.id_kind = IdKind(id_kind);
    return info;
  }
  Objects take_used() { return std::move(used_); }

 private:
  DeviceId device_;
  Objects used_;
};

// A handle, and the Python objects whose memory it uses between calls.
class PyHandle {
 public:
  PyHandle(const PyComm& comm, const PyGroup& group, int layout, int topk, size_t expert_alignment, MaybeTensor memory)
      : device_(comm->device()), end_early_(aborting(comm)), eager_(group->is_eager()), memory_(memory.owner) {
    HandleConfig config;
    config.expert_alignment = expert_alignment;
    if (const Tensor& given = memory.tensor; given.present()) {
      if (given.num_dims != 1 || given.dtype != DType::kUint8 || !memory.writable) {
        throw Error(
            Status::invalid_argument(text("memory is ", given.shape_text(), ", must be [bytes] uint8 and writable")));
      }
      config.memory = given.data;
      config.num_memory_bytes = given.sizes[0];
    }
    const auto make = [=, shared = group.share()] {
      return std::make_unique<EpHandle>(*shared, Layout(layout), topk, config);
    };
    handle_.emplace("handle", interruptible(make, aborting(comm)), group.share());
  }

  void update(const PyTensor& topk_idx, MaybeTensor expert_counters, MaybeTensor src_rank_counters,
              MaybeTensor expert_offsets, MaybeTensor recv_total_counter, int id_kind, PyStream& stream) {
    Arguments arguments(device_, {memory_});
    const Tensor indices = arguments.input("topk_idx", topk_idx);
    const LayoutInfo info =
        arguments.info(expert_counters, src_rank_counters, expert_offsets, recv_total_counter, id_kind);
    post(stream, [&](EpHandle& handle, StreamRef target) { handle.update(indices, info, target); });
    stream.hold(arguments.take_used());
    topk_idx_ = topk_idx.owner;  // low latency posts nothing, and reads the indices when it dispatches and combines
  }

  void dispatch(MaybeTensor tokens, MaybeTensor topk_weights, MaybeTensor scales, MaybeTensor out_tokens,
                MaybeTensor out_topk_weights, MaybeTensor out_scales, MaybeTensor out_topk_idx, bool has_layout_info,
                MaybeTensor expert_counters, MaybeTensor src_rank_counters, MaybeTensor expert_offsets,
                MaybeTensor recv_total_counter, int id_kind, bool send_only, bool round_scales, int direction,
                int quant, PyStream& stream) {
    Arguments arguments(device_, {topk_idx_, memory_});
    DispatchArgs args;
    args.tokens = arguments.input("inputs.tokens", tokens);
    args.topk_weights = arguments.input("inputs.topk_weights", topk_weights);
    args.scales = arguments.input("inputs.scales", scales);
    args.out_tokens = arguments.output("outputs.tokens", out_tokens);
    args.out_topk_weights = arguments.output("outputs.topk_weights", out_topk_weights);
    args.out_scales = arguments.output("outputs.scales", out_scales);
    args.out_topk_idx = arguments.output("outputs.topk_idx", out_topk_idx);
    args.has_layout_info = has_layout_info;
    args.layout_info =
        arguments.info(expert_counters, src_rank_counters, expert_offsets, recv_total_counter, id_kind);
    args.send_only = send_only;
    args.round_scales = round_scales;
    args.direction = PassDirection(direction);
    args.quant = DispatchQuant(quant);
    if (eager_) stream.synchronize({});  // the library would wait for the plan, too, but not look for signals
    post(stream, [&](EpHandle& handle, StreamRef target) { handle.dispatch(args, target); });
    keep(stream, arguments.take_used(), send_only);
  }

  void combine(MaybeTensor tokens, MaybeTensor topk_weights, MaybeTensor scales, MaybeTensor out_tokens,
               MaybeTensor out_topk_weights, bool send_only, int direction, int quant, PyStream& stream) {
    Arguments arguments(device_, {topk_idx_, memory_});
    CombineArgs args;
    args.tokens = arguments.input("inputs.tokens", tokens);
    args.topk_weights = arguments.input("inputs.topk_weights", topk_weights);
    args.scales = arguments.input("inputs.scales", scales);
    args.out_tokens = arguments.output("outputs.tokens", out_tokens);
    args.direction = PassDirection(direction);
    // A backward combine writes it; a low-latency one reads its weights there.
    args.out_topk_weights = args.direction == PassDirection::kBackward
                                ? arguments.output("outputs.topk_weights", out_topk_weights)
                                : arguments.input("outputs.topk_weights", out_topk_weights);
    args.send_only = send_only;
    args.quant = CombineQuant(quant);
    if (eager_) stream.synchronize({});
    post(stream, [&](EpHandle& handle, StreamRef target) { handle.combine(args, target); });
    keep(stream, arguments.take_used(), send_only);
  }

  void complete(PyStream& stream) {
    post(stream, [&](EpHandle& handle, StreamRef target) { handle.complete(target); });
    if (staged_.empty()) return;
    stream.hold(std::move(staged_.front()));
    staged_.pop_front();
  }

  // Nanoseconds of each of num_rounds low-latency round trips, dispatch to combined tokens, without Python: what python
  // -m switchyard.overhead compares its own with.
  std::vector<int64_t> time_round_trips(const PyTensor& tokens, const PyTensor& rows, const PyTensor& expert_counters,
                                        const PyTensor& out, const PyTensor& topk_weights, int num_rounds,
                                        PyHostStream& stream) {
    DispatchArgs dispatch;
    dispatch.tokens = tokens.tensor;
    dispatch.out_tokens = rows.tensor;
    dispatch.has_layout_info = true;
    dispatch.layout_info.expert_counters = expert_counters.tensor;
    CombineArgs combine;
    combine.tokens = rows.tensor;
    combine.out_tokens = out.tensor;
    combine.out_topk_weights = topk_weights.tensor;
    std::vector<int64_t> times;
    HostStream& target = *stream.share();
    post(stream, [&](EpHandle& handle, StreamRef) {
      for (int round = 0; round < num_rounds; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        handle.dispatch(dispatch, target);
        target.synchronize();
        handle.combine(combine, target);
        target.synchronize();
        times.push_back((std::chrono::steady_clock::now() - begin) / std::chrono::nanoseconds(1));
      }
    });
    return times;
  }

  // BLOCKING  where half of a staged operation is dropped, while operations of the group are running.
  void close() {
    if (!handle_->closed()) {
      const auto last = std::make_shared<std::shared_ptr<EpHandle>>(handle_->share());
      handle_->reset();
      interruptible([last] { last->reset(); }, end_early_);
    }
    topk_idx_ = memory_ = py::none();
    staged_.clear();
  }

 private:
  template <class Call>
  void post(PyStream& stream, Call call) {
    stream.make_room();
    const std::shared_ptr<EpHandle> handle = handle_->share();
    const PyStream::Target target = stream.target();
    const Released released;
    call(*handle, target.stream);
  }
  // Of a staged operation both halves use the tensors; the second is posted by complete().
  void keep(PyStream& stream, Objects used, bool staged) {
    if (staged) staged_.push_back(used);
    stream.hold(std::move(used));
  }

  const DeviceId device_;
  const std::function<void()> end_early_;
  const bool eager_;
  py::object memory_;
  py::object topk_idx_ = py::none();
  std::deque<Objects> staged_;  // at most as many as the library has open; high throughput stages nothing
  std::optional<Owned<EpHandle>> handle_;
};

// What every batch of an MoE has to be, and where.
struct PyBatchShape {
  BatchShape shape;
  DeviceId device;
};

// All that can be wrong with a batch, before anything of it is posted.
void check(const PyTensor& x, const PyTensor& topk_idx, const PyTensor& topk_weights, const PyBatchShape& batch) {
  expect_on(batch.device, x, "x");
  expect_on(batch.device, topk_idx, "topk_idx");
  expect_on(batch.device, topk_weights, "topk_weights");
  check_batch(x.tensor, topk_idx.tensor, topk_weights.tensor, batch.shape);
  if (batch.device.kind == DeviceKind::kHost) check_indices(topk_idx.tensor, batch.shape.num_experts);
}

PyGroup make_group(const PyComm& comm, int algorithm, uint32_t num_experts, uint32_t max_dispatch_tokens_per_rank,
                   uint32_t max_recv_tokens_per_rank, uint32_t max_token_bytes, uint64_t rdma_buffer_size,
                   uint32_t num_topk, bool enable_mask, uint64_t timeout_ns, int zero_copy, int overflow_policy) {
  GroupConfig config;
  config.algorithm = Algorithm(algorithm);
  config.num_experts = num_experts;
  config.max_tokens_per_rank = max_dispatch_tokens_per_rank;
  config.max_recv_tokens_per_rank = max_recv_tokens_per_rank;
  config.max_token_bytes = max_token_bytes;
  config.buffer_bytes = rdma_buffer_size;
  config.num_topk = num_topk;
  config.enable_mask = enable_mask;
  config.timeout_ns = timeout_ns;
  config.zero_copy = ZeroCopy(zero_copy);
  config.overflow = Overflow(overflow_policy);
  auto made =
      interruptible([=, shared = comm.share()] { return std::make_unique<EpGroup>(*shared, config); }, aborting(comm));
  return PyGroup("group", std::move(made), comm.share());
}

int32_t* mask_of(const PyTensor& mask, int num_ranks) {
  const Tensor& given = mask.tensor;
  if (given.num_dims != 1 || given.dtype != DType::kInt32 || given.sizes[0] != size_t(num_ranks)) {
    throw Error(Status::invalid_argument(text("mask is ", given.shape_text(), ", must be [", num_ranks, "] int32")));
  }
  return static_cast<int32_t*>(given.data);
}

}  // namespace

void bind_ep(py::module_& module) {
  py::class_<PyGroup>(module, "Group")
      .def(py::init(&make_group))
      .def_property_readonly("local_experts", [](const PyGroup& self) { return self->local_experts(); })
      .def_property_readonly("rows_per_expert", [](const PyGroup& self) { return self->rows_per_expert(); })
      .def_property_readonly("memory_bytes", [](const PyGroup& self) { return self->memory_bytes(); })
      .def("handle_memory_bytes", [](const PyGroup& self, int layout,
                                     int topk) { return EpHandle::memory_bytes(*self.share(), Layout(layout), topk); })
      .def("mask_query",
           [](const PyGroup& self, const PyTensor& mask, int num_ranks, PyStream& stream) {
             self->mask_query(mask_of(mask, num_ranks), stream.target().stream);
             stream.hold({mask.owner});
           })
      .def("mask_update", [](const PyGroup& self, const PyTensor& mask, int num_ranks,
                             PyStream& stream) { self->mask_update(mask_of(mask, num_ranks), stream.target().stream); })
      .def("mask_clean",
           [](const PyGroup& self, const PyComm& comm, PyStream& stream) {
             interruptible([group = self.share(), target = stream.target()] { group->mask_clean(target.stream); },
                           aborting(comm));
           })
      .def("async_error", [](const PyGroup& self) { return self->async_error(); })
      .def("error_clear", [](const PyGroup& self) { self->error_clear(); })
      .def("close",
           [](PyGroup& self, const PyComm& comm) {
             if (self.closed()) return;
             interruptible([group = self.share()] { group->close(); }, aborting(comm));
           })
      .def("forget", &PyGroup::reset, py::call_guard<Released>());

  py::class_<PyHandle>(module, "Handle")
      .def(py::init<const PyComm&, const PyGroup&, int, int, size_t, MaybeTensor>())
      .def("update", &PyHandle::update)
      .def("dispatch", &PyHandle::dispatch)
      .def("combine", &PyHandle::combine)
      .def("complete", &PyHandle::complete)
      .def("time_round_trips", &PyHandle::time_round_trips)
      .def("close", &PyHandle::close);

  py::class_<PyBatchShape>(module, "BatchShape")
      .def(py::init([](size_t max_tokens, size_t hidden, size_t topk, int num_experts, int dtype, DeviceId device) {
        return PyBatchShape{{max_tokens, hidden, topk, num_experts, DType(dtype)}, device};
      }));
  module.def("check_batch", &check);
  module.def("weigh_rows", [](const PyTensor& tokens, const PyTensor& weights, const PyTensor& out) {
    expect_on(DeviceKind::kHost, tokens, "expert_out");
    const Released released;
    weigh_rows(tokens.tensor, weights.tensor, out.tensor);
  });
}

}  // namespace switchyard::python
