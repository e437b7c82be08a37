// What the roles of one high-throughput operation share on one warp, beside what every protocol has: addresses, who is partner of
// whom, and telling ranks of both kinds, those that memory reaches and those that only the network does.
#pragma once
#include "ep/ht_op.hpp"
#include "ep/peer_context.hpp"

namespace switchyard::ep {

constexpr uint32_t kLostRows = 2;  // PeerLine::flags beside kRowsInPlace: the rows did not all make it, or are not to be used

template <class P>
class HtContext : public PeerContext<P> {
  using Peers = PeerContext<P>;

 public:
  using Peers::about;
  using Peers::await;
  using Peers::bank;
  using Peers::copy_of_told;
  using Peers::give_up;
  using Peers::heard;
  using Peers::lose;
  using Peers::note;
  using Peers::num_ranks;
  using Peers::p;
  using Peers::put;
  using Peers::put_failed;
  using Peers::rank;
  using Peers::remote;
  using Peers::tag;
  using Peers::told;
  const HtOp& op;
  const HtRecord at;
  int32_t* const record;

  SWITCHYARD_DEVICE HtContext(const P& platform, const HtOp& operation)
      : Peers(platform, operation.group, platform.load_relaxed(&operation.group.state->tag) + 1,
              about_of(platform, operation)),
        op(operation),
        at(layout_of(operation)),
        record(operation.record) {}

  SWITCHYARD_DEVICE const HtGroupView& group() const { return op.group; }
  SWITCHYARD_DEVICE int32_t read(size_t word) const { return p.read(&record[word]); }
  SWITCHYARD_DEVICE int owner(int expert) const { return p.read(&group().owner[expert]); }
  SWITCHYARD_DEVICE int local_id(int expert) const { return p.read(&group().local[expert]); }

  // What the plan says of an entry of one of my tokens.
  SWITCHYARD_DEVICE int32_t entry(HtRecord::Column column, int token, int k) const {
    return read(at.entry(column, size_t(token) * op.topk + k));
  }
  // Never, if it is no expert.
  SWITCHYARD_DEVICE bool is_on(int expert, int node) const {
    const int expert_owner = expert < 0 ? -1 : owner(expert);
    return expert_owner >= group().node_first[node] && expert_owner < group().node_first[node + 1];
  }
  // Has the token a row on that node?
  SWITCHYARD_DEVICE bool crosses_to(int token, int node) const {
    for (int k = 0; k < op.topk; ++k) {
      if (entry(HtRecord::kSlot, token, k) >= 0 && is_on(entry(HtRecord::kExpert, token, k), node)) return true;
    }
    return false;
  }

  SWITCHYARD_DEVICE char* inbox(int at_rank, int source, int row) const {
    return group().payload[at_rank] + group().layout.inbox(source) + uint64_t(row) * row_bytes();
  }
  SWITCHYARD_DEVICE int32_t* meta_ids(int at_rank, int source, int row) const {
    return reinterpret_cast<int32_t*>(group().payload[at_rank] + group().layout.meta(source) +
                                      uint64_t(row) * uint64_t(op.topk) * HtLayout::kEntryBytes);
  }
  SWITCHYARD_DEVICE float* meta_weights(int at_rank, int source, int row) const {
    return reinterpret_cast<float*>(meta_ids(at_rank, source, row) + op.topk);
  }
  SWITCHYARD_DEVICE float* gradients(int at_rank, int64_t slot) const {
    return reinterpret_cast<float*>(group().payload[at_rank] + group().layout.gradients()) +
           slot * (op.expert_major ? 1 : op.topk);
  }
  SWITCHYARD_DEVICE uint64_t row_bytes() const { return uint64_t(op.token_bytes) + op.scale_bytes; }

  SWITCHYARD_DEVICE RailEnd& rail_out(int peer) const { return group().rail_ends[peer]; }
  SWITCHYARD_DEVICE RailEnd& rail_in(int peer) const { return group().rail_ends[num_ranks() + peer]; }

  // Ranks of other nodes that I exchange rows with, directly: those who forward for me, and those I forward for.
  template <class Body>
  SWITCHYARD_DEVICE void for_each_rail_partner(Body body) const {
    for (int node = 0; node < group().num_nodes; ++node) {
      if (node != group().node) body(group().forwarder(rank(), node));
    }
    for (int idx = 0; idx < group().num_rail_sources; ++idx) {
      const int source = p.read(&group().rail_sources[idx]);
      if (source != group().forwarder(rank(), group().node_of(source))) body(source);
    }
  }

