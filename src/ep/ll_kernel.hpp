// One low-latency operation on one warp: its roles, and what the last warp out has to do.
#pragma once
#include "ep/admission.hpp"
#include "ep/ll_combine.hpp"
#include "ep/ll_dispatch.hpp"
#include "switchyard/device/roles.hpp"

namespace switchyard::ep {

// The last warp closes the epoch: readers of this bank are through, so peers may write it again.
template <class P>
SWITCHYARD_DEVICE void close_operation(LlContext<P>& c) {
  LlBankState& bank = c.bank_state();
  if (c.p.fetch_add(&bank.warps_finished, 1) + 1 != uint64_t(c.p.num_warps())) return;
  SWITCHYARD_KERNEL_FAILPOINT("ll.before_done");
  LlState& state = c.group().ll_state();
  // A rank that slept through its expulsion and re-admission may have read rows of a later epoch: it must not claim a good
  // result. Before the re-admission nobody writes what it reads.
  if (c.group().masks_enabled && c.newest_admission() > c.p.load_relaxed(&state.base)) c.raise_async_error();
  if (c.op.part != LlPart::kSend && !c.failed()) {
    for (int peer = 0; peer < c.num_ranks(); ++peer) {
      if (c.remote(peer)) {
        // A peer that can't be told is found out by the next wait for it. This operation has all it needs, and the peer may
        // have left because it was through.
        if (!c.masked(peer)) static_cast<void>(c.tell_remote(peer, c.bank, &PeerLine::done, c.tag));
        continue;
      }
      // release; pairs with the acquire in bank_free() and AwaitReaders
      if (!c.masked(peer)) c.p.store_release(&c.told(peer)->done, c.tag);
    }
  }
  SWITCHYARD_KERNEL_FAILPOINT("ll.after_done");
  if (c.p.lane() == 0) {
    for (int peer = 0; peer < c.num_ranks(); ++peer) c.p.write(&c.rows_sent(peer), uint64_t{0});
    c.p.write(&bank.plan_ready, uint64_t{0});
    c.p.write(&bank.num_scanned, uint64_t{0});
    c.p.write(&bank.all_arrived, uint64_t{0});
    c.p.write(&bank.warps_finished, uint64_t{0});
    if (c.op.part != LlPart::kReceive) c.p.store_relaxed(&state.tag, c.tag);
    if (c.op.part == LlPart::kSend) c.p.store_relaxed(&state.staged_tag[c.op.slot], c.tag);
  }
}

// How long an operation waits before it says so; the rest of its time limit is has_time_left()'s.
SWITCHYARD_HD uint64_t exchange_wait_ns(const LlOp& op) { return op.group.timeout_ns / 2; }

// One operation of a kind that moves rows: Send and Receive are the roles of that kind.
template <template <class> class Send, template <class> class Receive, class P>
SWITCHYARD_DEVICE void run_exchange(const P& p, const LlOp& op) {
  LlContext<P> c(p, op);
  typename P::Waiter waiter(p, exchange_wait_ns(op), op.group.abort);
  Send<P> send(c);
  Receive<P> receive(c);
  if (op.part == LlPart::kSend) run_roles(p, waiter, c.overdue, send);
  else if (op.part == LlPart::kReceive) run_roles(p, waiter, c.overdue, receive);
  else run_roles(p, waiter, c.overdue, send, receive);
  close_operation(c);
  if (op.kind == LlKind::kCombine && op.in_place && p.warp_idx() == 0) {
    AwaitReaders<P> readers(c);
    run_roles(p, waiter, c.overdue, readers);
  }
}

template <class P>
SWITCHYARD_DEVICE void run_dispatch(const P& p, const LlOp& op) {
  run_exchange<DispatchSend, DispatchReceive>(p, op);
}
template <class P>
SWITCHYARD_DEVICE void run_combine(const P& p, const LlOp& op) {
  run_exchange<CombineSend, CombineReceive>(p, op);
}

}  // namespace switchyard::ep
