// Generations: how a rank that was given up on comes back. Runs on one warp, between operations.
//
// The active ranks agree on the host where the new generation starts (Group::mask_clean); each then writes that tag to
// those it had masked. Such a rank adopts it before its next operation, so that tags, banks and masks agree again.
#pragma once
#include "ep/peer_context.hpp"
#include "switchyard/device/roles.hpp"

namespace switchyard::ep {

enum class Admission : int32_t {
  kAdopt = 0,  // go on where others want this rank to, if they do: before every operation of a group with masks
  kAdmit = 1,  // start a new generation at a tag, telling those who were masked
  kAwait = 2,  // wait until the others re-admit this rank
};

template <class P>
SWITCHYARD_DEVICE void start_generation(const PeerContext<P>& c, const GroupView& group, uint64_t base) {
  GroupState& state = *group.state;
  for (int peer = c.p.lane(); peer < c.num_ranks(); peer += P::kLanes) c.p.store_relaxed(&group.mask[peer], 1);
  c.p.sync_warp();
  if (c.p.lane() != 0) return;
  c.p.store_relaxed(&state.base, base);
  c.p.store_relaxed(&state.tag, base);
}

template <class P>
SWITCHYARD_DEVICE void admit_all(const PeerContext<P>& c, const GroupView& group, uint64_t admit_tag) {
  SWITCHYARD_KERNEL_FAILPOINT("ll.admission.before_tell");
  for (int peer = 0; peer < c.num_ranks(); ++peer) {
    if (!c.masked(peer)) continue;
    // release; pairs with the acquire in newest_admission()
    if (c.remote(peer)) static_cast<void>(c.tell_remote(peer, 0, &PeerLine::admit, admit_tag));
    else c.p.store_release(&c.line_at(peer, 0, c.rank())->admit, admit_tag);
  }
  SWITCHYARD_KERNEL_FAILPOINT("ll.admission.told");
  start_generation(c, group, admit_tag);
}

template <class P>
SWITCHYARD_DEVICE bool adopt_generation(const PeerContext<P>& c, const GroupView& group) {
  const uint64_t newest = c.newest_admission();
  if (newest <= c.p.load_relaxed(&group.state->base)) return false;
  start_generation(c, group, newest);
  if (c.p.lane() == 0) c.p.store_relaxed(&group.state->adopted, newest + 1);
  // Some may have waited in vain again since: they are gone until the next generation.
  for (int peer = 0; peer < c.num_ranks(); ++peer) {
    if (!c.expelled_by(peer)) continue;
    c.p.store_relaxed(&group.mask[peer], 0);
    c.raise_async_error();
  }
  return true;
}

// Waits until the others re-admit this rank.
template <class P>
class AwaitAdmission {
 public:
  SWITCHYARD_DEVICE AwaitAdmission(PeerContext<P>& context, const GroupView& group) : c_(context), group_(group) {}
  SWITCHYARD_DEVICE bool done() const { return done_; }
  SWITCHYARD_DEVICE bool step() {
    done_ = adopt_generation(c_, group_) || c_.overdue;  // the host looks which; the rank may ask again
    return done_;
  }

 private:
  PeerContext<P>& c_;
  const GroupView& group_;
  bool done_ = false;
};

template <class P>
SWITCHYARD_DEVICE void run_admission(const P& p, const GroupView& group, Admission what, uint64_t admit_tag) {
  PeerContext<P> c(p, group, p.load_relaxed(&group.state->tag) + 1, 0);
  if (what == Admission::kAdmit) {
    admit_all(c, group, admit_tag);
  } else if (what == Admission::kAwait) {
    typename P::Waiter waiter(p, group.timeout_ns, group.abort);
    AwaitAdmission<P> admission(c, group);
    run_roles(p, waiter, c.overdue, admission);
  } else {
    adopt_generation(c, group);
  }
}

}  // namespace switchyard::ep
