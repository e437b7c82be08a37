// Masks: who is left out, and how those who were left out come back (docs/errors.md).
#include <algorithm>
#include <atomic>

#include "base/failpoint.hpp"
#include "ep/group.hpp"

namespace switchyard::ep {
namespace {

constexpr uint64_t kCleanPurpose = 0x636c65616e;  // names the exchanges of a clean-up

}  // namespace

Status Group::require_masks() const {
  if (config_.enable_mask) return {};
  return Status::invalid_usage("the group was created without enable_mask");
}

Status Group::mask_query(int32_t* device_mask, StreamRef stream) {
  SWITCHYARD_TRY(require_masks());
  SWITCHYARD_TRY(order(stream));
  return comm_.runtime().copy_async(device_mask, mask_, size_t(num_ranks()) * sizeof(int32_t), stream);
}

Status Group::mask_update(const int32_t* host_mask, StreamRef stream) {
  SWITCHYARD_TRY(require_masks());
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (host_mask[peer] == 0 || host_mask[peer] == 1) continue;
    return Status::invalid_argument(text("mask[", peer, "] is ", host_mask[peer], ", allowed 0 (masked) or 1 (active)"));
  }
  if (host_mask[rank()] == 0) return Status::invalid_argument(text("rank ", rank(), " can't mask itself"));
  SWITCHYARD_TRY(order(stream));
  masked_by_caller_.assign(size_t(num_ranks()), false);
  for (int peer = 0; peer < num_ranks(); ++peer) masked_by_caller_[size_t(peer)] = host_mask[peer] == 0;
  return comm_.runtime().upload_async(mask_, host_mask, size_t(num_ranks()) * sizeof(int32_t), stream);
}

Result<int> Group::async_error() const {
  SWITCHYARD_TRY(require_masks());
  return std::atomic_ref(report_->async_error).load(std::memory_order_relaxed) != 0 ? 1 : 0;
}

Status Group::error_clear() {
  SWITCHYARD_TRY(require_masks());
  std::atomic_ref(report_->async_error).store(0, std::memory_order_relaxed);
  std::atomic_ref(report_->fault).store(0, std::memory_order_relaxed);
  const uint64_t none = 0;  // so that the next fault counts as the first again
  return comm_.runtime().upload(&state_->noted.fault, &none, sizeof(none));
}

// Everybody who is still active agrees on where to go on: behind the furthest epoch of any of them, in a new generation,
// so that no tag of an operation that was given up can ever match again. Those who were masked find the new start in
// their own control window and adopt it with their next operation (admission.hpp).
Status Group::mask_clean(StreamRef stream) {
  SWITCHYARD_TRY(require_masks());
  SWITCHYARD_TRY(health());
  Runtime& runtime = comm_.runtime();
  SWITCHYARD_TRY(order(stream));
  SWITCHYARD_TRY(runtime.synchronize(stream, drained()));
  std::vector<int32_t> mask(static_cast<size_t>(num_ranks()));
  SWITCHYARD_TRY(runtime.download(mask.data(), mask_, mask.size() * sizeof(int32_t)));
  if (any_staged()) {
    return Status::invalid_usage("a staged operation is open: call ncclEpComplete before ncclEpMaskClean");
  }
  SWITCHYARD_ASSIGN(const GroupState state, read_state());
  SWITCHYARD_ASSIGN(const bool was_expelled, expelled(state));
  if (was_expelled) return await_admission(stream);
  std::vector<int> active;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (mask[size_t(peer)] != 0) active.push_back(peer);
  }
  SWITCHYARD_FAILPOINT_TRY("mask.before_agreement");
  // Two rounds: everyone's tag, then everyone's "I am through with the old one" before anybody writes anew.
  SWITCHYARD_ASSIGN(const std::vector<uint64_t> tags, comm_.exchange_among(active, kCleanPurpose, state.tag));
  uint64_t furthest = 0;
  for (const uint64_t tag : tags) furthest = std::max(furthest, tag);
  const uint64_t generation = (furthest >> kEpochBits) + 1;
  const uint64_t base = generation << kEpochBits | ((furthest & kEpochMask) + kNumBanks);
  SWITCHYARD_FAILPOINT_TRY("mask.after_agreement");
  SWITCHYARD_TRY(post_admission(Admission::kAdmit, base, stream));
  SWITCHYARD_TRY(runtime.synchronize(stream, drained()));
  SWITCHYARD_ASSIGN(const std::vector<uint64_t> bases, comm_.exchange_among(active, kCleanPurpose, base));
  for (size_t i = 0; i < bases.size(); ++i) {
    if (bases[i] != base) return Status::internal(text("rank ", active[i], " starts another generation"));
  }
  masked_by_caller_.clear();
  return {};
}

// Has a peer given up on this rank since its generation began? One that the caller masked here does not count: it gave
// up on this rank because this rank had no ear for it any more.
Result<bool> Group::expelled(const GroupState& state) const {
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (!masked_by_caller_.empty() && masked_by_caller_[size_t(peer)]) continue;
    SWITCHYARD_ASSIGN(const uint64_t tag, told_by(peer, &PeerLine::expelled));
    if (tag > state.base) return true;
  }
  return false;
}

// The others clean up among themselves and tell this rank where to go on. Not in time: the caller may ask again.
Status Group::await_admission(StreamRef stream) {
  SWITCHYARD_TRY(post_admission(Admission::kAwait, 0, stream));
  SWITCHYARD_TRY(comm_.runtime().synchronize(stream, drained()));
  SWITCHYARD_TRY(health());
  SWITCHYARD_ASSIGN(const GroupState state, read_state());
  SWITCHYARD_ASSIGN(const bool still_out, expelled(state));
  if (!still_out) return {};
  return Status::remote(text("rank ", rank(), ": the other ranks did not re-admit it within ",
                             double(timeout_ns_) / kMillisecond, " ms; they must call ncclEpMaskClean"));
}

}  // namespace switchyard::ep
