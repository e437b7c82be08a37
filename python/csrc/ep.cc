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

Tensor input(MaybeTensor given, Objects& used) {
  if (given.tensor.present()) used.push_back(given.owner);
  return given.tensor;
}

Tensor output(const char* name, MaybeTensor given, Objects& used) {
  if (!given.writable) throw Error(Status::invalid_argument(text(name, " is read-only")));
  return input(given, used);
}

LayoutInfo read_info(MaybeTensor expert_counters, MaybeTensor src_rank_counters, MaybeTensor expert_offsets,
                     MaybeTensor recv_total_counter, int id_kind, Objects& used) {
  LayoutInfo info;
  info.expert_counters = output("layout_info.expert_counters", expert_counters, used);
  info.src_rank_counters = output("layout_info.src_rank_counters", src_rank_counters, used);
  info.expert_offsets = output("layout_info.expert_offsets", expert_offsets, used);
  info.recv_total_counter = output("layout_info.recv_total_counter", recv_total_counter, used);
  info.id_kind = IdKind(id_kind);
  return info;
}

// A handle, and the Python objects whose memory it uses between calls.
class PyHandle {
 public:
  PyHandle(const PyComm& comm, const PyGroup& group, int layout, int topk, size_t expert_alignment, MaybeTensor memory)
      : eager_(group->is_eager()), memory_(memory.owner) {
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
    Objects used{topk_idx.owner, memory_};
    const LayoutInfo info =
        read_info(expert_counters, src_rank_counters, expert_offsets, recv_total_counter, id_kind, used);
    const uint64_t num_posted = stream->num_posted();
    post(stream, [&](EpHandle& handle, HostStream& target) { handle.update(topk_idx.tensor, info, target); });
    if (stream->num_posted() != num_posted) stream.hold(std::move(used));
    topk_idx_ = topk_idx.owner;  // low latency posts nothing, and reads the indices when it dispatches and combines
  }

  void dispatch(MaybeTensor tokens, MaybeTensor topk_weights, MaybeTensor scales, MaybeTensor out_tokens,
                MaybeTensor out_topk_weights, MaybeTensor out_scales, MaybeTensor out_topk_idx, bool has_layout_info,
                MaybeTensor expert_counters, MaybeTensor src_rank_counters, MaybeTensor expert_offsets,
                MaybeTensor recv_total_counter, int id_kind, bool send_only, bool round_scales, int direction,
                int quant, PyStream& stream) {
    Objects used{topk_idx_, memory_};
    DispatchArgs args;
    args.tokens = input(tokens, used);
    args.topk_weights = input(topk_weights, used);
    args.scales = input(scales, used);
    args.out_tokens = output("outputs.tokens", out_tokens, used);
    args.out_topk_weights = output("outputs.topk_weights", out_topk_weights, used);
    args.out_scales = output("outputs.scales", out_scales, used);
    args.out_topk_idx = output("outputs.topk_idx", out_topk_idx, used);
    args.has_layout_info = has_layout_info;
    args.layout_info = read_info(expert_counters, src_rank_counters, expert_offsets, recv_total_counter, id_kind, used);
    args.send_only = send_only;
    args.round_scales = round_scales;
    args.direction = PassDirection(direction);
    args.quant = DispatchQuant(quant);
    if (eager_) stream.synchronize({});  // the library would wait for the plan, too, but not look for signals
    post(stream, [&](EpHandle& handle, HostStream& target) { handle.dispatch(args, target); });
    keep(stream, std::move(used), send_only);
  }

  void combine(MaybeTensor tokens, MaybeTensor topk_weights, MaybeTensor scales, MaybeTensor out_tokens,
               MaybeTensor out_topk_weights, bool send_only, int direction, int quant, PyStream& stream) {
    Objects used{topk_idx_, memory_};
    CombineArgs args;
    args.tokens = input(tokens, used);
    args.topk_weights = input(topk_weights, used);
    args.scales = input(scales, used);
    args.out_tokens = output("outputs.tokens", out_tokens, used);
    args.direction = PassDirection(direction);
    // A backward combine writes it; a low-latency one reads its weights there.
    args.out_topk_weights = args.direction == PassDirection::kBackward
                                ? output("outputs.topk_weights", out_topk_weights, used)
                                : input(out_topk_weights, used);
    args.send_only = send_only;
    args.quant = CombineQuant(quant);
    if (eager_) stream.synchronize({});
    post(stream, [&](EpHandle& handle, HostStream& target) { handle.combine(args, target); });
    keep(stream, std::move(used), send_only);
  }

  void complete(PyStream& stream) {
    post(stream, [&](EpHandle& handle, HostStream& target) { handle.complete(target); });
    if (staged_.empty()) return;
    stream.hold(std::move(staged_.front()));
    staged_.pop_front();
  }

  // Nanoseconds of each of num_rounds low-latency round trips, dispatch to combined tokens, without Python: what python
  // -m switchyard.overhead compares its own with.
  std::vector<int64_t> time_round_trips(const PyTensor& tokens, const PyTensor& rows, const PyTensor& expert_counters,
                                        const PyTensor& out, const PyTensor& topk_weights, int num_rounds,
                                        PyStream& stream) {
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
    post(stream, [&](EpHandle& handle, HostStream& target) {
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

  // BLOCKING  while operations of the group are running.
  void close() {
    {
      const Released released;
      handle_->reset();
    }
    topk_idx_ = memory_ = py::none();
    staged_.clear();
  }

 private:
  template <class Call>
  void post(PyStream& stream, Call call) {
    const std::shared_ptr<EpHandle> handle = handle_->share();
    const std::shared_ptr<HostStream> target = stream.share();
    const Released released;
    call(*handle, *target);
  }
  // Of a staged operation both halves use the tensors; the second is posted by complete().
  void keep(PyStream& stream, Objects used, bool staged) {
    if (staged) staged_.push_back(used);
    stream.hold(std::move(used));
  }

  const bool eager_;
  py::object memory_;
  py::object topk_idx_ = py::none();
  std::deque<Objects> staged_;  // at most as many as the library has open; high throughput stages nothing
  std::optional<Owned<EpHandle>> handle_;
};

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
             self->mask_query(mask_of(mask, num_ranks), *stream.share());
             stream.hold({mask.owner});
           })
      .def("mask_update", [](const PyGroup& self, const PyTensor& mask, int num_ranks,
                             PyStream& stream) { self->mask_update(mask_of(mask, num_ranks), *stream.share()); })
      .def("mask_clean",
           [](const PyGroup& self, const PyComm& comm, PyStream& stream) {
             interruptible([group = self.share(), target = stream.share()] { group->mask_clean(*target); },
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

  py::class_<BatchShape>(module, "BatchShape")
      .def(py::init([](size_t max_tokens, size_t hidden, size_t topk, int num_experts, int dtype) {
        return BatchShape{max_tokens, hidden, topk, num_experts, DType(dtype)};
      }));
  module.def("check_batch",
             [](const PyTensor& x, const PyTensor& topk_idx, const PyTensor& topk_weights, const BatchShape& shape) {
               check_batch(x.tensor, topk_idx.tensor, topk_weights.tensor, shape);
             });
  module.def("weigh_rows", [](const PyTensor& tokens, const PyTensor& weights, const PyTensor& out) {
    const Released released;
    weigh_rows(tokens.tensor, weights.tensor, out.tensor);
  });
}

}  // namespace switchyard::python
