// The C++ face over Group and Handle: Status becomes an exception here and nowhere below.
#include "ep/group.hpp"
#include "ep/handle.hpp"
#include "switchyard/ep.hpp"
#include "switchyard/numeric.hpp"

namespace switchyard::ep {
namespace {

void check(const Status& status) {
  if (!status.ok()) throw Error(status);
}

template <class T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

StreamRef ref(const HostStream& stream) { return {stream.internal()}; }

}  // namespace

EpGroup::EpGroup(const Comm& comm, const GroupConfig& config) : group_(take(Group::create(comm.internal(), config))) {}
EpGroup::~EpGroup() = default;
EpGroup::EpGroup(EpGroup&&) noexcept = default;

void EpGroup::close() {
  if (const int num_handles = group_->num_handles(); num_handles > 0) {
    throw Error(Status::invalid_usage(text("the group still has ", num_handles, " handles: destroy them first")));
  }
  check(group_->close());
}

int EpGroup::num_local_experts() const { return group_->num_local_experts(group_->rank()); }
std::vector<int> EpGroup::local_experts() const { return group_->local_experts(); }
bool EpGroup::is_eager() const { return !group_->is_low_latency() && group_->config().max_recv_tokens_per_rank == 0; }
size_t EpGroup::rows_per_expert() const { return group_->rows_per_expert(); }
size_t EpGroup::memory_bytes() const { return group_->memory_bytes(); }
void EpGroup::mask_query(int32_t* device_mask, const HostStream& stream) {
  check(group_->mask_query(device_mask, ref(stream)));
}
void EpGroup::mask_update(const int32_t* host_mask, const HostStream& stream) {
  check(group_->mask_update(host_mask, ref(stream)));
}
void EpGroup::mask_clean(const HostStream& stream) { check(group_->mask_clean(ref(stream))); }
bool EpGroup::async_error() const { return take(group_->async_error()) != 0; }
void EpGroup::error_clear() { check(group_->error_clear()); }

EpHandle::EpHandle(EpGroup& group, Layout layout, int topk, const HandleConfig& config)
    : handle_(take(Handle::create(group.internal(), layout, topk, config))) {}
EpHandle::~EpHandle() = default;
EpHandle::EpHandle(EpHandle&&) noexcept = default;

size_t EpHandle::memory_bytes(const EpGroup& group, Layout layout, int topk) {
  return take(Handle::memory_bytes(group.internal(), layout, topk));
}

void EpHandle::update(const Tensor& topk_idx) { check(handle_->update(topk_idx)); }
void EpHandle::update(const Tensor& topk_idx, const LayoutInfo& info, const HostStream& stream) {
  check(handle_->update(topk_idx, info, ref(stream)));
}
void EpHandle::dispatch(const DispatchArgs& args, const HostStream& stream) { check(handle_->dispatch(args, ref(stream))); }
void EpHandle::combine(const CombineArgs& args, const HostStream& stream) { check(handle_->combine(args, ref(stream))); }
void EpHandle::complete(const HostStream& stream) { check(handle_->complete(ref(stream))); }

namespace {

template <DType kType>
void weigh(const Tensor& tokens, const float* weights, const Tensor& out) {
  using Stored = typename Element<kType>::Storage;
  const size_t hidden = tokens.sizes[1];
  for (size_t row = 0; row < tokens.sizes[0]; ++row) {
    const Stored* from = static_cast<const Stored*>(tokens.data) + row * hidden;
    Stored* to = static_cast<Stored*>(out.data) + row * hidden;
    for (size_t i = 0; i < hidden; ++i) to[i] = Element<kType>::encode(Element<kType>::decode(from[i]) * weights[row]);
  }
}

template <class Index>
void check_indices(const Tensor& topk_idx, int num_experts) {
  const auto* indices = static_cast<const Index*>(topk_idx.data);
  const size_t num_indices = topk_idx.sizes[0] * topk_idx.sizes[1];
  for (size_t i = 0; i < num_indices; ++i) {
    if (indices[i] >= -1 && indices[i] < num_experts) continue;
    throw Error(Status::invalid_argument(text("topk_idx[", i / topk_idx.sizes[1], ", ", i % topk_idx.sizes[1], "] is ", indices[i],
                                              ", allowed -1..", num_experts - 1)));
  }
}

}  // namespace

void check_batch(const Tensor& x, const Tensor& topk_idx, const Tensor& topk_weights, const BatchShape& shape) {
  const size_t num_tokens = x.num_dims > 0 ? x.sizes[0] : 0;
  if (x.num_dims != 2 || x.sizes[1] != shape.hidden || x.dtype != shape.dtype) {
    throw Error(Status::invalid_argument(
        text("x is ", x.shape_text(), ", must be [", num_tokens, ", ", shape.hidden, "] ", dtype_name(shape.dtype))));
  }
  if (num_tokens > shape.max_tokens) {
    throw Error(Status::invalid_argument(text("x has ", num_tokens, " tokens, max_tokens is ", shape.max_tokens)));
  }
  const auto fits = [&](const Tensor& tensor) {
    return tensor.num_dims == 2 && tensor.sizes[0] == num_tokens && tensor.sizes[1] == shape.topk;
  };
  const bool is_64 = topk_idx.dtype == DType::kInt64;
  if (!fits(topk_idx) || (!is_64 && topk_idx.dtype != DType::kInt32)) {
    throw Error(Status::invalid_argument(
        text("topk_idx is ", topk_idx.shape_text(), ", must be [", num_tokens, ", ", shape.topk, "] int64 or int32")));
  }
  if (!fits(topk_weights) || topk_weights.dtype != DType::kFloat32) {
    throw Error(Status::invalid_argument(
        text("topk_weights is ", topk_weights.shape_text(), ", must be [", num_tokens, ", ", shape.topk, "] float32")));
  }
  is_64 ? check_indices<int64_t>(topk_idx, shape.num_experts) : check_indices<int32_t>(topk_idx, shape.num_experts);
}

void weigh_rows(const Tensor& tokens, const Tensor& weights, const Tensor& out) {
  const bool fits = tokens.num_dims == 2 && weights.num_dims == 1 && weights.sizes[0] == tokens.sizes[0] &&
                    weights.dtype == DType::kFloat32 && out.num_dims == 2 && out.sizes == tokens.sizes &&
                    out.dtype == tokens.dtype;
  if (!fits) {
    throw Error(Status::invalid_argument(text("tokens is ", tokens.shape_text(), ", weights ", weights.shape_text(), ", out ",
                                              out.shape_text(), ": must be [rows, hidden], [rows] float32 and as tokens")));
  }
  const auto* numbers = static_cast<const float*>(weights.data);
  switch (tokens.dtype) {
    case DType::kFloat32: return weigh<DType::kFloat32>(tokens, numbers, out);
    case DType::kFloat16: return weigh<DType::kFloat16>(tokens, numbers, out);
    case DType::kBfloat16: return weigh<DType::kBfloat16>(tokens, numbers, out);
    default:
      throw Error(Status::invalid_argument(text("tokens is ", tokens.shape_text(), ", must be float32, float16 or bfloat16")));
  }
}

}  // namespace switchyard::ep
