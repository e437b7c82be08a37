// What a high-throughput update has to come to: every row's place, worked out by one who sees the routing of all ranks at
// once. Written by hand into handles, or compared with what an update left there.
#pragma once
#include <cstdint>
#include <vector>

#include "ep/ht_layout.hpp"
#include "model/ht_model.hpp"

namespace switchyard::model {

constexpr int32_t kPlanStamp = 0x5077a1e;  // of all plans here: they are of one group, layout and top-k

// Who is where, and who forwards for whom.
class HtNodes {
 public:
  explicit HtNodes(const std::vector<int>& sizes) {
    for (const int size : sizes) first_.push_back(first_.back() + size);
  }
  int num_nodes() const { return int(first_.size()) - 1; }
  const std::vector<int32_t>& first() const { return first_; }  // rank of each node, and behind them how many ranks there are
  int node_of(int rank) const {
    int node = 0;
    while (rank >= first_[size_t(node) + 1]) ++node;
    return node;
  }
  bool are_together(int rank, int other) const { return node_of(rank) == node_of(other); }
  // Ranks of other nodes whose rows this one forwards.
  std::vector<int32_t> rail_sources(int rank) const;

 private:
  std::vector<int32_t> first_ = {0};
};

class HtPlan {
 public:
  HtPlan(const HtCase& c, char route);

  struct Entry {
    int32_t expert, slot, index;
  };
  const Entry& entry(int rank, int token, int k) const {
    return entries_[size_t((rank * c_.num_tokens + token) * c_.topk + k)];
  }
  int total(int rank) const { return total_[size_t(rank)]; }  // rows, before any is dropped
  // First row behind those of the sources, and behind the padding. REQUIRES  expert-major.
  int zone_end(int expert, int source) const { return zone_ends_[size_t(expert * (c_.num_ranks() + 2) + 1 + source)]; }

  ep::HtRecord layout(int rank) const;
  // Of a handle, made by the update of that tag; 0 where it does not matter.
  std::vector<int32_t> record(int rank, uint64_t tag) const;

 private:
  Entry& entry_at(int rank, int token, int k) { return entries_[size_t((rank * c_.num_tokens + token) * c_.topk + k)]; }
  int owner(int expert) const { return expert / c_.num_local; }
  int within(int slot) const { return c_.budget > 0 && slot > c_.budget ? c_.budget : slot; }
  bool is_first_at_its_rank(int rank, int token, int k) const;
  void place_by_source();
  void place_by_expert();
  void drop_and_count();
  void write_rails(int rank, std::vector<int32_t>& words) const;

  HtCase c_;
  HtNodes nodes_;
  std::vector<Entry> entries_;
  std::vector<int> total_;
  std::vector<int32_t> bases_;      // [rank][source] flat
  std::vector<int32_t> received_;   // [rank][source]
  std::vector<int32_t> zone_ends_;  // [expert][first, of each source, padded] expert-major
};

}  // namespace switchyard::model
