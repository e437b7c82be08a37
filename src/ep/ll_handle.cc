#include "ep/ll_handle.hpp"

#include "base/checked.hpp"
#include "base/log.hpp"
#include "base/failpoint.hpp"
#include "ep/ll_validate.hpp"

namespace switchyard::ep {
namespace {

Status check_shape(const LlGroup& group, Layout layout, int topk) {
  if (layout != Layout::kExpertMajor && layout != Layout::kRankMajor) {
    return Status::invalid_argument("a low-latency handle is expert-major or rank-major");
  }
  const int limit = std::min(group.num_experts(), kMaxTopk);
  if (topk < 1 || topk > limit) return Status::invalid_argument(text("num_topk is ", topk, ", allowed 1..", limit));
  return {};
}

LlRecord record_layout(const LlGroup& group, int topk) { return {group.num_ranks(), group.max_tokens(), topk}; }

// Payload, block scales and row scale of an NVFP4 packet, padded to 16 bytes.
uint32_t nvfp4_packet_bytes(size_t num_elements) {
  return uint32_t(LlMessage::align16(num_elements / 2 + num_elements / 16 + sizeof(float)));
}

}  // namespace

Result<size_t> LlHandle::memory_bytes(const LlGroup& group, Layout layout, int topk) {
  SWITCHYARD_TRY(check_shape(group, layout, topk));
  return round_up(record_layout(group, topk).num_words() * sizeof(int32_t), 256);
}

Result<std::unique_ptr<Handle>> LlHandle::create(LlGroup& group, Layout layout, int topk, const HandleConfig& config) {
  SWITCHYARD_ASSIGN(const size_t needed, memory_bytes(group, layout, topk));
  std::unique_ptr<LlHandle> handle(new LlHandle(group, layout, topk));
  SWITCHYARD_TRY(group.health());
  SWITCHYARD_TRY(handle->take_memory(config, needed));
  SWITCHYARD_TRY(group.reserve(layout, topk));
  handle->has_record_ = !handle->owns_memory();
  return std::unique_ptr<Handle>(std::move(handle));
}

LlHandle::~LlHandle() {
  if (staged_.empty()) return;
  group_.drain();
  for (const LlOp& op : staged_) group_.forget_staged(op.slot);
}

Status LlHandle::update(const Tensor& topk_idx, const LayoutInfo& /*info*/, StreamRef /*stream*/) {
  SWITCHYARD_TRY(validate_topk(topk_idx, group_, topk()));
  if (!staged_.empty()) return Status::invalid_usage("a staged operation of this handle is open: call ncclEpComplete first");
  topk_idx_ = topk_idx.data;
  num_tokens_ = int(topk_idx.sizes[0]);
  indices_are_64_ = topk_idx.dtype == DType::kInt64;
  has_routing_ = true;
  return {};
}

[[gnu::hot]] LlOp LlHandle::base_op() const {
  LlOp op = group_.new_operation();
  op.topk = topk();
  op.num_tokens = num_tokens_;
  op.num_local = group_.num_local_experts(group_.rank());
  op.expert_major = layout() == Layout::kExpertMajor;
  op.indices_are_64 = indices_are_64_;
  op.topk_idx = topk_idx_;
  op.record = static_cast<int32_t*>(memory());
  return op;
}

[[gnu::hot]] Status LlHandle::dispatch(const DispatchArgs& args, StreamRef stream) {
  SWITCHYARD_ASSIGN(const DispatchShape shape, validate_dispatch(*this, args));
  LlOp op = base_op();
  op.kind = LlKind::kDispatch;
  op.dtype = args.tokens.dtype;
  op.quant = args.quant == DispatchQuant::kFusedFp8 ? LlQuant::kFusedFp8
             : args.quant == DispatchQuant::kForward ? LlQuant::kForward
                                                      : LlQuant::kNone;
  op.global_ids = args.layout_info.id_kind == IdKind::kGlobal;
  op.round_scales = args.round_scales;
  op.num_elements = uint32_t(shape.num_elements);
  op.token_bytes = uint32_t(shape.token_bytes);
  op.scale_bytes = uint32_t(shape.scale_bytes);
  op.input_bytes = uint32_t(args.tokens.row_bytes());
  op.weights_in = static_cast<const float*>(args.topk_weights.data);
  op.tokens = static_cast<const char*>(args.tokens.data);
  op.scales = static_cast<const char*>(args.scales.data);
  op.out_tokens = static_cast<char*>(args.out_tokens.data);
  op.out_scales = static_cast<char*>(args.out_scales.data);
  op.out_weights = static_cast<float*>(args.out_topk_weights.data);
  op.out_idx = static_cast<int32_t*>(args.out_topk_idx.data);
  const Tensor& counts =
      op.expert_major ? args.layout_info.expert_counters : args.layout_info.src_rank_counters;
  op.out_counts = static_cast<int32_t*>(counts.data);
  if (args.out_tokens.window != nullptr && group_.may_work_in_place()) {
    op.in_place = 1;
    op.token_windows = args.out_tokens.window->bases();
    op.token_window_id = args.out_tokens.window->id();
    op.token_window_offset = args.out_tokens.window_offset;
    if (args.out_scales.window != nullptr) {
      op.scale_windows = args.out_scales.window->bases();
      op.scale_window_id = args.out_scales.window->id();
      op.scale_window_offset = args.out_scales.window_offset;
    }
  }
  SWITCHYARD_TRY(run(op, args.send_only, stream));
  has_record_ = true;
  return {};
}

[[gnu::hot]] Status LlHandle::combine(const CombineArgs& args, StreamRef stream) {
  SWITCHYARD_ASSIGN(const CombineShape shape, validate_combine(*this, args));
  LlOp op = base_op();
  op.kind = LlKind::kCombine;
  op.quant = args.quant == CombineQuant::kNvfp4 ? LlQuant::kNvfp4 : LlQuant::kNone;
  op.dtype = args.tokens.dtype;
  op.num_elements = uint32_t(shape.num_elements);
  op.input_bytes = uint32_t(args.tokens.row_bytes());
  op.token_bytes = op.quant == LlQuant::kNvfp4 ? nvfp4_packet_bytes(shape.num_elements) : op.input_bytes;
  op.tokens = static_cast<const char*>(args.tokens.data);
  op.scales = static_cast<const char*>(args.scales.data);
  op.weights_in = static_cast<const float*>(args.out_topk_weights.data);
  op.out_tokens = static_cast<char*>(args.out_tokens.data);
  if (args.tokens.window != nullptr && group_.may_work_in_place() && op.quant == LlQuant::kNone) {
    // Peers read in place only where the caller's input stays untouched until the call is over on the stream: a staged
    // send gives it back before the readers come. A rank that stages still reads in place what others offer.
    op.in_place = !args.send_only;
    op.token_windows = args.tokens.window->bases();
    op.token_window_id = args.tokens.window->id();
    op.token_window_offset = args.tokens.window_offset;
  }
  return run(op, args.send_only, stream);
}

[[gnu::hot]] Status LlHandle::run(LlOp& op, bool send_only, StreamRef stream) {
  if (group_.is_verbose()) [[unlikely]] {
    log_line(LogLevel::kInfo, text("rank ", group_.rank(), ": ", op.kind == LlKind::kDispatch ? "dispatch" : "combine",
                                   op.in_place ? ": zero copy, rows stay in or go straight to the window"
                                               : ": rows are copied through the group's buffers"));
  }
  if (!send_only) return group_.post(op, stream);
  SWITCHYARD_ASSIGN(op.slot, group_.open_staged());
  op.part = LlPart::kSend;
  if (Status posted = group_.post(op, stream); !posted.ok()) {
    group_.close_staged(op.slot);
    return posted;
  }
  op.part = LlPart::kReceive;
  staged_.push_back(op);
  SWITCHYARD_FAILPOINT_TRY("ep.after_staged_send");
  return {};
}

Status LlHandle::complete(StreamRef stream) {
  if (staged_.empty()) return group_.health();
  SWITCHYARD_FAILPOINT_TRY("ep.before_complete");
  const LlOp op = staged_.front();
  SWITCHYARD_TRY(group_.post(op, stream));
  staged_.pop_front();
  group_.close_staged(op.slot);
  return {};
}

}  // namespace switchyard::ep
