// The sender's plan: which rank gets which token, at which index. Built by one warp with deterministic scans.
#pragma once
#include "ep/ll_context.hpp"

namespace switchyard::ep {

template <class P>
SWITCHYARD_DEVICE int64_t routed_expert(const LlContext<P>& c, int entry) {
  return c.op.indices_are_64 ? c.p.read(static_cast<const int64_t*>(c.op.topk_idx) + entry)
                             : int64_t(c.p.read(static_cast<const int32_t*>(c.op.topk_idx) + entry));
}

// Does an earlier k of the same token go to the same rank? Then that entry carries the row.
template <class P>
SWITCHYARD_DEVICE bool sent_by_earlier_entry(const LlContext<P>& c, const int32_t* experts, int entry, int owner) {
  const int first = entry / c.op.topk * c.op.topk;
  for (int other = first; other < entry; ++other) {
    const int expert = c.p.read(experts + other);
    if (expert >= 0 && c.p.read(&c.group().owner[expert]) == owner) return true;
  }
  return false;
}

// Fills expert, dest, index and num_to. `once_per_rank`: a token's row travels once to each rank (dispatch, rank-major
// combine); otherwise every entry has its own row (expert-major combine).
template <class P>
SWITCHYARD_DEVICE void build_plan(const LlContext<P>& c, bool once_per_rank) {
  const P& p = c.p;
  const LlPlan at = c.plan_layout();
  int32_t* plan = c.plan();
  const int num_entries = c.op.num_tokens * c.op.topk;
  for (int entry = p.lane(); entry < num_entries; entry += P::kLanes) {
    int64_t expert = routed_expert(c, entry);
    if (expert < 0 || expert >= c.group().num_experts) {
      if (expert != -1) c.note(&Report::fault, c.rank(), Phase::kBadRouting);
      expert = -1;
    }
    p.write(&plan[at.expert(entry)], int32_t(expert));
  }
  p.sync_warp();
  for (int entry = p.lane(); entry < num_entries; entry += P::kLanes) {
    const int expert = p.read(&plan[at.expert(entry)]);
    int dest = expert < 0 ? -1 : p.read(&c.group().owner[expert]);
    if (dest >= 0 && p.read(&c.group().mask[dest]) == 0) dest = -1;  // not masked(): lanes ask for different ranks
    if (dest >= 0 && once_per_rank && sent_by_earlier_entry(c, &plan[at.expert(0)], entry, dest)) dest = -1;
    p.write(&plan[at.dest(entry)], dest);
  }
  for (int rank = p.lane(); rank < c.num_ranks(); rank += P::kLanes) p.write(&plan[at.num_to(rank)], int32_t{0});
  p.sync_warp();
  p.stable_ranks(&plan[at.dest(0)], num_entries, &plan[at.num_to(0)], &plan[at.index(0)]);
}

// Fills slot with each entry's ordinal among my rows of its expert, and expert_count.
template <class P>
SWITCHYARD_DEVICE void count_experts(const LlContext<P>& c) {
  const LlPlan at = c.plan_layout();
  int32_t* plan = c.plan();
  for (int id = c.p.lane(); id < c.group().num_experts; id += P::kLanes) {
    c.p.write(&plan[at.expert_count(id)], int32_t{0});
  }
  c.p.sync_warp();
  c.p.stable_ranks(&plan[at.expert(0)], c.op.num_tokens * c.op.topk, &plan[at.expert_count(0)], &plan[at.slot(0)]);
}

// Turns ordinals into final rows at the owners: rows of lower-ranked sources come first. Needs every source's counts.
template <class P>
SWITCHYARD_DEVICE void place_in_experts(const LlContext<P>& c) {
  const P& p = c.p;
  const LlPlan at = c.plan_layout();
  int32_t* plan = c.plan();
  for (int id = p.lane(); id < c.group().num_experts; id += P::kLanes) {
    int32_t base = 0;
    for (int source = 0; source < c.rank(); ++source) {
      base += p.read(c.board_at(c.rank(), source) + id);
    }
    p.write(&plan[at.expert_base(id)], base);
  }
  p.sync_warp();
  const LlRecord record = c.record();
  for (int entry = p.lane(); entry < c.op.num_tokens * c.op.topk; entry += P::kLanes) {
    const int expert = p.read(&plan[at.expert(entry)]);
    int32_t row = -1;
    if (expert >= 0) {
      const int slot = p.read(&plan[at.expert_base(expert)]) + p.read(&plan[at.slot(entry)]);
      if (slot >= 0 && slot < c.rows_per_expert()) row = p.read(&c.group().local[expert]) * c.rows_per_expert() + slot;
      else c.note(&Report::fault, c.rank(), Phase::kExpertFull);
    }
    p.write(&plan[at.slot(entry)], row);
    p.write(&c.op.record[record.final_slot(0, 0) + entry], row);
  }
  p.sync_warp();
}

}  // namespace switchyard::ep
