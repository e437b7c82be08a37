// The C++ face over Group and Handle: Status becomes an exception here and nowhere below.
#include "comm/face.hpp"
#include "ep/group.hpp"
#include "ep/handle.hpp"
#include "switchyard/ep.hpp"

namespace switchyard::ep {
namespace {

using face::check;
using face::take;

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
void EpGroup::mask_query(int32_t* device_mask, StreamRef stream) {
  check(group_->mask_query(device_mask, stream));
}
void EpGroup::mask_update(const int32_t* host_mask, StreamRef stream) {
  check(group_->mask_update(host_mask, stream));
}
void EpGroup::mask_clean(StreamRef stream) { check(group_->mask_clean(stream)); }
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
void EpHandle::update(const Tensor& topk_idx, const LayoutInfo& info, StreamRef stream) {
  check(handle_->update(topk_idx, info, stream));
}
void EpHandle::dispatch(const DispatchArgs& args, StreamRef stream) { check(handle_->dispatch(args, stream)); }
void EpHandle::combine(const CombineArgs& args, StreamRef stream) { check(handle_->combine(args, stream)); }
void EpHandle::complete(StreamRef stream) { check(handle_->complete(stream)); }

}  // namespace switchyard::ep
