// One high-throughput operation on one warp: its roles.
#pragma once
#include "ep/admission.hpp"
#include "ep/ht_combine.hpp"
#include "ep/ht_dispatch.hpp"
#include "ep/ht_route.hpp"
#include "switchyard/device/roles.hpp"

namespace switchyard::ep {

// False: there is no plan, and the operation says so.
template <class P>
SWITCHYARD_DEVICE bool has_plan(HtContext<P>& c) {
  if (c.read(c.at.valid()) == c.op.plan_stamp && c.read(c.at.num_tokens()) == c.op.num_tokens) return true;
  c.spoil(c.rank(), Phase::kNoPlan);
  return false;
}

// Who was masked since the plan was made has rows in it that do not come or are not sent: the operation says so. It is carried to
// its end all the same, for the sake of those who count on this rank.
template <class P>
SWITCHYARD_DEVICE void check_mask(HtContext<P>& c) {
  if (c.plan_is_stale()) c.spoil(c.rank(), Phase::kStalePlan);
}

// All ranks of this node were heard of in this operation: they are through with the ones before, and with my results in those.
template <class P>
SWITCHYARD_DEVICE void everybody_met(const HtContext<P>& c) {
  c.p.store_relaxed(&c.group().ht_state().offered, uint64_t{0});
}

template <class P>
SWITCHYARD_DEVICE void run_ht(const P& p, const HtOp& op) {
  HtContext<P> c(p, op);
  for (int end = 0; end < 2 * c.num_ranks(); ++end) p.write(&op.group.rail_ends[end], RailEnd{});
  // Half the limit; the rest is has_time_left()'s.
  typename P::Waiter waiter(p, op.group.timeout_ns / 2, op.group.abort);
  if (op.kind == HtKind::kRoute) {
    HtRoute<P> route(c);
    run_roles(p, waiter, c.overdue, route);
    everybody_met(c);
  } else if (has_plan(c)) {
    check_mask(c);
    HtGate<P> gate(c);
    if (op.kind == HtKind::kDispatch) {
      HtDispatchSend<P> send(c, gate);
      HtForward<P> forward(c, gate);
      HtDispatchReceive<P> receive(c);
      run_roles(p, waiter, c.overdue, gate, send, forward, receive);
      everybody_met(c);
    } else {
      HtOffer<P> offer(c, gate);
      HtResults<P> results(c);
      HtPartial<P> partial(c, results);
      HtReduce<P> reduce(c, results);
      HtReaders<P> readers(c, partial, reduce);
      run_roles(p, waiter, c.overdue, gate, offer, results, partial, reduce, readers);
      p.store_relaxed(&op.group.ht_state().offered, awaits_readers(c) ? uint64_t{0} : c.tag);
    }
    check_mask(c);  // of those who were masked in it
  }
  // A rank that slept through its expulsion and re-admission may have read rows of a later epoch.
  if (op.group.masks_enabled && c.newest_admission() > p.load_relaxed(&op.group.state->base)) c.raise_async_error();
  if (p.lane() == 0) p.store_relaxed(&op.group.state->tag, c.tag);
}

}  // namespace switchyard::ep
