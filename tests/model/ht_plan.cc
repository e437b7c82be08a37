#include "model/ht_plan.hpp"

#include <algorithm>
#include <cstring>

namespace switchyard::model {
namespace {

int expert_of(const HtCase& c, char route, int rank, int token, int k) {
  const int next_rank = (rank + 1) % c.num_ranks();
  if (route == 'a') return next_rank * c.num_local + (token + k) % c.num_local;
  const int first = route == 'l' ? c.num_experts() - 1 : next_rank * c.num_local + token;
  return (first + k) % c.num_experts();
}

}  // namespace

std::vector<int32_t> HtNodes::rail_sources(int rank) const {
  std::vector<int32_t> sources;
  const int node = node_of(rank);
  const int size = first_[size_t(node) + 1] - first_[size_t(node)];
  for (int source = 0; source < first_.back(); ++source) {
    const int place = source - first_[size_t(node_of(source))];
    if (!are_together(source, rank) && first_[size_t(node)] + place % size == rank) sources.push_back(source);
  }
  return sources;
}

HtPlan::HtPlan(const HtCase& c, char route) : c_(c), nodes_(c.nodes) {
  const auto num_ranks = size_t(c_.num_ranks());
  for (int rank = 0; rank < c_.num_ranks(); ++rank) {
    for (int token = 0; token < c_.num_tokens; ++token) {
      for (int k = 0; k < c_.topk; ++k) entries_.push_back({expert_of(c_, route, rank, token, k), -1, -1});
    }
  }
  total_.resize(num_ranks);
  bases_.resize(num_ranks * num_ranks);
  received_.resize(num_ranks * num_ranks);
  zone_ends_.resize(size_t(c_.num_experts()) * (num_ranks + 2));
  if (c_.expert_major) place_by_expert();
  else place_by_source();
  drop_and_count();
}

bool HtPlan::is_first_at_its_rank(int rank, int token, int k) const {
  for (int other = 0; other < k; ++other) {
    if (owner(entry(rank, token, other).expert) == owner(entry(rank, token, k).expert)) return false;
  }
  return true;
}

void HtPlan::place_by_source() {
  for (int rank = 0; rank < c_.num_ranks(); ++rank) {
    int slot = 0;
    for (int source = 0; source < c_.num_ranks(); ++source) {
      bases_[size_t(rank * c_.num_ranks() + source)] = slot;
      for (int token = 0; token < c_.num_tokens; ++token) {
        for (int k = 0; k < c_.topk; ++k) {
          Entry& entry = entry_at(source, token, k);
          if (owner(entry.expert) == rank && is_first_at_its_rank(source, token, k)) entry.slot = slot++;
        }
      }
    }
    total_[size_t(rank)] = slot;
  }
}

void HtPlan::place_by_expert() {
  for (int expert = 0; expert < c_.num_experts(); ++expert) {
    int& slot = total_[size_t(owner(expert))];
    int32_t* zone = &zone_ends_[size_t(expert * (c_.num_ranks() + 2))];
    *zone++ = within(slot);
    for (int source = 0; source < c_.num_ranks(); ++source) {
      for (int token = 0; token < c_.num_tokens; ++token) {
        for (int k = 0; k < c_.topk; ++k) {
          Entry& entry = entry_at(source, token, k);
          if (entry.expert == expert) entry.slot = slot++;
        }
      }
      *zone++ = within(slot);
    }
    slot = (slot + HtCase::kAlignment - 1) / HtCase::kAlignment * HtCase::kAlignment;
    *zone = within(slot);
  }
}

void HtPlan::drop_and_count() {
  for (int source = 0; source < c_.num_ranks(); ++source) {
    for (int token = 0; token < c_.num_tokens; ++token) {
      for (int k = 0; k < c_.topk; ++k) {
        Entry& entry = entry_at(source, token, k);
        if (c_.budget > 0 && entry.slot >= c_.budget) entry.slot = -1;
        bool is_spoken_for = entry.slot < 0;
        for (int other = 0; other < k; ++other) {
          const Entry& earlier = this->entry(source, token, other);
          is_spoken_for |= earlier.index >= 0 && owner(earlier.expert) == owner(entry.expert);
        }
        if (!is_spoken_for) entry.index = received_[size_t(owner(entry.expert) * c_.num_ranks() + source)]++;
      }
    }
  }
}

ep::HtRecord HtPlan::layout(int rank) const {
  return {c_.num_ranks(), c_.num_tokens, c_.topk, c_.num_local, int(nodes_.rail_sources(rank).size())};
}

std::vector<int32_t> HtPlan::record(int rank, uint64_t tag) const {
  const ep::HtRecord at = layout(rank);
  std::vector<int32_t> words(at.num_words());
  uint64_t mask = 0;
  for (int peer = 0; peer < c_.num_ranks(); ++peer) mask = digest({mask, 0});
  mask |= 1;  // as HtContext::mask_digest() has it where nobody is masked
  std::memcpy(&words[at.plan_tag()], &tag, sizeof tag);
  std::memcpy(&words[at.mask()], &mask, sizeof mask);
  words[at.valid()] = kPlanStamp;
  words[at.num_tokens()] = c_.num_tokens;
  words[at.num_slots()] = within(total(rank));
  for (int idx = 0; idx < c_.num_tokens * c_.topk; ++idx) {
    const Entry& own = entry(rank, idx / c_.topk, idx % c_.topk);
    words[at.entry(ep::HtRecord::kExpert, size_t(idx))] = own.expert;
    words[at.entry(ep::HtRecord::kSlot, size_t(idx))] = own.slot;
    words[at.entry(ep::HtRecord::kIndex, size_t(idx))] = own.index;
  }
  for (int source = 0; source < c_.num_ranks(); ++source) {
    words[at.received(source)] = received_[size_t(rank * c_.num_ranks() + source)];
    words[at.base(source)] = bases_[size_t(rank * c_.num_ranks() + source)];
  }
  const auto zones = zone_ends_.begin() + ptrdiff_t(rank * c_.num_local * (c_.num_ranks() + 2));
  std::copy_n(zones, c_.num_local * (c_.num_ranks() + 2), words.begin() + ptrdiff_t(at.zone_first(0)));
  write_rails(rank, words);
  return words;
}

void HtPlan::write_rails(int rank, std::vector<int32_t>& words) const {
  const ep::HtRecord at = layout(rank);
  int idx = 0;
  for (const int source : nodes_.rail_sources(rank)) {
    int32_t& num_rows = words[at.rail_rows(idx)];
    for (int token = 0; token < c_.num_tokens; ++token) {
      const auto is_here = [&](const Entry& e) { return nodes_.are_together(owner(e.expert), rank); };
      const auto* entries = &entry(source, token, 0);
      if (std::none_of(entries, entries + c_.topk, [&](const Entry& e) { return is_here(e) && e.slot >= 0; })) continue;
      for (int k = 0; k < c_.topk; ++k) {
        const Entry row = is_here(entries[k]) ? entries[k] : Entry{-1, -1, -1};
        words[at.rail(idx, num_rows, ep::HtRecord::kExpert, k)] = row.expert;
        words[at.rail(idx, num_rows, ep::HtRecord::kSlot, k)] = row.slot;
        words[at.rail(idx, num_rows, ep::HtRecord::kIndex, k)] = row.index;
      }
      ++num_rows;
    }
    ++idx;
  }
}

}  // namespace switchyard::model
