// The device communicator: what a kernel needs to know, in one plain struct passed by value.
//
// Host code asks for resources once (DeviceCommRequirements); kernels then open Gin and barriers on them. Signals and
// counters are 64-bit, only grow, and are compared in rolling arithmetic: there is no reset to race with.
#pragma once
#include <cstdint>

#include "switchyard/device/net.hpp"
#include "switchyard/device/team.hpp"
#include "switchyard/device/window.hpp"

namespace switchyard {

// What kernels will use. Size-first and append-only; zero means none.
struct DeviceCommRequirements {
  uint32_t size = sizeof(DeviceCommRequirements);
  int32_t num_contexts = 1;  // independent channels: order holds inside one only
  int32_t num_signals = 0;   // per context
  int32_t num_counters = 0;  // per context
  int32_t num_barriers = 0;
};

struct DeviceComm {
  Team world;
  Team lsa;
  int32_t num_nodes;
  int32_t node;
  const int32_t* node_first;  // [num_nodes] first world rank of each node
  const int32_t* node_size;   // [num_nodes]
  WindowView resources;       // signals and barrier inboxes of every rank
  uint64_t* counters;         // [contexts][num_counters], mine alone
  uint64_t* barrier_epochs;   // mine alone: [num_barriers] node barriers passed, [num_barriers][ranks] meetings with each
  int32_t num_contexts;
  int32_t num_signals;
  int32_t num_counters;
  int32_t num_barriers;
  NetPath net;                 // for peers that load and store don't reach
  const uint32_t* peer_state;  // [world.num_ranks] not 0: gone
  const uint32_t* abort;
  uint64_t timeout_ns;

  SWITCHYARD_HD int node_of(int world_rank) const {
    int of = 0;
    while (of + 1 < num_nodes && world_rank >= node_first[of + 1]) ++of;
    return of;
  }
  // My partner on another node, and anybody's.
  SWITCHYARD_HD int rail_peer(int other_node) const {
    return node_first[other_node] + lsa.rank % node_size[other_node];
  }
  SWITCHYARD_HD int rail_peer_of(int world_rank, int other_node) const {
    return node_first[other_node] + (world_rank - node_first[node_of(world_rank)]) % node_size[other_node];
  }

  // Layout of the resource window.
  SWITCHYARD_HD uint64_t signal_offset(int context, int signal) const {
    return (uint64_t(context) * num_signals + signal) * sizeof(uint64_t);
  }
  // One word per (barrier, member), with another behind it, each on its own cache line pair: neighbours poll them.
  SWITCHYARD_HD uint64_t barrier_offset(int barrier, int from_world_rank) const {
    const uint64_t signals = (signal_offset(num_contexts, 0) + 127) / 128 * 128;
    return signals + (uint64_t(barrier) * world.num_ranks + from_world_rank) * 128;
  }
  SWITCHYARD_HD uint64_t resource_bytes() const { return barrier_offset(num_barriers, 0) + 128; }
};

// Whoever waits for that rank waits in vain: its process is gone, or the network does not reach it any more. An abort
// takes the network down, too, and is another matter.
template <class P>
SWITCHYARD_DEVICE bool is_gone(const P& p, const DeviceComm& comm, int rank) {
  if (p.raised(&comm.peer_state[rank])) return true;
  return !p.net_usable(comm.net, rank) && !comm.resources.reaches(rank) && p.load_relaxed(comm.abort) == 0;
}

}  // namespace switchyard
