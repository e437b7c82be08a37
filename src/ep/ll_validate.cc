#include "ep/ll_validate.hpp"

#include <initializer_list>

#include "base/checked.hpp"

namespace switchyard::ep {
namespace {

using Sizes = std::initializer_list<size_t>;

std::string sizes_text(Sizes sizes) {
  std::string out = "[";
  for (const size_t size : sizes) out += (out.size() > 1 ? ", " : "") + std::to_string(size);
  return out + "]";
}

// Present, of this shape and type, backed by memory that is large enough.
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

bool is_forwarded_token(DType dtype) {
  return is_float(dtype) || dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2 || dtype == DType::kFloat4x2;
}

bool is_forwarded_scale(DType dtype) {
  return is_float(dtype) || dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2 || dtype == DType::kUint8;
}

// Output rows by layout: [experts here, rows per expert] or [ranks, max tokens].
struct Rows {
  size_t outer, inner;
};
Rows rows_of(const Handle& handle) {
  const Group& group = handle.group();
  if (handle.layout() == Layout::kExpertMajor) {
    return {size_t(group.num_local_experts(group.rank())), group.rows_per_expert()};
  }
  return {size_t(group.num_ranks()), size_t(group.max_tokens())};
}

[[gnu::hot]] Status check_input_tokens(const Handle& handle, const Tensor& tokens) {
  if (!tokens.present()) return Status::invalid_argument("inputs.tokens is required");
  if (tokens.num_dims != 2) {
    return Status::invalid_argument(text("inputs.tokens is ", tokens.shape_text(), ", must have 2 dimensions"));
  }
  if (!handle.has_routing()) return Status::invalid_usage("the handle has no routing yet: call ncclEpUpdateHandle first");
  const auto expected = size_t(handle.num_tokens());
  return check_tensor("inputs.tokens", tokens, {expected, tokens.sizes[1]}, tokens.dtype);
}

[[gnu::hot]] Status check_row_bytes(const Handle& handle, size_t token_bytes, size_t scale_bytes) {
  if (token_bytes == 0 || token_bytes % 16 != 0) {
    return Status::invalid_argument(text("a token row of ", token_bytes, " bytes: must be a positive multiple of 16"));
  }
  const size_t limit = handle.group().config().max_token_bytes;
  if (token_bytes + scale_bytes > limit) {
    return Status::invalid_argument(text("a row of ", token_bytes, " token bytes and ", scale_bytes,
                                         " scale bytes is over the group's max_token_bytes of ", limit));
  }
  return {};
}

Result<DispatchShape> check_plain(const Handle& handle, const DispatchArgs& args) {
  SWITCHYARD_TRY(check_absent("inputs.scales", args.scales, "without a quantisation recipe"));
  SWITCHYARD_TRY(check_absent("outputs.scales", args.out_scales, "without a quantisation recipe"));
  if (!is_float(args.tokens.dtype)) {
    return Status::invalid_argument(text("inputs.tokens is ", dtype_name(args.tokens.dtype),
                                         "; without a recipe bfloat16, float16 or float32 are allowed"));
  }
  const Rows rows = rows_of(handle);
  SWITCHYARD_TRY(check_tensor("outputs.tokens", args.out_tokens, {rows.outer, rows.inner, args.tokens.sizes[1]},
                              args.tokens.dtype));
  return DispatchShape{args.tokens.sizes[1], args.tokens.row_bytes(), 0};
}

Result<DispatchShape> check_forwarded(const Handle& handle, const DispatchArgs& args) {
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
  const size_t width = args.scales.sizes[1];
  SWITCHYARD_TRY(check_tensor("inputs.scales", args.scales, {args.tokens.sizes[0], width}, args.scales.dtype));
  const size_t scale_bytes = args.scales.row_bytes();
  if (scale_bytes == 0 || scale_bytes % 16 != 0) {
    return Status::invalid_argument(text("a scale row of ", scale_bytes, " bytes: must be a positive multiple of 16"));
  }
  const Rows rows = rows_of(handle);
  SWITCHYARD_TRY(check_tensor("outputs.tokens", args.out_tokens, {rows.outer, rows.inner, args.tokens.sizes[1]},
                              args.tokens.dtype));
  SWITCHYARD_TRY(
      check_tensor("outputs.scales", args.out_scales, {rows.outer, rows.inner, width}, args.scales.dtype));
  SWITCHYARD_TRY(check_aligned("inputs.tokens", args.tokens));
  SWITCHYARD_TRY(check_aligned("inputs.scales", args.scales));
  SWITCHYARD_TRY(check_aligned("outputs.tokens", args.out_tokens));
  SWITCHYARD_TRY(check_aligned("outputs.scales", args.out_scales));
  return DispatchShape{args.tokens.sizes[1], args.tokens.row_bytes(), scale_bytes};
}

constexpr size_t kFp8Group = 128;  // elements that share a scale

Result<DispatchShape> check_fused_fp8(const Handle& handle, const DispatchArgs& args) {
  SWITCHYARD_TRY(check_absent("inputs.scales", args.scales, "when the library quantises"));
  if (args.tokens.dtype != DType::kBfloat16) {
    return Status::invalid_argument(text("inputs.tokens is ", dtype_name(args.tokens.dtype), ", must be bfloat16"));
  }
  const size_t width = args.tokens.sizes[1];
  if (width % kFp8Group != 0) {
    return Status::invalid_argument(text("hidden is ", width, ", must be a multiple of ", kFp8Group, " for fused FP8"));
  }
  const Rows rows = rows_of(handle);
  const size_t num_scales = width / kFp8Group;
  SWITCHYARD_TRY(check_tensor("outputs.tokens", args.out_tokens, {rows.outer, rows.inner, width}, DType::kFloat8E4M3));
  SWITCHYARD_TRY(check_tensor("outputs.scales", args.out_scales, {rows.outer, rows.inner, num_scales}, DType::kFloat32));
  return DispatchShape{width, width, num_scales * sizeof(float)};
}

[[gnu::hot]] Status check_expert_major_dispatch(const Handle& handle, const DispatchArgs& args) {
  SWITCHYARD_TRY(check_absent("inputs.topk_weights", args.topk_weights, "in an expert-major dispatch"));
  SWITCHYARD_TRY(check_absent("outputs.topk_weights", args.out_topk_weights, "in an expert-major dispatch"));
  SWITCHYARD_TRY(check_absent("outputs.topk_idx", args.out_topk_idx, "in an expert-major dispatch"));
  const LayoutInfo& info = args.layout_info;
  SWITCHYARD_TRY(check_absent("layout_info.src_rank_counters", info.src_rank_counters, "in an expert-major dispatch"));
  const auto num_local = size_t(handle.group().num_local_experts(handle.group().rank()));
  return check_tensor("layout_info.expert_counters", info.expert_counters, {num_local}, DType::kInt32);
}

[[gnu::hot]] Status check_rank_major_dispatch(const Handle& handle, const DispatchArgs& args) {
  const Rows rows = rows_of(handle);
  const auto topk = size_t(handle.topk());
  SWITCHYARD_TRY(check_tensor("inputs.topk_weights", args.topk_weights, {size_t(handle.num_tokens()), topk},
                              DType::kFloat32));
  SWITCHYARD_TRY(check_tensor("outputs.topk_weights", args.out_topk_weights, {rows.outer, rows.inner, topk},
                              DType::kFloat32));
  SWITCHYARD_TRY(check_tensor("outputs.topk_idx", args.out_topk_idx, {rows.outer, rows.inner, topk}, DType::kInt32));
  const LayoutInfo& info = args.layout_info;
  SWITCHYARD_TRY(check_absent("layout_info.expert_counters", info.expert_counters, "in a rank-major dispatch"));
  if (!info.src_rank_counters.present()) return {};
  return check_tensor("layout_info.src_rank_counters", info.src_rank_counters, {rows.outer}, DType::kInt32);
}

}  // namespace

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

[[gnu::hot]] Result<DispatchShape> validate_dispatch(const Handle& handle, const DispatchArgs& args) {
  if (args.direction == PassDirection::kBackward) {
    return Status::invalid_usage("a low-latency group has no backward pass");
  }
  SWITCHYARD_TRY(check_input_tokens(handle, args.tokens));
  Result<DispatchShape> shape = args.quant == DispatchQuant::kNone      ? check_plain(handle, args)
                                : args.quant == DispatchQuant::kForward ? check_forwarded(handle, args)
                                                                        : check_fused_fp8(handle, args);
  if (!shape.ok()) return shape;
  SWITCHYARD_TRY(check_row_bytes(handle, shape->token_bytes, shape->scale_bytes));
  if (handle.layout() == Layout::kExpertMajor) SWITCHYARD_TRY(check_expert_major_dispatch(handle, args));
  else SWITCHYARD_TRY(check_rank_major_dispatch(handle, args));
  if (handle.group().zero_copy_required()) {
    if (args.out_tokens.window == nullptr) {
      return Status::invalid_argument("zero_copy is ON: outputs.tokens must be in a window");
    }
    if (handle.group().config().enable_mask) {
      return Status::invalid_usage("zero_copy ON and enable_mask exclude each other: a masked rank that writes late must "
                                   "not reach the output");
    }
  }
  return shape;
}

[[gnu::hot]] Result<CombineShape> validate_combine(const Handle& handle, const CombineArgs& args) {
  const bool nvfp4 = args.quant == CombineQuant::kNvfp4;
  if (!nvfp4) SWITCHYARD_TRY(check_absent("inputs.scales", args.scales, "without a quantisation recipe"));
  if (args.direction == PassDirection::kBackward) {
    return Status::invalid_usage("a low-latency group has no backward pass");
  }
  if (!args.tokens.present()) return Status::invalid_argument("inputs.tokens is required");
  if (!is_float(args.tokens.dtype) || (nvfp4 && args.tokens.dtype != DType::kBfloat16)) {
    return Status::invalid_argument(text("inputs.tokens is ", dtype_name(args.tokens.dtype), ", must be bfloat16",
                                         nvfp4 ? " for NVFP4" : ", float16 or float32"));
  }
  if (args.tokens.num_dims != 3) {
    return Status::invalid_argument(text("inputs.tokens is ", args.tokens.shape_text(), ", must have 3 dimensions"));
  }
  if (!handle.has_routing()) return Status::invalid_usage("the handle has no routing yet: call ncclEpUpdateHandle first");
  const size_t width = args.tokens.sizes[2];
  const Rows rows = rows_of(handle);
  const auto num_tokens = size_t(handle.num_tokens());
  SWITCHYARD_TRY(check_tensor("inputs.tokens", args.tokens, {rows.outer, rows.inner, width}, args.tokens.dtype));
  SWITCHYARD_TRY(check_tensor("outputs.tokens", args.out_tokens, {num_tokens, width}, args.tokens.dtype));
  SWITCHYARD_TRY(check_row_bytes(handle, args.tokens.row_bytes(), 0));
  if (handle.layout() == Layout::kExpertMajor) {
    SWITCHYARD_TRY(check_tensor("outputs.topk_weights (the routing weights)", args.out_topk_weights,
                                {num_tokens, size_t(handle.topk())}, DType::kFloat32));
  }
  if (nvfp4) {
    SWITCHYARD_TRY(check_tensor("inputs.scales", args.scales, {rows.outer, rows.inner, 1}, DType::kFloat32));
    if (width % 32 != 0) return Status::invalid_argument(text("hidden is ", width, ", must be a multiple of 32 for NVFP4"));
  }
  if (handle.num_staged() > 0) {
    return Status::invalid_usage("a staged operation of this handle is open: call ncclEpComplete before the combine");
  }
  if (!handle.has_record()) return Status::invalid_usage("a combine answers a dispatch: this handle has made none yet");
  return CombineShape{width};
}

}  // namespace switchyard::ep
