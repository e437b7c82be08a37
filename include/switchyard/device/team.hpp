// Teams: sets of ranks by arithmetic. Plain values; nothing is looked up.
#pragma once
#include "switchyard/platform/hd.hpp"

namespace switchyard {

// num_ranks consecutive world ranks beginning with `first`. The world and a node's load/store domain are such; a rail,
// my partners on the other nodes, is a rule instead (Topology::rail_peer, DeviceComm::rail_peer), because nodes may
// have different sizes.
struct Team {
  int num_ranks;
  int rank;   // mine
  int first;  // world rank of member 0

  SWITCHYARD_HD int world_rank(int member) const { return first + member; }
  SWITCHYARD_HD bool contains(int world_rank) const { return world_rank >= first && world_rank < first + num_ranks; }
  SWITCHYARD_HD int member(int world_rank) const { return world_rank - first; }
};

}  // namespace switchyard
