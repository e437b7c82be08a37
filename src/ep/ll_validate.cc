#include "ep/ll_validate.hpp"

namespace switchyard::ep {
namespace {

// Output rows by layout: [experts here, rows per expert] or [ranks, max tokens].
struct Rows {
  size_t outer, inner;
};
Rows rows_of(const LlHandle& handle) {
  const Group& group = handle.group();
  if (handle.layout() == Layout::kExpertMajor) {
    return {size_t(group.num_local_experts(group.rank())), group.rows_per_expert()};
  }
  return {size_t(group.num_ranks()), size_t(group.max_tokens())};
}

[[gnu::hot]] Status check_input_tokens(const LlHandle& handle, const Tensor& tokens) {
  if (!tokens.present()) return Status::invalid_argument("inputs.tokens is required");
  if (tokens.num_dims != 2) {
    return Status::invalid_argument(text("inputs.tokens is ", tokens.shape_text(), ", must have 2 dimensions"));
  }
  if (!handle.has_routing()) return Status::invalid_usage("the handle has no routing yet: call ncclEpUpdateHandle first");
  const auto expected = size_t(handle.num_tokens());
  return check_tensor("inputs.tokens", tokens, {expected, tokens.sizes[1]}, tokens.dtype);
}

Result<DispatchShape> check_plain(const LlHandle& handle, const DispatchArgs& args) {
  SWITCHYARD_TRY(check_plain_inputs(args));
  const Rows rows = rows_of(handle);
  SWITCHYARD_TRY(check_tensor("outputs.tokens", args.out_tokens, {rows.outer, rows.inner, args.tokens.sizes[1]},
                              args.tokens.dtype));
  return DispatchShape{args.tokens.sizes[1], args.tokens.row_bytes(), 0};
}

Result<DispatchShape> check_forwarded(const LlHandle& handle, const DispatchArgs& args) {
  SWITCHYARD_TRY(check_forwarded_inputs(args));
  const Rows rows = rows_of(handle);
  SWITCHYARD_TRY(check_tensor("outputs.tokens", args.out_tokens, {rows.outer, rows.inner, args.tokens.sizes[1]},
                              args.tokens.dtype));
  SWITCHYARD_TRY(check_tensor("outputs.scales", args.out_scales, {rows.outer, rows.inner, args.scales.sizes[1]},
                              args.scales.dtype));
  SWITCHYARD_TRY(check_alignment_of_forwarded(args));
  return DispatchShape{args.tokens.sizes[1], args.tokens.row_bytes(), args.scales.row_bytes()};
}

constexpr size_t kFp8Group = 128;  // elements that share a scale

Result<DispatchShape> check_fused_fp8(const LlHandle& handle, const DispatchArgs& args) {
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

[[gnu::hot]] Status check_expert_major_dispatch(const LlHandle& handle, const DispatchArgs& args) {
  SWITCHYARD_TRY(check_absent("inputs.topk_weights", args.topk_weights, "in an expert-major dispatch"));
  SWITCHYARD_TRY(check_absent("outputs.topk_weights", args.out_topk_weights, "in an expert-major dispatch"));
  SWITCHYARD_TRY(check_absent("outputs.topk_idx", args.out_topk_idx, "in an expert-major dispatch"));
  const LayoutInfo& info = args.layout_info;
  SWITCHYARD_TRY(check_absent("layout_info.src_rank_counters", info.src_rank_counters, "in an expert-major dispatch"));
  const auto num_local = size_t(handle.group().num_local_experts(handle.group().rank()));
  return check_tensor("layout_info.expert_counters", info.expert_counters, {num_local}, DType::kInt32);
}

[[gnu::hot]] Status check_rank_major_dispatch(const LlHandle& handle, const DispatchArgs& args) {
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

[[gnu::hot]] Result<DispatchShape> validate_dispatch(const LlHandle& handle, const DispatchArgs& args) {
  if (args.direction == PassDirection::kBackward) {
    return Status::invalid_usage("a low-latency group has no backward pass");
  }
  SWITCHYARD_TRY(check_input_tokens(handle, args.tokens));
  Result<DispatchShape> shape = args.quant == DispatchQuant::kNone      ? check_plain(handle, args)
                                : args.quant == DispatchQuant::kForward ? check_forwarded(handle, args)
                                                                        : check_fused_fp8(handle, args);
  if (!shape.ok()) return shape;
  SWITCHYARD_TRY(check_row_bytes(handle.group(), shape->token_bytes, shape->scale_bytes));
  SWITCHYARD_TRY(check_window(handle.group(), "outputs.tokens", args.out_tokens));
  SWITCHYARD_TRY(check_window(handle.group(), "outputs.scales", args.out_scales));
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

[[gnu::hot]] Result<CombineShape> validate_combine(const LlHandle& handle, const CombineArgs& args) {
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
  SWITCHYARD_TRY(check_row_bytes(handle.group(), args.tokens.row_bytes(), 0));
  SWITCHYARD_TRY(check_window(handle.group(), "inputs.tokens", args.tokens));
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