  // "I have reached this operation", where my tensor is, and what I think the operation is; to those who will look.
  SWITCHYARD_DEVICE void tell_consent() const {
    for (int peer = group().first_local(); peer < group().end_local(); ++peer) {
      PeerLine* line = told(peer);
      if (p.lane() == 0) {
        p.write(&line->token_offset, op.token_window_offset);
        p.write(&line->scale_offset, op.scale_window_offset);
        p.write(&line->token_window, op.in_place ? op.token_window_id : 0);
        p.write(&line->scale_window, op.in_place ? op.scale_window_id : 0);
        p.write(&line->about, about);
      }
      p.store_release(&line->consent, tag);  // release; pairs with the acquire in await_consent()
    }
    for_each_rail_partner([&](int peer) {
      if (this->masked(peer)) return;
      PeerLine* copy = copy_of_told(peer, bank);
      p.write(&copy->about, about);
      const uint64_t place = offsetof(PeerLine, about);
      if (!put(peer, group().control_id, group().control_layout.line(bank, rank()) + place,
               group().control_layout.told(bank, peer) + place, sizeof(uint64_t), bank, &PeerLine::consent, tag)) {
        put_failed(peer);
      }
    });
  }
  SWITCHYARD_DEVICE Await await_consent(int peer) {
    const Await consent = await(peer, &heard(peer)->consent, tag, Phase::kConsent);
    if (consent == Await::kReady && p.read(&heard(peer)->about) != about) return give_up(peer, Phase::kOtherOperation);
    return consent;
  }
  // The part of the waits at the beginning: everybody who writes to me or whom I write to. Not yet: false.
  SWITCHYARD_DEVICE bool all_consented(int& next) {
    while (next < num_ranks()) {
      const bool partner = group().is_local(next) || is_rail_partner(next);
      if (partner && await_consent(next) == Await::kNotYet) return false;
      ++next;
    }
    return true;
  }
  // The operation before this one was the update that made its plan, and on one node: then everybody has said something since it
  // was through with all older operations, and my rows may go to inboxes. To outputs they may not: those have to be offered.
  SWITCHYARD_DEVICE bool follows_its_plan() const {
    return op.kind == HtKind::kDispatch && op.token_window_id == 0 && group().num_nodes == 1 && plan_tag(p, op) + 1 == tag;
  }
  SWITCHYARD_DEVICE bool is_rail_partner(int peer) const {
    const int node = group().node_of(peer);
    return peer == group().forwarder(rank(), node) || rank() == group().forwarder(peer, group().node);
  }

  // May rows go straight to that rank's output? It is mine; or it was offered, and is in the window that mine is in. With
  // scales, both.
  SWITCHYARD_DEVICE bool writes_in_place(int peer) const {
    if (peer == rank()) return true;
    if (op.token_window_id == 0 || p.read(&heard(peer)->token_window) != op.token_window_id) return false;
    return op.scale_bytes == 0 ||
           (op.scale_window_id != 0 && p.read(&heard(peer)->scale_window) == op.scale_window_id);
  }

  // Everything that I had for `peer` is in place. What the operation is was told with the consent, and is not written again:
  // the peer may be reading it.
  SWITCHYARD_DEVICE void tell_arrival(int peer, uint32_t flags) const {
    PeerLine* line = told(peer);
    if (p.lane() == 0) p.write(&line->flags, flags);
    p.store_release(&line->arrival, tag);  // release; pairs with the acquire in await(kDispatchRows, kCombineRows)
  }
  // Everything that I had of `source`, a rank of another node, is in place at `peer`.
  SWITCHYARD_DEVICE void tell_arrival_of(int source, int peer, uint32_t flags) const {
    PeerLine* line = this->line_at(peer, bank, source);
    if (p.lane() == 0) p.write(&line->forwarded_flags, flags);
    p.store_release(&line->forwarded, tag);  // release; pairs with the acquire in HtDispatchReceive::await_source()
  }

  // Something that spoils this operation but not the group. True: it is the first that was noted.
  SWITCHYARD_DEVICE bool spoil(int peer, Phase phase) const { return note(&Report::fault, this->problem(peer, phase)); }

  // Who is masked: a plan is good for as long as that does not change. Never kNoMask, which is of a plan that is good for nothing.
  static constexpr uint64_t kNoMask = 0;
  SWITCHYARD_DEVICE uint64_t mask_digest() const {
    uint64_t mixed = 0;
    for (int peer = 0; peer < num_ranks(); ++peer) mixed = digest({mixed, uint64_t(this->masked(peer))});
    return mixed | 1;
  }
  SWITCHYARD_DEVICE bool plan_is_stale() const {
    return p.read(reinterpret_cast<const uint64_t*>(&record[at.mask()])) != mask_digest();
  }

  // Does a row of `source` get to `reader`, one of the two being this rank? Not if who forwards it is masked.
  SWITCHYARD_DEVICE bool has_way(int source, int reader) const {
    const int writer = group().node_of(source) == group().node_of(reader)
                           ? source
                           : group().forwarder(source, group().node_of(reader));
    return !this->masked(source) && !this->masked(reader) && !this->masked(writer);
  }

 private:
  SWITCHYARD_DEVICE static HtRecord layout_of(const HtOp& op) {
    return {op.group.num_ranks, op.group.max_tokens, op.topk, op.group.max_local, op.group.num_rail_sources};
  }
  SWITCHYARD_DEVICE static uint64_t plan_tag(const P& p, const HtOp& op) {
    return p.read(reinterpret_cast<const uint64_t*>(op.record + layout_of(op).plan_tag()));
  }
  SWITCHYARD_DEVICE static uint64_t about_of(const P& p, const HtOp& op) {
    const uint64_t plan = op.kind == HtKind::kRoute ? 0 : plan_tag(p, op);
    const uint64_t alignment = op.kind == HtKind::kRoute && op.expert_major ? uint64_t(op.alignment) : 0;  // flat: of no account
    return digest({plan, uint64_t(op.kind), uint64_t(op.backward), uint64_t(op.token_bytes), uint64_t(op.scale_bytes),
                   uint64_t(op.topk), uint64_t(op.expert_major), uint64_t(op.dtype), alignment});
  }
};

}  // namespace switchyard::ep
