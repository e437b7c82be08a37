#include "model/device_model.hpp"

#include <memory>
#include <vector>

#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

constexpr int kNumPlaces = 2;

// A node of ranks with one signal, one counter and one barrier each, and a data window of two places for every rank and
// a source cell.
struct Node {
  std::vector<char*> resource_bases, data_bases;
  std::vector<DeviceComm> comms;
  int32_t node_first = 0, node_size = 0;

  WindowView data(int rank) const { return {data_bases.data(), data_bytes(), rank, 2}; }
  uint64_t data_bytes() const { return source_offset() + sizeof(Cell); }
  static uint64_t place_offset(int from, uint64_t round) {
    return (uint64_t(from) * kNumPlaces + round % kNumPlaces) * sizeof(Cell);
  }
  uint64_t source_offset() const { return place_offset(node_size, 0); }
};

struct alignas(64) Line {
  char bytes[64];
};

std::shared_ptr<const Node> make_node(Arena& arena, int num_ranks) {
  const auto node = std::make_shared<Node>();
  node->node_size = num_ranks;
  auto* abort = arena.make<uint32_t>();
  arena.set_constant(abort, sizeof *abort);
  auto* peer_state = arena.make_array<uint32_t>(size_t(num_ranks));  // nobody is gone
  arena.set_constant(peer_state, size_t(num_ranks) * sizeof *peer_state);
  for (int rank = 0; rank < num_ranks; ++rank) {
    DeviceComm comm{};
    comm.world = comm.lsa = {num_ranks, rank, 0};
    comm.num_nodes = 1;
    comm.node_first = &node->node_first;
    comm.node_size = &node->node_size;
    comm.num_contexts = comm.num_signals = comm.num_counters = comm.num_barriers = 1;
    comm.counters = arena.make<uint64_t>();
    comm.barrier_epochs = arena.make_array<uint64_t>(2);
    comm.abort = abort;
    comm.peer_state = peer_state;
    arena.set_private(comm.counters, sizeof(uint64_t), rank);
    arena.set_private(comm.barrier_epochs, 2 * sizeof(uint64_t), rank);
    char* resources = arena.make_array<Line>(comm.resource_bytes() / sizeof(Line))->bytes;
    arena.name(resources, text("signal[rank ", rank, "]"));
    for (int from = 0; from < num_ranks; ++from) {
      arena.name(resources + comm.barrier_offset(0, from), text("barrier[", from, " -> ", rank, "]"));
    }
    arena.set_private(resources + comm.barrier_offset(0, rank), sizeof(uint64_t), rank);
    node->resource_bases.push_back(resources);
    node->data_bases.push_back(arena.make_array<Line>((node->data_bytes() + 63) / sizeof(Line))->bytes);
    arena.name(node->data_bases.back(), text("data[rank ", rank, "]"));
    node->comms.push_back(comm);
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    const DeviceComm& comm = node->comms[size_t(rank)];
    node->comms[size_t(rank)].resources = {node->resource_bases.data(), comm.resource_bytes(), rank, 1};
  }
  return node;
}

Report explore_node(int num_ranks, const std::function<void(ModelPlatform&, const Node&, int rank)>& body,
                    const Options& options) {
  return explore(
      [&](Arena& arena) {
        const auto node = make_node(arena, num_ranks);
        Program program;
        for (int rank = 0; rank < num_ranks; ++rank) {
          program.threads.push_back({text("rank", rank), [=](ModelPlatform& p) { body(p, *node, rank); }});
        }
        return program;
      },
      options);
}

void check_cell(const ModelPlatform& p, const char* place, uint64_t code) {
  const Cell cell = p.read(reinterpret_cast<const Cell*>(place));
  p.assert_that(cell.code == code && cell.twin == code, "the cell is of this round and rank");
}

}  // namespace

Report explore_barrier(int num_members, uint64_t num_rounds, bool is_world, const Kernels& kernels,
                       const Options& options) {
  const auto body = [=](ModelPlatform& p, const Node& node, int rank) {
    for (uint64_t round = 1; round <= num_rounds; ++round) {
      p.set_history(round);  // all else that matters from here on is in memory
      const uint64_t code = round << 8 | uint64_t(rank);
      p.write(reinterpret_cast<Cell*>(node.data_bases[0] + Node::place_offset(rank, round)), {code, code});
      const auto barrier = is_world ? kernels.world_barrier : kernels.lsa_barrier;
      p.assert_that(barrier(p, node.comms[size_t(rank)]) == BarrierResult::kOk, "the barrier is passed");
      for (int member = 0; member < num_members; ++member) {
        check_cell(p, node.data_bases[0] + Node::place_offset(member, round), round << 8 | uint64_t(member));
      }
    }
  };
  return explore_node(num_members, body, options);
}

Report explore_puts(uint64_t num_rounds, bool by_value, const Kernels& kernels, const Options& options) {
  const auto body = [=](ModelPlatform& p, const Node& node, int rank) {
    const DeviceComm& comm = node.comms[size_t(rank)];
    const WindowView data = node.data(rank);
    const int peer = 1 - rank;
    for (uint64_t round = 1; round <= num_rounds; ++round) {
      p.set_history(round);
      const uint64_t to = Node::place_offset(rank, round), from = Node::place_offset(peer, round);
      if (by_value) {
        kernels.put_value(p, comm, peer, data, to, round);
      } else {
        p.write(data.local_as<Cell>(node.source_offset()), {round << 8 | uint64_t(rank), round << 8 | uint64_t(rank)});
        kernels.put(p, comm, peer, data, to, data, node.source_offset(), sizeof(Cell));
        p.assert_that(p.load_acquire(comm.counters) == round, "the counter counts local completions");
      }
      p.assert_that(kernels.wait_signal(p, comm, round) == GinStatus::kOk, "the signal comes");
      if (by_value) {
        p.assert_that(p.load_relaxed(data.local_as<uint64_t>(from)) == round, "the value is of this round");
      } else {
        check_cell(p, data.local(from), round << 8 | uint64_t(peer));
      }
    }
  };
  return explore_node(2, body, options);
}

}  // namespace switchyard::model
