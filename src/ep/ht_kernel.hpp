// One high-throughput operation on one warp: its roles.
#pragma once
#include "ep/admission.hpp"
#include "ep/ht_combine.hpp"
#include "ep/ht_dispatch.hpp"
#include "ep/ht_route.hpp"
#include "switchyard/device/roles.hpp"

namespace switchyard::ep {

// A plan that was not made, or was made before a mask changed, can't be followed without surprises: says so. False: there is none.
template <class P>
SWITCHYARD_DEVICE bool check_plan(HtContext<P>& c) {
  if (c.read(c.at.valid()) != HtRecord::kValid || c.read(c.at.num_tokens()) != c.op.num_tokens) {
    c.spoil(c.rank(), Phase::kNoPlan);
    return false;
  }
  if (c.p.read(reinterpret_cast<const uint64_t*>(&c.record[c.at.mask()])) != c.mask_digest()) {
    c.spoil(c.rank(), Phase::kStalePlan);  // goes on, for the sake of those who count on this rank
  }
  return true;
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
  } else if (check_plan(c)) {
    HtGate<P> gate(c);
    if (op.kind == HtKind::kDispatch) {
      HtDispatchSend<P> send(c, gate);
      HtForward<P> forward(c, gate);
      HtDispatchReceive<P> receive(c);
      run_roles(p, waiter, c.overdue, gate, send, forward, receive);
    } else {
      HtOffer<P> offer(c);
      HtResults<P> results(c);
      HtPartial<P> partial(c, results);
      HtReduce<P> reduce(c, results);
      HtReaders<P> readers(c, partial, reduce);
      run_roles(p, waiter, c.overdue, gate, offer, results, partial, reduce, readers);
    }
  }
  // A rank that slept through its expulsion and re-admission may have read rows of a later epoch.
  if (op.group.masks_enabled && c.newest_admission() > p.load_relaxed(&op.group.state->base)) c.note_overtaken();
  if (p.lane() == 0) p.store_relaxed(&op.group.state->tag, c.tag);
}

}  // namespace switchyard::ep
