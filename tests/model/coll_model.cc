#include "model/coll_model.hpp"

#include <memory>

#include "model/rows.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

constexpr uint32_t kResources = 1, kWindow = 2;

struct World {
  struct Rank {
    coll::View view{};
    std::vector<char*> resources, windows;  // of every rank that memory reaches
    ModelNetwork network;
    Cell* cell = nullptr;  // what it stages
    coll::Announcement* told = nullptr;
    coll::Announcement* heard = nullptr;
  };
  std::vector<int32_t> node_first, node_size;
  std::vector<Rank> ranks;
  std::vector<std::string> couriers;
  Cell* arrivals = nullptr;  // [operation][rank] at world barriers
};

coll::Layout layout_of(const CollCase& c, int num_ranks) {
  const auto line = coll::Layout::kLine;
  return {num_ranks, int32_t(c.nodes.size()), 2, line * uint64_t(num_ranks), line};
}

std::shared_ptr<const World> make_world(Arena& arena, const CollCase& c) {
  const auto world = std::make_shared<World>();
  int num_ranks = 0;
  for (const int32_t size : c.nodes) {
    world->node_first.push_back(num_ranks);
    world->node_size.push_back(size);
    num_ranks += size;
  }
  const coll::Layout layout = layout_of(c, num_ranks);
  auto* const abort = arena.make<uint32_t>();
  auto* const peer_state = arena.make_array<uint32_t>(size_t(num_ranks));  // nobody is gone
  arena.set_constant(abort, sizeof *abort);
  arena.set_constant(peer_state, size_t(num_ranks) * sizeof *peer_state);
  world->arrivals = arena.make_array<Cell>(c.script.size() * size_t(num_ranks));
  std::vector<char*> resources, windows;
  world->ranks.resize(size_t(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    World::Rank& own = world->ranks[size_t(rank)];
    DeviceComm& comm = own.view.comm;
    comm.world = {num_ranks, rank, 0};
    comm.num_nodes = int32_t(c.nodes.size());
    comm.node_first = world->node_first.data();
    comm.node_size = world->node_size.data();
    comm.node = comm.node_of(rank);
    comm.lsa = {comm.node_size[comm.node], rank - comm.node_first[comm.node], comm.node_first[comm.node]};
    comm.num_contexts = coll::kNumContexts;
    comm.num_signals = layout.num_signals();
    comm.num_barriers = 1;
    comm.barrier_epochs = arena.make_array<uint64_t>(size_t(1 + num_ranks));
    comm.abort = abort;
    comm.peer_state = peer_state;
    own.view.layout = layout;
    own.view.words = arena.make_array<uint64_t>(layout.num_words());
    own.cell = arena.make<Cell>();
    own.told = arena.make_array<coll::Announcement>(size_t(num_ranks));
    own.heard = arena.make_array<coll::Announcement>(size_t(num_ranks));
    arena.set_private(comm.barrier_epochs, size_t(1 + num_ranks) * sizeof(uint64_t), rank);
    arena.set_private(own.view.words, layout.num_words() * sizeof(uint64_t), rank);
    resources.push_back(make_bytes(arena, comm.resource_bytes()));
    windows.push_back(make_bytes(arena, layout.num_bytes()));
    arena.name(resources.back(), text("resources[rank ", rank, "]"));
    arena.name(windows.back(), text("window[rank ", rank, "]"));
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    World::Rank& own = world->ranks[size_t(rank)];
    own.network = {{{kResources, resources}, {kWindow, windows}}, rank, {}};
    for (int peer = 0; peer < num_ranks; ++peer) {
      const bool near = own.view.comm.lsa.contains(peer);
      own.resources.push_back(near ? resources[size_t(peer)] : nullptr);
      own.windows.push_back(near ? windows[size_t(peer)] : nullptr);
      own.network.couriers.push_back(near ? -1 : int(world->couriers.size()));
      if (!near) world->couriers.push_back(text("courier ", rank, " -> ", peer));
    }
    own.view.comm.resources = {own.resources.data(), own.view.comm.resource_bytes(), rank, kResources};
    own.view.comm.net.target = &own.network;
    own.view.window = {own.windows.data(), layout.num_bytes(), rank, kWindow};
  }
  return world;
}

void pass_world_barrier(ModelPlatform& p, const World& world, const DeviceComm& comm, uint64_t round, const Kernels& kernels) {
  const auto code = [&](int rank) { return round << 16 | uint64_t(rank); };
  Cell* const arrivals = world.arrivals + (round - 1) * uint64_t(comm.world.num_ranks);
  p.write(&arrivals[comm.world.rank], {code(comm.world.rank), code(comm.world.rank)});
  p.assert_that(kernels.world_barrier(p, comm) == BarrierResult::kOk, "the barrier is passed");
  for (int rank = 0; rank < comm.world.num_ranks; ++rank) {
    const Cell cell = p.read(&arrivals[rank]);
    p.assert_that(cell.code == code(rank) && cell.twin == code(rank), "everybody has arrived");
  }
}

void run_rank(const CollCase& c, ModelPlatform& p, const World& world, int rank, const Kernels& kernels) {
  const World::Rank& own = world.ranks[size_t(rank)];
  const DeviceComm& comm = own.view.comm;
  const int num_ranks = comm.world.num_ranks;
  for (uint64_t round = 1; round <= c.script.size(); ++round) {
    p.set_history(round);  // all else that matters from here on is in memory
    const char letter = c.script[round - 1];
    if (letter == 'w') {
      pass_world_barrier(p, world, comm, round, kernels);
      continue;
    }
    const auto amount = [&](int from, int to) { return round << 16 | uint64_t(from) << 8 | uint64_t(to); };
    uint64_t step = 0;
    const auto code = [&](int of_rank) { return round << 16 | step << 8 | uint64_t(of_rank); };
    const auto before = [&](int bank) {
      p.drain();  // as who stages does: the source has been read
      p.write(own.cell, {code(rank), code(rank)});
      p.push(own.cell, own.view.window.local(own.view.layout.stage(bank)), sizeof(Cell));
    };
    const auto after = [&](int bank) {
      for (int member = 0; member < comm.lsa.num_ranks; ++member) {
        const int peer = comm.lsa.world_rank(member);
        const Cell cell = p.read(own.view.window.lsa_as<Cell>(own.view.layout.stage(bank), peer));
        p.assert_that(cell.code == code(peer) && cell.twin == code(peer), "the cell is of this step and rank");
      }
      ++step;
    };
    const bool announces = letter == 'a';
    for (int peer = 0; announces && peer < num_ranks; ++peer) p.write(&own.told[peer], {amount(rank, peer), amount(rank, rank)});
    const bool met = kernels.meetings(p, own.view, round, announces ? own.told : nullptr, own.heard, letter == 's' ? 2 : 1, before, after);
    p.assert_that(met, "all meet");
    for (int peer = 0; announces && peer < num_ranks; ++peer) {
      const coll::Announcement heard = p.read(&own.heard[peer]);
      p.assert_that(heard.to_you == amount(peer, rank) && heard.greatest == amount(peer, peer), "what was announced is heard");
    }
  }
}

}  // namespace

Report explore_meetings(const CollCase& c, const Kernels& kernels, const Options& options) {
  return explore(
      [&](Arena& arena) {
        const auto world = make_world(arena, c);
        Program program;
        program.couriers = world->couriers;
        for (int rank = 0; rank < int(world->ranks.size()); ++rank) {
          program.threads.push_back({text("rank", rank), [=](ModelPlatform& p) { run_rank(c, p, *world, rank, kernels); }});
        }
        return program;
      },
      options);
}

}  // namespace switchyard::model
