#include "ep/validate.hpp"

#include "base/checked.hpp"

namespace switchyard::ep {
namespace {

[[gnu::cold]] std::string sizes_text(Sizes sizes) {
  std::string out = "[";
  for (const size_t size : sizes) out += (out.size() > 1 ? ", " : "") + std::to_string(size);
  return out + "]";
}

bool is_forwarded_token(DType dtype) {
  return is_float(dtype) || dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2 || dtype == DType::kFloat4x2;
}

bool is_forwarded_scale(DType dtype) {
  return is_float(dtype) || dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2 || dtype == DType::kUint8;
}

}  // namespace

[[gnu::hot]] Status check_tensor(const char* name, const Tensor& tensor, Sizes sizes, DType dtype) {
  if (!tensor.present()) return Status::invalid_argument(text(name, " is required"));
  bool same = tensor.num_dims == int(sizes.size()) && tensor.dtype == dtype;
  int dim = 0;
  for (const size_t size : sizes) same = same && tensor.sizes[size_t(dim++)] == size;
  if (!same) {
    return Status::invalid_argument(
        text(name, " is ", tensor.shape_text(), ", must be ", sizes_text(sizes), " ", dtype_name(dtype)));
  }
  return validate_place(name, tensor);
}

[[gnu::hot]] Status check_window(const Group& group, const char* name, const Tensor& tensor) {
  if (tensor.window == nullptr || group.comm().find_window(tensor.window) != nullptr) return {};
  return Status::invalid_argument(text(name, " is in a window of another communicator than the group's, or in one that is gone"));
}

[[gnu::hot]] Status check_absent(const char* name, const Tensor& tensor, const char* why) {
  if (!tensor.present()) return {};
  return Status::invalid_argument(text(name, " must be NULL ", why));
}

[[gnu::hot]] Status check_aligned(const char* name, const Tensor& tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 && tensor.window_offset % 16 == 0) return {};
  return Status::invalid_argument(text(name, " must be aligned to 16 bytes"));
}

bool is_float(DType dtype) {
  return dtype == DType::kBfloat16 || dtype == DType::kFloat16 || dtype == DType::kFloat32;
}

[[gnu::hot]] Status check_row_bytes(const Group& group, size_t token_bytes, size_t scale_bytes) {
  if (token_bytes == 0 || token_bytes % 16 != 0) {
    return Status::invalid_argument(text("a token row of ", token_bytes, " bytes: must be a positive multiple of 16"));
  }
  const size_t limit = group.config().max_token_bytes;
  if (token_bytes + scale_bytes > limit) {
    return Status::invalid_argument(text("a row of ", token_bytes, " token bytes and ", scale_bytes,
                                         " scale bytes is over the group's max_token_bytes of ", limit));
  }
  return {};
}

[[gnu::hot]] Status validate_place(const char* name, const Tensor& tensor) {
  if (tensor.empty()) return {};
  if (tensor.data == nullptr) return Status::invalid_argument(text(name, " has no data"));
  const auto num_bytes = tensor.num_bytes();
  if (!num_bytes) return Status::invalid_argument(text(name, " is too large"));
  if (tensor.window != nullptr && !range_fits(tensor.window_offset, *num_bytes, tensor.window->size())) {
    return Status::invalid_argument(text(name, " of ", *num_bytes, " bytes at offset ", tensor.window_offset,
                                         " does not fit its window of ", tensor.window->size(), " bytes"));
  }
  return {};
}

[[gnu::hot]] Status validate_topk(const Tensor& topk_idx, const Group& group, int topk) {
  if (topk_idx.dtype != DType::kInt32 && topk_idx.dtype != DType::kInt64) {
    return Status::invalid_argument(text("topk_idx is ", dtype_name(topk_idx.dtype), ", must be int32 or int64"));
  }
  if (topk_idx.num_dims != 2 || topk_idx.sizes[1] != size_t(topk)) {
    return Status::invalid_argument(text("topk_idx is ", topk_idx.shape_text(), ", must be [tokens, ", topk, "]"));
  }
  if (topk_idx.sizes[0] > size_t(group.max_tokens())) {
    return Status::invalid_argument(
        text("topk_idx has ", topk_idx.sizes[0], " tokens, the group's max_dispatch_tokens_per_rank is ", group.max_tokens()));
  }
  return check_tensor("topk_idx", topk_idx, {topk_idx.sizes[0], topk_idx.sizes[1]}, topk_idx.dtype);
}

[[gnu::hot]] Status check_plain_inputs(const DispatchArgs& args) {
  SWITCHYARD_TRY(check_absent("inputs.scales", args.scales, "without a quantisation recipe"));
  SWITCHYARD_TRY(check_absent("outputs.scales", args.out_scales, "without a quantisation recipe"));
  if (is_float(args.tokens.dtype)) return {};
  return Status::invalid_argument(text("inputs.tokens is ", dtype_name(args.tokens.dtype),
                                       "; without a recipe bfloat16, float16 or float32 are allowed"));
}

Status check_forwarded_inputs(const DispatchArgs& args) {
  if (args.round_scales) return Status::invalid_argument("round_scales must be 0 when scales are forwarded");
  if (!is_forwarded_token(args.tokens.dtype)) {
    return Status::invalid_argument(text("inputs.tokens is ", dtype_name(args.tokens.dtype), "; forwarded tokens are "
                                         "float32, float16, bfloat16, float8_e4m3, float8_e5m2 or float4x2"));
  }
  if (!args.scales.present() || args.scales.num_dims != 2) {
    return Status::invalid_argument("inputs.scales must be [tokens, scales per token]");
  }
  if (!is_forwarded_scale(args.scales.dtype)) {
    return Status::invalid_argument(text("inputs.scales is ", dtype_name(args.scales.dtype), "; forwarded scales are "
                                         "float32, float16, bfloat16, float8_e4m3, float8_e5m2 or uint8"));
  }
  SWITCHYARD_TRY(
      check_tensor("inputs.scales", args.scales, {args.tokens.sizes[0], args.scales.sizes[1]}, args.scales.dtype));
  const size_t scale_bytes = args.scales.row_bytes();
  if (scale_bytes == 0 || scale_bytes % 16 != 0) {
    return Status::invalid_argument(text("a scale row of ", scale_bytes, " bytes: must be a positive multiple of 16"));
  }
  return {};
}

Status check_alignment_of_forwarded(const DispatchArgs& args) {
  SWITCHYARD_TRY(check_aligned("inputs.tokens", args.tokens));
  SWITCHYARD_TRY(check_aligned("inputs.scales", args.scales));
  SWITCHYARD_TRY(check_aligned("outputs.tokens", args.out_tokens));
  return check_aligned("outputs.scales", args.out_scales);
}

}  // namespace switchyard::ep
