// What the roles of one low-latency operation share on one warp, beside what every protocol has: addresses.
#pragma once
#include "ep/ll_op.hpp"
#include "ep/peer_context.hpp"

namespace switchyard::ep {

template <class P>
class LlContext : public PeerContext<P> {
  using Peers = PeerContext<P>;

 public:
  using Peers::about;
  using Peers::await;
  using Peers::bank;
  using Peers::copy_of_told;
  using Peers::heard;
  using Peers::put_failed;
  using Peers::masked;
  using Peers::num_ranks;
  using Peers::p;
  using Peers::put;
  using Peers::rank;
  using Peers::tag;
  const LlOp& op;

  SWITCHYARD_DEVICE LlContext(const P& platform, const LlOp& operation)
      : Peers(platform, operation.group, tag_of(platform, operation), about_of(platform, operation)), op(operation) {}

  SWITCHYARD_DEVICE const LlGroupView& group() const { return op.group; }
  SWITCHYARD_DEVICE LlBankState& bank_state() const { return op.group.ll_state().bank[bank]; }
  SWITCHYARD_DEVICE char* inbox(int at_rank, int source) const {
    return group().payload[at_rank] + group().layout.inbox(bank, source);
  }
  SWITCHYARD_DEVICE char* outbox(int at_rank, int reader) const {
    return group().payload[at_rank] + group().layout.outbox(bank, reader);
  }
  SWITCHYARD_DEVICE char* departure(int dest) const {
    return group().payload[rank()] + group().layout.departure(bank, dest);
  }
  SWITCHYARD_DEVICE const char* returned(int owner) const {
    return group().payload[rank()] + group().layout.returned(bank, owner);
  }
  SWITCHYARD_DEVICE uint64_t& rows_sent(int peer) const { return group().counters[bank * num_ranks() + peer]; }

  SWITCHYARD_DEVICE LlPlan plan_layout() const {
    return {group().max_tokens * op.topk, num_ranks(), group().num_experts};
  }
  SWITCHYARD_DEVICE int32_t* plan() const { return group().plan + size_t(bank) * plan_words_per_bank(); }
  SWITCHYARD_DEVICE size_t plan_words_per_bank() const {
    return LlPlan{group().max_tokens * kMaxTopk, num_ranks(), group().num_experts}.num_words();
  }
  SWITCHYARD_DEVICE LlRecord record() const { return {num_ranks(), group().max_tokens, op.topk}; }
  SWITCHYARD_DEVICE uint64_t* dispatch_tag() const { return dispatch_tag_of(op); }
  SWITCHYARD_DEVICE LlMessage message() const { return {op.topk, op.expert_major == 0}; }
  SWITCHYARD_DEVICE int rows_per_expert() const { return num_ranks() * group().max_tokens; }

  // May this bank be written again at `peer`? Only when the peer consumed the bank's previous epoch.
  SWITCHYARD_DEVICE Await bank_free(int peer) {
    const uint64_t previous = tag - kNumBanks;
    if (previous <= p.load_relaxed(&group().state->base)) return masked(peer) ? Await::kGone : Await::kReady;
    return await(peer, &heard(peer)->done, previous, Phase::kBankFree, true);
  }

  // Rows from my `from` to the peer's `to` in the payload window, then the arrival.
  SWITCHYARD_DEVICE void tell_remote_arrival(int peer, uint32_t num_rows, uint32_t flags, uint64_t from, uint64_t to,
                                             uint64_t num_bytes) const {
    if (num_bytes > 0 && !put(peer, group().payload_id, to, from, num_bytes, bank, nullptr, 0)) return put_failed(peer);
    PeerLine* copy = copy_of_told(peer, bank);
    p.write(&copy->num_rows, num_rows);
    p.write(&copy->flags, flags);
    p.write(&copy->about, about);
    // The three lie side by side.
    const uint64_t first = offsetof(PeerLine, num_rows);
    const bool told_it =
        put(peer, group().control_id, group().control_layout.line(bank, rank()) + first,
            group().control_layout.told(bank, peer) + first, offsetof(PeerLine, done) - first, bank, &PeerLine::arrival, tag);
    if (!told_it) put_failed(peer);
  }

 private:
  SWITCHYARD_DEVICE static uint64_t tag_of(const P& p, const LlOp& op) {
    const LlState& state = op.group.ll_state();
    return op.part == LlPart::kReceive ? p.load_relaxed(&state.staged_tag[op.slot]) : p.load_relaxed(&state.tag) + 1;
  }
  SWITCHYARD_DEVICE static uint64_t about_of(const P& p, const LlOp& op) {
    const uint64_t dispatch = op.kind == LlKind::kCombine ? p.read(dispatch_tag_of(op)) : 0;
    return digest({dispatch, uint64_t(op.kind), uint64_t(op.token_bytes), uint64_t(op.scale_bytes), uint64_t(op.topk),
                   uint64_t(op.expert_major), uint64_t(op.dtype)});
  }
  SWITCHYARD_DEVICE static uint64_t* dispatch_tag_of(const LlOp& op) {
    const LlRecord record{op.group.num_ranks, op.group.max_tokens, op.topk};
    return reinterpret_cast<uint64_t*>(op.record + record.dispatch_tag());
  }
};

}  // namespace switchyard::ep
