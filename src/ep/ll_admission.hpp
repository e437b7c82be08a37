// Generations: how a rank that was given up on comes back. Runs on one warp, between operations.
//
// The active ranks agree on the host where the new generation starts (Group::mask_clean); each then writes that tag to
// those it had masked. Such a rank adopts it before its next operation, so that tags, banks and masks agree again.
#pragma once
#include "ep/ll_context.hpp"

namespace switchyard::ep {

template <class P>
SWITCHYARD_DEVICE void start_generation(const LlContext<P>& c, uint64_t base) {
  LlState& state = *c.group().state;
  for (int peer = c.p.lane(); peer < c.num_ranks(); peer += P::kLanes) c.p.store_relaxed(&c.group().mask[peer], 1);
  c.p.sync_warp();
  if (c.p.lane() != 0) return;
  c.p.store_relaxed(&state.base, base);
  c.p.store_relaxed(&state.tag, base);
}

template <class P>
SWITCHYARD_DEVICE void admit_all(const LlContext<P>& c) {
  SWITCHYARD_KERNEL_FAILPOINT("ll.admission.before_tell");
  for (int peer = 0; peer < c.num_ranks(); ++peer) {
    if (!c.masked(peer)) continue;
    // release; pairs with the acquire in newest_admission()
    if (c.remote(peer)) static_cast<void>(c.tell_remote(peer, 0, &LlLine::admit, c.op.admit_tag));
    else c.p.store_release(&c.line_at(peer, 0, c.rank())->admit, c.op.admit_tag);
  }
  SWITCHYARD_KERNEL_FAILPOINT("ll.admission.told");
  start_generation(c, c.op.admit_tag);
}

template <class P>
SWITCHYARD_DEVICE bool adopt_generation(const LlContext<P>& c) {
  const uint64_t newest = c.newest_admission();
  if (newest <= c.p.load_relaxed(&c.group().state->base)) return false;
  start_generation(c, newest);
  if (c.p.lane() == 0) c.p.store_relaxed(&c.group().state->adopted, newest + 1);
  // Some may have waited in vain again since: they are gone until the next generation.
  for (int peer = 0; peer < c.num_ranks(); ++peer) {
    if (!c.expelled_by(peer)) continue;
    c.p.store_relaxed(&c.group().mask[peer], 0);
    c.note_overtaken();
  }
  return true;
}

// Waits until the others re-admit this rank.
template <class P>
class AwaitAdmission {
 public:
  SWITCHYARD_DEVICE explicit AwaitAdmission(LlContext<P>& context) : c_(context) {}
  SWITCHYARD_DEVICE bool done() const { return done_; }
  SWITCHYARD_DEVICE bool step() {
    done_ = adopt_generation(c_) || c_.overdue;  // the host looks which; the rank may ask again
    return done_;
  }

 private:
  LlContext<P>& c_;
  bool done_ = false;
};

}  // namespace switchyard::ep
