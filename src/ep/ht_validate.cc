#include "ep/ht_validate.hpp"

namespace switchyard::ep {
namespace {

bool is_expert_major(const HtHandle& handle) { return handle.layout() == Layout::kExpertMajor; }

// A vector of at least `least` numbers.
Status check_numbers(const char* name, const Tensor& tensor, size_t least, bool may_be_64) {
  if (!tensor.present()) return {};
  const bool type_fits = tensor.dtype == DType::kInt32 || (may_be_64 && tensor.dtype == DType::kInt64);
  if (tensor.num_dims != 1 || tensor.sizes[0] < least || !type_fits) {
    return Status::invalid_argument(text(name, " is ", tensor.shape_text(), ", must be [at least ", least, "] int32",
                                         may_be_64 ? " or int64" : ""));
  }
  return validate_place(name, tensor);
}

// [rows, width] with at least so many rows; more are allowed and stay untouched.
Status check_rows(const char* name, const Tensor& tensor, size_t least, size_t width, DType dtype) {
  if (!tensor.present()) return Status::invalid_argument(text(name, " is required"));
  if (tensor.num_dims != 2 || tensor.sizes[0] < least || tensor.sizes[1] != width || tensor.dtype != dtype) {
    return Status::invalid_argument(text(name, " is ", tensor.shape_text(), ", must be [at least ", least, ", ", width, "] ",
                                         dtype_name(dtype)));
  }
  return validate_place(name, tensor);
}

// One weight a row (expert-major), or one for each of its top-k (flat).
Status check_row_weights(const char* name, const Tensor& tensor, const HtHandle& handle, size_t least) {
  if (!is_expert_major(handle)) return check_rows(name, tensor, least, size_t(handle.topk()), DType::kFloat32);
  if (!tensor.present()) return Status::invalid_argument(text(name, " is required"));
  if (tensor.num_dims != 1 || tensor.sizes[0] < least || tensor.dtype != DType::kFloat32) {
    return Status::invalid_argument(text(name, " is ", tensor.shape_text(), ", must be [at least ", least, "] float32"));
  }
  return validate_place(name, tensor);
}

Status check_num_tokens(const char* name, const HtHandle& handle, size_t num_tokens) {
  if (!handle.may_have_plan()) {
    return Status::invalid_usage("the handle has no routing yet: call ncclEpUpdateHandle first");
  }
  if (num_tokens > size_t(handle.group().max_tokens())) {
    return Status::invalid_argument(text(name, " has ", num_tokens, " tokens, the group's max_dispatch_tokens_per_rank is ",
                                         handle.group().max_tokens()));
  }
  if (handle.num_tokens() && *handle.num_tokens() != num_tokens) {
    return Status::invalid_argument(text(name, " has ", num_tokens, " tokens, the handle's routing has ", *handle.num_tokens()));
  }
  return {};
}

Status check_both_empty(const char* name, const Tensor& one, const char* other_name, const Tensor& other) {
  if (one.empty() == other.empty()) return {};
  return Status::invalid_argument(text(name, " is ", one.shape_text(), " and ", other_name, " is ", other.shape_text(),
                                       ": both must have rows, or none"));
}

Status check_zero_copy(const HtHandle& handle, const char* name, const Tensor& tensor) {
  if (!handle.group().zero_copy_required()) return {};
  if (tensor.window == nullptr && !tensor.empty()) {
    return Status::invalid_argument(text("zero_copy is ON: ", name, " must be in a window"));
  }
  return {};
}

Status check_forward_outputs(const HtHandle& handle, const DispatchArgs& args, size_t rows) {
  const auto topk = size_t(handle.topk());
  SWITCHYARD_TRY(check_tensor("inputs.topk_weights", args.topk_weights, {args.tokens.sizes[0], topk}, DType::kFloat32));
  SWITCHYARD_TRY(check_row_weights("outputs.topk_weights", args.out_topk_weights, handle, rows));
  SWITCHYARD_TRY(check_both_empty("outputs.topk_weights", args.out_topk_weights, "outputs.tokens", args.out_tokens));
  if (is_expert_major(handle)) {
    return check_absent("outputs.topk_idx", args.out_topk_idx, "in an expert-major dispatch");
  }
  SWITCHYARD_TRY(check_rows("outputs.topk_idx", args.out_topk_idx, rows, topk, DType::kInt64));
  if (args.out_topk_idx.sizes[0] == args.out_topk_weights.sizes[0]) return {};
  return Status::invalid_argument(text("outputs.topk_idx has ", args.out_topk_idx.sizes[0], " rows, outputs.topk_weights ",
                                       args.out_topk_weights.sizes[0], ": they must have the same"));
}

Status check_backward_is_bare(const DispatchArgs& args) {
  SWITCHYARD_TRY(check_absent("inputs.topk_weights", args.topk_weights, "in a backward dispatch"));
  SWITCHYARD_TRY(check_absent("outputs.topk_weights", args.out_topk_weights, "in a backward dispatch"));
  return check_absent("outputs.topk_idx", args.out_topk_idx, "in a backward dispatch");
}

Status check_scale_outputs(const DispatchArgs& args) {
  if (!args.out_scales.present()) return Status::invalid_argument("outputs.scales is required when scales are forwarded");
  SWITCHYARD_TRY(check_tensor("outputs.scales", args.out_scales, {args.out_tokens.sizes[0], args.scales.sizes[1]},
                              args.scales.dtype));
  if ((args.out_scales.window == nullptr) != (args.out_tokens.window == nullptr)) {
    return Status::invalid_argument("outputs.tokens and outputs.scales must both be in windows, or neither");
  }
  return check_alignment_of_forwarded(args);
}

}  // namespace

Status validate_layout_info(const HtHandle& handle, const LayoutInfo& info) {
  const Group& group = handle.group();
  const auto num_local = size_t(group.num_local_experts(group.rank()));
  SWITCHYARD_TRY(check_absent("layout_info.src_rank_counters", info.src_rank_counters, "for a high-throughput handle"));
  SWITCHYARD_TRY(check_numbers("layout_info.recv_total_counter", info.recv_total_counter, 1, true));
  const bool wide = is_expert_major(handle);
  SWITCHYARD_TRY(check_numbers("layout_info.expert_counters", info.expert_counters, num_local, wide));
  if (!wide) return check_absent("layout_info.expert_offsets", info.expert_offsets, "for a flat handle");
  SWITCHYARD_TRY(check_numbers("layout_info.expert_offsets", info.expert_offsets, num_local, true));
  const Tensor* first = nullptr;
  for (const Tensor* numbers : {&info.expert_counters, &info.expert_offsets, &info.recv_total_counter}) {
    if (!numbers->present()) continue;
    if (first != nullptr && first->dtype != numbers->dtype) {
      return Status::invalid_argument("the tensors of layout_info must have one datatype, int32 or int64");
    }
    first = numbers;
  }
  return {};
}

Status validate_ht_dispatch(HtHandle& handle, const DispatchArgs& args) {
  if (!args.tokens.present()) return Status::invalid_argument("inputs.tokens is required");
  if (args.tokens.num_dims != 2) {
    return Status::invalid_argument(text("inputs.tokens is ", args.tokens.shape_text(), ", must have 2 dimensions"));
  }
  if (args.quant == DispatchQuant::kFusedFp8) {
    return Status::invalid_argument("high-throughput dispatch quantises nothing: pass FP8 tokens with their scales (QUANT_FWD)");
  }
  const bool forwarded = args.quant == DispatchQuant::kForward;
  SWITCHYARD_TRY(forwarded ? check_forwarded_inputs(args) : check_plain_inputs(args));
  SWITCHYARD_TRY(check_num_tokens("inputs.tokens", handle, args.tokens.sizes[0]));
  SWITCHYARD_TRY(validate_place("inputs.tokens", args.tokens));
  SWITCHYARD_TRY(check_row_bytes(handle.group(), args.tokens.row_bytes(), forwarded ? args.scales.row_bytes() : 0));
  SWITCHYARD_TRY(check_zero_copy(handle, "outputs.tokens", args.out_tokens));
  SWITCHYARD_TRY(check_window(handle.group(), "outputs.tokens", args.out_tokens));
  SWITCHYARD_TRY(check_window(handle.group(), "outputs.scales", args.out_scales));
  const bool backward = args.direction == PassDirection::kBackward;
  if (backward) SWITCHYARD_TRY(check_backward_is_bare(args));
  SWITCHYARD_ASSIGN(const size_t rows, handle.required_rows());
  SWITCHYARD_TRY(check_num_tokens("inputs.tokens", handle, args.tokens.sizes[0]));  // which that may have told
  SWITCHYARD_TRY(check_rows("outputs.tokens", args.out_tokens, rows, args.tokens.sizes[1], args.tokens.dtype));
  if (forwarded) SWITCHYARD_TRY(check_scale_outputs(args));
  return backward ? Status() : check_forward_outputs(handle, args, rows);
}

Status validate_ht_combine(HtHandle& handle, const CombineArgs& args) {
  if (args.quant != CombineQuant::kNone) {
    return Status::invalid_usage("a high-throughput combine has no quantisation recipe");
  }
  SWITCHYARD_TRY(check_absent("inputs.scales", args.scales, "without a quantisation recipe"));
  if (!args.tokens.present()) return Status::invalid_argument("inputs.tokens is required");
  if (!is_float(args.tokens.dtype)) {
    return Status::invalid_argument(
        text("inputs.tokens is ", dtype_name(args.tokens.dtype), ", must be bfloat16, float16 or float32"));
  }
  if (args.tokens.num_dims != 2) {
    return Status::invalid_argument(text("inputs.tokens is ", args.tokens.shape_text(), ", must have 2 dimensions"));
  }
  if (!args.out_tokens.present() || args.out_tokens.num_dims != 2) {
    return Status::invalid_argument("outputs.tokens must be [tokens, hidden]");
  }
  const bool backward = args.direction == PassDirection::kBackward;
  if (!backward) SWITCHYARD_TRY(check_absent("inputs.topk_weights", args.topk_weights, "in a forward combine"));
  SWITCHYARD_TRY(check_num_tokens("outputs.tokens", handle, args.out_tokens.sizes[0]));
  const size_t width = args.tokens.sizes[1];
  SWITCHYARD_TRY(check_tensor("outputs.tokens", args.out_tokens, {args.out_tokens.sizes[0], width}, args.tokens.dtype));
  SWITCHYARD_TRY(check_row_bytes(handle.group(), args.tokens.row_bytes(), 0));
  SWITCHYARD_TRY(check_zero_copy(handle, "inputs.tokens", args.tokens));
  SWITCHYARD_TRY(check_window(handle.group(), "inputs.tokens", args.tokens));
  SWITCHYARD_ASSIGN(const size_t rows, handle.required_rows());
  SWITCHYARD_TRY(check_num_tokens("outputs.tokens", handle, args.out_tokens.sizes[0]));  // which that may have told
  SWITCHYARD_TRY(check_rows("inputs.tokens", args.tokens, rows, width, args.tokens.dtype));
  if (!backward) return {};
  SWITCHYARD_TRY(check_row_weights("inputs.topk_weights", args.topk_weights, handle, rows));
  SWITCHYARD_TRY(check_both_empty("inputs.topk_weights", args.topk_weights, "inputs.tokens", args.tokens));
  return check_tensor("outputs.topk_weights", args.out_topk_weights,
                      {args.out_tokens.sizes[0], size_t(handle.topk())}, DType::kFloat32);
}

}  // namespace switchyard::ep
