// Topology: which ranks share a node, and so reach each other's memory by load and store.
//
// THREADS  a value, constant after build().
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "switchyard/status.hpp"

namespace switchyard {

// What a rank says about where it is. Ranks with equal `node` reach each other by load and store; a machine may be
// split into several pretended nodes.
struct Whereabouts {
  std::array<uint64_t, 2> machine;  // hash of what tells this machine from others
  std::array<uint64_t, 2> node;     // hash of the machine and, where set, the pretended node
  int64_t pid;
  uint64_t uid;
  uint64_t has_coordinator;  // not 0: the job's coordinator is a thread of this process

  // node_id: of the pretended node; none: SWITCHYARD_NODE_ID, and without that the machine is one node.
  static Result<Whereabouts> mine(std::optional<int64_t> node_id);
  bool same_node(const Whereabouts& other) const { return node == other.node; }
  bool same_machine(const Whereabouts& other) const { return machine == other.machine; }
  bool same_process(const Whereabouts& other) const { return same_machine(other) && pid == other.pid; }
};

// Consecutive ranks that share something: a node, or a machine.
struct RankRange {
  int first = 0;
  int count = 0;
};

class Topology {
 public:
  // REQUIRES  one entry per rank, in rank order. ERRORS  the ranks of a node must follow each other.
  static Result<Topology> build(std::span<const Whereabouts> ranks, int my_rank);

  int num_nodes() const { return int(node_first_.size()); }
  int node_of(int rank) const { return node_of_[size_t(rank)]; }
  int node_first(int node) const { return node_first_[size_t(node)]; }
  int node_size(int node) const { return node_size_[size_t(node)]; }
  RankRange my_node_ranks() const { return {node_first(my_node()), node_size(my_node())}; }
  int my_node() const { return node_of_[size_t(my_rank_)]; }
  int my_local_idx() const { return my_rank_ - node_first(my_node()); }

  // My partner on another node: nodes may have different sizes, so a rail is a rule and not a stride.
  int rail_peer(int node) const { return node_first(node) + my_local_idx() % node_size(node); }

 private:
  int my_rank_ = 0;
  std::vector<int> node_of_;
  std::vector<int> node_first_;
  std::vector<int> node_size_;
};

}  // namespace switchyard
