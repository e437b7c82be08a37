// What a caller does to a layer's batch around an operation: looks at it before, weighs its rows between.
#include "ep/validate.hpp"
#include "switchyard/ep.hpp"
#include "switchyard/numeric.hpp"

namespace switchyard::ep {
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
void check_indices_of(const Tensor& topk_idx, int num_experts) {
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
  if (const Status aligned = check_aligned("x", x); !aligned.ok()) throw Error(aligned);
  if (num_tokens > shape.max_tokens) {
    throw Error(Status::invalid_argument(text("x has ", num_tokens, " tokens, max_tokens is ", shape.max_tokens)));
  }
  const auto fits = [&](const Tensor& tensor) {
    return tensor.num_dims == 2 && tensor.sizes[0] == num_tokens && tensor.sizes[1] == shape.topk;
  };
  if (!fits(topk_idx) || (topk_idx.dtype != DType::kInt64 && topk_idx.dtype != DType::kInt32)) {
    throw Error(Status::invalid_argument(
        text("topk_idx is ", topk_idx.shape_text(), ", must be [", num_tokens, ", ", shape.topk, "] int64 or int32")));
  }
  if (!fits(topk_weights) || topk_weights.dtype != DType::kFloat32) {
    throw Error(Status::invalid_argument(
        text("topk_weights is ", topk_weights.shape_text(), ", must be [", num_tokens, ", ", shape.topk, "] float32")));
  }
}

void check_indices(const Tensor& topk_idx, int num_experts) {
  if (topk_idx.dtype == DType::kInt64) return check_indices_of<int64_t>(topk_idx, num_experts);
  check_indices_of<int32_t>(topk_idx, num_experts);
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
