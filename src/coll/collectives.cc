#include "coll/collectives.hpp"

#include "base/checked.hpp"
#include "base/log.hpp"
#include "platform/host/stream.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::coll {
namespace {

constexpr uint64_t kStageBytes = 1u << 20;

Status check(const void* in, const void* out, size_t num_elements, DType dtype) {
  if (dtype_bytes(dtype) == 0) return Status::invalid_argument(text("unknown datatype ", int(dtype)));
  if (num_elements > 0 && (in == nullptr || out == nullptr)) return Status::invalid_argument("a buffer is NULL");
  if (!checked_mul(num_elements, dtype_bytes(dtype))) return Status::invalid_argument("count is too large");
  return {};
}

Status check_reduction(DType dtype, ReduceOp op) {
  if (int(op) < int(ReduceOp::kSum) || int(op) > int(ReduceOp::kAvg)) {
    return Status::invalid_argument(text("unknown reduction ", int(op)));
  }
  if (dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2 || dtype == DType::kFloat4x2) {
    return Status::invalid_argument(text("reductions of ", dtype_name(dtype), " are not supported"));
  }
  return {};
}

// Reduces num_elements of the stage, beginning at stage_offset, to `out`.
void reduce_any(const HostPlatform& p, const LsaStage& stage, char* out, uint64_t stage_offset, uint64_t num_elements,
                DType dtype, ReduceOp op) {
  const auto same = [](auto value) { return value; };
  const auto plain = [&]<class T>(T) {
    reduce_piece<HostPlatform, T, T>(p, stage, out, stage_offset, num_elements, op, same, same);
  };
  const auto narrow = [&]<DType kType>() {
    using Codec = Element<kType>;
    reduce_piece<HostPlatform, uint16_t, float>(
        p, stage, out, stage_offset, num_elements, op, [](uint16_t bits) { return Codec::decode(bits); },
        [](float value) { return Codec::encode(value); });
  };
  switch (dtype) {
    case DType::kInt8: return plain(int8_t{});
    case DType::kUint8: return plain(uint8_t{});
    case DType::kInt32: return plain(int32_t{});
    case DType::kUint32: return plain(uint32_t{});
    case DType::kInt64: return plain(int64_t{});
    case DType::kUint64: return plain(uint64_t{});
    case DType::kFloat32: return plain(float{});
    case DType::kFloat64: return plain(double{});
    case DType::kBfloat16: return narrow.template operator()<DType::kBfloat16>();
    case DType::kFloat16: return narrow.template operator()<DType::kFloat16>();
    default: return;  // refused by check_reduction()
  }
}

}  // namespace

Result<std::unique_ptr<Collectives>> Collectives::create(Communicator& comm) {
  std::unique_ptr<Collectives> made(new Collectives(comm));
  if (comm.topology().num_nodes() > 1) return made;  // refused when used: a program may never ask for them
  SWITCHYARD_ASSIGN(made->stage_.comm, comm.create_device_comm({.num_barriers = 1}));
  SWITCHYARD_ASSIGN(made->memory_, comm.runtime().allocate(kStageBytes));
  SWITCHYARD_ASSIGN(made->window_, comm.register_window(made->memory_, kStageBytes));
  made->stage_.window = comm.view(*made->window_);
  made->stage_.num_bytes = kStageBytes;
  return made;
}

Collectives::~Collectives() {
  const auto warn = [](const Status& status) {
    if (!status.ok()) log(LogLevel::kWarn, status.to_string());
  };
  if (window_ != nullptr) warn(comm_.deregister_window(window_));
  if (memory_ != nullptr) warn(comm_.runtime().free(memory_));
}

template <class Kernel>
Status Collectives::post(StreamRef stream, Kernel kernel) {
  if (window_ == nullptr) return Status::invalid_usage("collectives of this version stay inside one node");
  return static_cast<Stream*>(stream.handle)->post([kernel, stage = stage_](Stream& self) {
    const BarrierResult result = kernel(HostPlatform{}, stage);
    if (result != BarrierResult::kOk) self.fail(Status::remote("a rank did not come to a collective operation in time"));
  });
}

Status Collectives::all_gather(const void* in, void* out, size_t num_elements, DType dtype, StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, num_elements, dtype));
  const uint64_t num_bytes = num_elements * dtype_bytes(dtype);
  return post(stream, [=](const HostPlatform& p, const LsaStage& stage) {
    return coll::all_gather(p, stage, static_cast<const char*>(in), static_cast<char*>(out), num_bytes);
  });
}

Status Collectives::broadcast(const void* in, void* out, size_t num_elements, DType dtype, int root, StreamRef stream) {
  if (root < 0 || root >= comm_.num_ranks()) {
    return Status::invalid_argument(text("root is ", root, ", allowed 0..", comm_.num_ranks() - 1));
  }
  SWITCHYARD_TRY(check(comm_.rank() == root ? in : out, out, num_elements, dtype));
  const uint64_t num_bytes = num_elements * dtype_bytes(dtype);
  return post(stream, [=](const HostPlatform& p, const LsaStage& stage) {
    return coll::broadcast(p, stage, static_cast<const char*>(in), static_cast<char*>(out), num_bytes, root);
  });
}

Status Collectives::all_reduce(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op,
                               StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, num_elements, dtype));
  SWITCHYARD_TRY(check_reduction(dtype, op));
  const uint64_t width = dtype_bytes(dtype);
  return post(stream, [=](const HostPlatform& p, const LsaStage& stage) {
    return in_pieces(p, stage, static_cast<const char*>(in), num_elements * width, [&](uint64_t offset, uint64_t piece) {
      reduce_any(p, stage, static_cast<char*>(out) + offset, 0, piece / width, dtype, op);
    });
  });
}

Status Collectives::reduce_scatter(const void* in, void* out, size_t num_elements, DType dtype, ReduceOp op,
                                   StreamRef stream) {
  SWITCHYARD_TRY(check(in, out, num_elements, dtype));
  SWITCHYARD_TRY(check_reduction(dtype, op));
  const uint64_t width = dtype_bytes(dtype);
  const int num_ranks = comm_.num_ranks();
  const int rank = comm_.rank();
  return post(stream, [=](const HostPlatform& p, const LsaStage& stage) {
    // Share by share: all stage the share of one rank, which reduces it.
    for (int owner = 0; owner < num_ranks; ++owner) {
      const char* share = static_cast<const char*>(in) + uint64_t(owner) * num_elements * width;
      const BarrierResult met = in_pieces(p, stage, share, num_elements * width, [&](uint64_t offset, uint64_t piece) {
        if (owner == rank) reduce_any(p, stage, static_cast<char*>(out) + offset, 0, piece / width, dtype, op);
      });
      if (met != BarrierResult::kOk) return met;
    }
    return BarrierResult::kOk;
  });
}

}  // namespace switchyard::coll
