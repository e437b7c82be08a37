#include "ep/ht_handle.hpp"

#include <algorithm>
#include <vector>

#include "base/checked.hpp"
#include "ep/ht_validate.hpp"

namespace switchyard::ep {
namespace {

Status check_shape(const HtGroup& group, Layout layout, int topk, size_t alignment) {
  if (layout != Layout::kFlat && layout != Layout::kExpertMajor) {
    return Status::invalid_argument("a high-throughput handle is flat or expert-major");
  }
  const int limit = std::min(group.num_experts(), kMaxTopk);
  if (topk < 1 || topk > limit) return Status::invalid_usage(text("num_topk is ", topk, ", allowed 1..", limit));
  const GroupConfig& config = group.config();
  if (config.num_topk != 0 && unsigned(topk) > config.num_topk) {
    return Status::invalid_usage(text("num_topk is ", topk, ", the group was made for at most ", config.num_topk));
  }
  if (layout == Layout::kFlat || !group.is_eager()) return {};
  if (config.num_topk == 0) {
    return Status::invalid_usage("an expert-major handle of a group without max_recv_tokens_per_rank needs the group's num_topk");
  }
  if (alignment > HtGroup::kMaxEagerAlignment) {
    return Status::invalid_usage(text("dispatch_output_per_expert_alignment is ", alignment, ", allowed are ",
                                      HtGroup::kMaxEagerAlignment, " without max_recv_tokens_per_rank"));
  }
  return {};
}

// By peers, in its window.
bool can_be_found(const Tensor& tensor) {
  return tensor.window != nullptr && WindowTable::has_slot(tensor.window->id());
}

}  // namespace

Result<size_t> HtHandle::memory_bytes(const HtGroup& group, Layout layout, int topk) {
  SWITCHYARD_TRY(check_shape(group, layout, topk, 1));
  return round_up(group.record_layout(topk).num_words() * sizeof(int32_t), 256);
}

Result<std::unique_ptr<Handle>> HtHandle::create(HtGroup& group, Layout layout, int topk, const HandleConfig& config) {
  const size_t alignment = std::max<size_t>(1, config.expert_alignment);
  if ((alignment & (alignment - 1)) != 0 || alignment > (size_t{1} << 20)) {
    return Status::invalid_argument(
        text("dispatch_output_per_expert_alignment is ", alignment, ", must be a power of two, at most ", size_t{1} << 20));
  }
  SWITCHYARD_TRY(check_shape(group, layout, topk, alignment));
  SWITCHYARD_TRY(group.health());
  std::unique_ptr<HtHandle> handle(new HtHandle(group, layout, topk, alignment));
  SWITCHYARD_ASSIGN(const size_t needed, memory_bytes(group, layout, topk));
  SWITCHYARD_TRY(handle->take_memory(config, needed));
  if (handle->owns_memory()) {
    const std::vector<int32_t> no_plan(group.record_layout(topk).entry(HtRecord::kExpert, 0), 0);
    SWITCHYARD_TRY(group.comm().runtime().upload(handle->record(), no_plan.data(), no_plan.size() * sizeof(int32_t)));
  }
  return std::unique_ptr<Handle>(std::move(handle));
}

// A window saves a copy of every row and costs a meeting of the ranks (docs/protocol.md).
bool HtHandle::gains_by_window(const HtOp& op) const {
  constexpr uint64_t kSmallBytes = 256 * 1024;
  if (!group_.may_work_in_place()) return false;
  if (group_.zero_copy_required()) return true;
  const int rows_per_token = std::min(topk(), group_.num_ranks());
  return uint64_t(op.num_tokens) * uint64_t(rows_per_token) * op.token_bytes > kSmallBytes;
}

HtOp HtHandle::base_op(HtKind kind, size_t num_tokens) const {
  HtOp op = group_.new_operation(layout(), topk());
  op.kind = kind;
  op.num_tokens = int32_t(num_tokens);
  op.alignment = int32_t(alignment_);
  op.record = record();
  return op;
}

Status HtHandle::update(const Tensor& topk_idx, const LayoutInfo& info, StreamRef stream) {
  SWITCHYARD_TRY(validate_topk(topk_idx, group_, topk()));
  SWITCHYARD_TRY(validate_layout_info(*this, info));
  HtOp op = base_op(HtKind::kRoute, topk_idx.sizes[0]);
  op.topk_idx = topk_idx.data;
  op.indices_are_64 = topk_idx.dtype == DType::kInt64;
  op.out_expert_counters = info.expert_counters.data;
  op.out_expert_offsets = info.expert_offsets.data;
  op.out_total = info.recv_total_counter.data;
  const Tensor& numbers = info.expert_counters.present() ? info.expert_counters : info.expert_offsets;
  op.counters_are_64 = numbers.dtype == DType::kInt64;
  op.total_is_64 = info.recv_total_counter.dtype == DType::kInt64;
  SWITCHYARD_TRY(group_.post(op, stream));
  num_tokens_ = topk_idx.sizes[0];
  eager_rows_.reset();
  known_at_ = group_.num_updates();
  updated_ = true;
  return {};
}

void HtHandle::look_for_updates() {
  if (owns_memory() || known_at_ == group_.num_updates()) return;
  num_tokens_.reset();
  eager_rows_.reset();
  known_at_ = group_.num_updates();
}

Result<size_t> HtHandle::required_rows() {
  if (!group_.is_eager()) return size_t(group_.config().max_recv_tokens_per_rank);
  if (!eager_rows_) {
    SWITCHYARD_ASSIGN(const HtGroup::Plan plan, group_.look_at_plan(base_op(HtKind::kDispatch, 0)));
    eager_rows_ = plan.num_rows;
    num_tokens_ = plan.num_tokens;
  }
  return *eager_rows_;
}

Status HtHandle::dispatch(const DispatchArgs& args, StreamRef stream) {
  look_for_updates();
  SWITCHYARD_TRY(validate_ht_dispatch(*this, args));
  HtOp op = base_op(HtKind::kDispatch, args.tokens.sizes[0]);
  op.backward = args.direction == PassDirection::kBackward;
  op.global_ids = args.layout_info.id_kind == IdKind::kGlobal;
  op.dtype = args.tokens.dtype;
  op.token_bytes = uint32_t(args.tokens.row_bytes());
  op.scale_bytes = args.scales.present() ? uint32_t(args.scales.row_bytes()) : 0;
  op.tokens = static_cast<const char*>(args.tokens.data);
  op.scales = static_cast<const char*>(args.scales.data);
  op.weights = static_cast<const float*>(args.topk_weights.data);
  op.out_tokens = static_cast<char*>(args.out_tokens.data);
  op.out_scales = static_cast<char*>(args.out_scales.data);
  op.out_weights = static_cast<float*>(args.out_topk_weights.data);
  op.out_idx = static_cast<int64_t*>(args.out_topk_idx.data);
  if (can_be_found(args.out_tokens) && gains_by_window(op)) {
    op.in_place = 1;
    op.token_window_id = args.out_tokens.window->id();
    op.token_window_offset = args.out_tokens.window_offset;
    if (can_be_found(args.out_scales)) {
      op.scale_window_id = args.out_scales.window->id();
      op.scale_window_offset = args.out_scales.window_offset;
    }
  }
  return group_.post(op, stream);
}

Status HtHandle::combine(const CombineArgs& args, StreamRef stream) {
  look_for_updates();
  SWITCHYARD_TRY(validate_ht_combine(*this, args));
  HtOp op = base_op(HtKind::kCombine, args.out_tokens.sizes[0]);
  op.backward = args.direction == PassDirection::kBackward;
  op.dtype = args.tokens.dtype;
  op.num_elements = uint32_t(args.tokens.sizes[1]);
  op.token_bytes = uint32_t(args.tokens.row_bytes());
  op.tokens = static_cast<const char*>(args.tokens.data);
  op.weights = static_cast<const float*>(args.topk_weights.data);
  op.out_tokens = static_cast<char*>(args.out_tokens.data);
  op.out_weights = static_cast<float*>(args.out_topk_weights.data);
  if (can_be_found(args.tokens) && gains_by_window(op)) {
    op.in_place = 1;
    op.token_window_id = args.tokens.window->id();
    op.token_window_offset = args.tokens.window_offset;
  }
  return group_.post(op, stream);
}

Status HtHandle::complete(StreamRef /*stream*/) { return group_.health(); }

}  // namespace switchyard::ep
