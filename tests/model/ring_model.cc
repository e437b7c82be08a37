#include "model/ring_model.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>

#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

constexpr int kMaxProducers = 3;
constexpr uint64_t kMaxPosts = 8;          // of one producer
constexpr uint64_t kLargeValue = 1 << 20;  // a signal of this size needs a slot of its own

// Every number of a put says whose it is, and which one.
uint64_t code_of(int producer, uint64_t post) { return uint64_t(producer + 1) << 8 | (post + 1); }

NetPut make_put(int producer, uint64_t post, bool is_large) {
  const uint64_t code = code_of(producer, post);
  NetPut put{};
  put.peer = producer;
  put.to_region = uint32_t(code + 1);
  put.to_offset = code;
  put.from_region = uint32_t(code + 2);
  put.from_offset = uint64_t(producer) * kMaxPosts + post;
  put.num_bytes = code + 3;
  put.signal_region = uint32_t(code + 4);
  put.signal_offset = 8 * code;
  put.signal_value = is_large ? kLargeValue + code : code;
  return put;
}

bool is_same(const NetPut& a, const NetPut& b) {
  return a.peer == b.peer && a.to_region == b.to_region && a.to_offset == b.to_offset &&
         a.from_region == b.from_region && a.from_offset == b.from_offset && a.num_bytes == b.num_bytes &&
         a.signal_region == b.signal_region && a.signal_offset == b.signal_offset && a.signal_value == b.signal_value;
}

// Proxy::step() up to what the network gets, and what it keeps between two of them. Plain bytes, all of them written.
struct Lane {
  uint64_t next = 0;
  NetPut put{};
  uint64_t has_extension = 0;

  // The operation at `next`, if it is there; put() takes it away.
  bool take(const ModelPlatform& p, const RingKernels& ring, const void* memory, ProxyOp& op) {
    ProxyDescriptor descriptor;
    if (!ring.take(p, memory, next, descriptor)) return false;
    op = descriptor.op();
    p.assert_that(has_extension == 0 || op == ProxyOp::kPut, "nothing comes between an extension and its put");
    if (op != ProxyOp::kFlush) read_descriptor(descriptor, put);
    has_extension = op == ProxyOp::kExtension ? 1 : 0;
    return true;
  }
  uint64_t mix_into(uint64_t hash) const {
    hash = mix(mix(hash, next), has_extension);
    return has_extension == 0 ? hash : mix(mix(hash, put.signal_offset), put.signal_value);
  }
};

template <uint64_t kNumSlots>
void name_ring(Arena& arena, BasicProxyRing<kNumSlots>& ring, const std::string& prefix) {
  arena.set_constant(&ring.failed, sizeof ring.failed);  // nobody gives up
  arena.name(&ring.next_ticket, prefix + "next_ticket");
  arena.name(&ring.seen_taken, prefix + "seen_taken");
  arena.name(&ring.taken, prefix + "taken");
  arena.name(&ring.num_flushed, prefix + "num_flushed");
  for (size_t i = 0; i < std::size(ring.slots); ++i) arena.name(&ring.slots[i], text(prefix, "slot[", i, "]"));
}

// --- producers and one worker ---

struct RingWorld {
  const RingCase c;
  RingKernels ring;
  void* memory;
  Cell* sources;  // [kMaxProducers][kMaxPosts]
  uint64_t num_puts[kMaxProducers] = {}, num_flushes = 0;
};

template <uint64_t kNumSlots>
void* make_ring(Arena& arena) {
  auto* ring = arena.make<BasicProxyRing<kNumSlots>>();
  name_ring(arena, *ring, "");
  return ring;
}

// Proxy::serve(). The network may read a source from when it gets the put until it is flushed.
struct Worker {
  const ModelPlatform& p;
  const RingWorld& world;
  Lane lane{};
  uint64_t first = 0;  // of this batch
  uint64_t num_posts[kMaxProducers] = {}, num_flushes = 0;
  uint64_t unflushed = 0;  // bits: sources that the network has not let go of

  bool done() const {
    return std::equal(std::begin(num_posts), std::end(num_posts), std::begin(world.num_puts)) &&
           num_flushes == world.num_flushes;
  }
  bool step() {
    first = lane.next;
    for (int i = 0; i < world.c.batch && !done(); ++i) {
      remember();
      if (!take_one()) break;
    }
    const bool moved = lane.next != first;
    if (moved) world.ring.done(p, world.memory, lane.next);
    first = lane.next;
    if (moved) remember();
    return moved;
  }
  void finish() {
    read_unflushed();
    ProxyDescriptor descriptor;
    p.assert_that(!world.ring.take(p, world.memory, lane.next, descriptor), "nothing comes twice");
  }

 private:
  bool take_one() {
    ProxyOp op;
    if (!lane.take(p, world.ring, world.memory, op)) return false;
    if (world.c.fault == WorkerFault::kDoneBeforeTheNetworkHasIt) world.ring.done(p, world.memory, lane.next + 1);
    if (op == ProxyOp::kFlush) {
      if (world.c.fault == WorkerFault::kFlushedWhenTaken) world.ring.flushed(p, world.memory, lane.next + 1);
      read_unflushed();
      ++num_flushes;
      world.ring.flushed(p, world.memory, ++lane.next);
      return true;
    }
    if (op == ProxyOp::kPut) post();
    ++lane.next;
    return true;
  }
  void post() {
    const int producer = lane.put.peer;
    p.assert_that(producer < int(world.c.producers.size()), "a producer's number");
    const uint64_t post = num_posts[producer]++;
    p.assert_that(post < world.num_puts[producer], "no more than was posted");
    const bool is_large = lane.put.signal_value >= kLargeValue;
    p.assert_that(is_same(lane.put, make_put(producer, post, is_large)), "the next put of its producer, all of it");
    read_source(lane.put.from_offset);
    unflushed |= uint64_t{1} << lane.put.from_offset;
    lane.put = {};
  }
  void read_unflushed() {
    for (uint64_t i = 0; i < kMaxProducers * kMaxPosts; ++i) {
      if ((unflushed >> i & 1) != 0) read_source(i);
    }
    unflushed = 0;
  }
  void read_source(uint64_t i) {
    const uint64_t code = code_of(int(i / kMaxPosts), i % kMaxPosts);
    const Cell cell = p.read(&world.sources[i]);
    p.assert_that(cell.code == code && cell.twin == code, "the source is what it was when it was posted");
  }
  void remember() {
    uint64_t hash = mix(mix(lane.mix_into(first), unflushed), num_flushes);
    for (const uint64_t n : num_posts) hash = mix(hash, n);
    p.set_history(hash);
  }
};

void produce(ModelPlatform& p, const RingWorld& world, int producer) {
  uint64_t num_puts = 0, num_flushed = 0, step = 0;
  Cell* const sources = &world.sources[uint64_t(producer) * kMaxPosts];
  for (const char operation : world.c.producers[size_t(producer)]) {
    p.set_history(++step);  // all else that matters from here on is in memory
    if (operation == 'f') {
      p.assert_that(world.ring.flush(p, world.memory), "the flush comes back");
      for (; num_flushed < num_puts; ++num_flushed) p.write(&sources[num_flushed], {0, 0});
      continue;
    }
    const uint64_t code = code_of(producer, num_puts);
    p.write(&sources[num_puts], {code, code});
    const ProxyPost what = ProxyPost::put(make_put(producer, num_puts, operation == 'P'));
    p.assert_that(what.num_slots == (operation == 'P' ? 2 : 1), "the put has the form that the script says");
    p.assert_that(world.ring.post(p, world.memory, what), "the put is posted");
    ++num_puts;
  }
}

}  // namespace

Report explore_ring(const RingCase& c, const Kernels& kernels, const Options& options) {
  return explore(
      [&](Arena& arena) {
        const auto world = std::make_shared<RingWorld>(RingWorld{c, {}, nullptr, nullptr});
        world->ring = c.num_slots == 2 ? kernels.ring_of_2 : kernels.ring_of_4;
        world->memory = c.num_slots == 2 ? make_ring<2>(arena) : make_ring<4>(arena);
        world->sources = arena.make_array<Cell>(kMaxProducers * kMaxPosts);
        arena.name(world->sources, "sources");
        Program program;
        program.threads.push_back({"worker", [=](ModelPlatform& p) {
                                     Worker worker{p, *world};
                                     run_roles(p, worker);
                                     worker.finish();
                                   }});
        for (int producer = 0; producer < int(c.producers.size()); ++producer) {
          const std::string& script = c.producers[size_t(producer)];
          const auto num_flushes = uint64_t(std::count(script.begin(), script.end(), 'f'));
          world->num_puts[producer] = script.size() - num_flushes;
          world->num_flushes += num_flushes;
          program.threads.push_back(
              {text("producer", producer), [=](ModelPlatform& p) { produce(p, *world, producer); }});
        }
        return program;
      },
      options);
}

// --- the reserved ring ---

namespace {

constexpr uint64_t kBulkRing = 0, kReservedRing = 1;

struct ReservedWorld {
  const ReservedCase c;
  const Kernels kernels;
  NetPath net;
  uint64_t* sent;    // [kMaxPosts] by put: 1 when the network has it
  uint64_t* closed;  // [2] by ring: 1 + how many slots were posted to it
  uint64_t* told;    // the other thread may go on
};

// Each ring has a worker of its own, since any thread that waits may serve one. A put says which one it is, a signal
// how many puts it follows, each by its offset.
struct ReservedWorker {
  const ModelPlatform& p;
  const ReservedWorld& world;
  const uint64_t ring_idx;
  Lane lane{};
  uint64_t end = UINT64_MAX;

  bool done() const { return lane.next == end; }
  bool step() {
    const RingKernels& kernels = world.kernels.proxy_ring;
    ProxyRing* const ring = &world.net.rings[ring_idx];
    ProxyOp op;
    if (!lane.take(p, kernels, ring, op)) return has_closed();
    if (world.c.fault == WorkerFault::kDoneBeforeTheNetworkHasIt) kernels.done(p, ring, lane.next + 1);
    if (op == ProxyOp::kPut) post();
    kernels.done(p, ring, ++lane.next);
    p.set_history(mix(lane.mix_into(0), end));
    return true;
  }

 private:
  bool has_closed() {
    if (end != UINT64_MAX) return false;
    // acquire; pairs with the release in close()
    const uint64_t closed = p.load_acquire(&world.closed[ring_idx]);
    if (closed == 0) return false;
    end = closed - 1;
    p.set_history(mix(lane.mix_into(0), end));
    return true;
  }
  void post() {
    const bool is_signal = lane.put.num_bytes == 0;
    p.assert_that(is_signal || ring_idx == kBulkRing, "the reserved ring is for signals");
    if (!is_signal) p.write(&world.sent[lane.put.to_offset], 1);
    for (uint64_t i = 0; is_signal && i < lane.put.to_offset; ++i) {
      p.assert_that(p.read(&world.sent[i]) == 1, "a signal follows the puts before it");
    }
    lane.put = {};
  }
};

struct AwaitTold {
  const ModelPlatform& p;
  const uint64_t* told;
  bool is_told = false;
  bool done() const { return is_told; }
  // Acquire; pairs with the release in explore_reserved().
  bool step() { return is_told = p.load_acquire(told) != 0; }
};

// p, s: a put, a signal; P, S: with an extension. Returns how many puts there are now.
uint64_t post_all(ModelPlatform& p, const ReservedWorld& world, const std::string& script, uint64_t num_puts) {
  for (size_t i = 0; i < script.size(); ++i) {
    p.set_history(i + 1);  // all else that matters from here on is in memory
    const bool is_put = script[i] == 'p' || script[i] == 'P';
    const bool is_large = script[i] == 'P' || script[i] == 'S';
    NetPut put{};
    put.to_offset = num_puts;
    put.num_bytes = is_put ? 8 : 0;
    put.signal_value = is_large ? kLargeValue : is_put ? 0 : 1;
    p.assert_that(world.kernels.net_put(p, world.net, put), "it is posted");
    if (is_put) ++num_puts;
  }
  p.set_history(script.size() + 1);
  return num_puts;
}

void close(ModelPlatform& p, const ReservedWorld& world) {
  for (const uint64_t ring_idx : {kBulkRing, kReservedRing}) {
    p.store_release(&world.closed[ring_idx], p.load_relaxed(&world.net.rings[ring_idx].next_ticket) + 1);
  }
}

}  // namespace

Report explore_reserved(const ReservedCase& c, const Kernels& kernels, const Options& options) {
  return explore(
      [&](Arena& arena) {
        const auto world = std::make_shared<ReservedWorld>(ReservedWorld{c, kernels, {}, nullptr, nullptr, nullptr});
        auto* rings = arena.make_array<ProxyRing>(2);
        name_ring(arena, rings[kBulkRing], "bulk.");
        name_ring(arena, rings[kReservedRing], "reserved.");
        auto* abort = arena.make<uint32_t>();
        arena.set_constant(abort, sizeof *abort);
        world->net.target = rings;
        world->net.rings = rings;
        world->net.num_classes = 1;
        world->net.timeout_ns = UINT64_MAX;
        world->net.abort = abort;
        world->sent = arena.make_array<uint64_t>(kMaxPosts);
        world->closed = arena.make_array<uint64_t>(2);
        world->told = arena.make<uint64_t>();
        arena.name(world->sent, "sent");
        arena.name(world->closed, "closed");
        arena.name(world->told, "told");
        Program program;
        for (const uint64_t ring_idx : {kBulkRing, kReservedRing}) {
          program.threads.push_back({ring_idx == kBulkRing ? "worker" : "reserved worker", [=](ModelPlatform& p) {
                                       ReservedWorker worker{p, *world, ring_idx};
                                       run_roles(p, worker);
                                     }});
        }
        program.threads.push_back({"producer", [=](ModelPlatform& p) {
                                     post_all(p, *world, c.script, 0);
                                     if (c.others_script.empty()) close(p, *world);
                                     else p.store_release(world->told, 1);
                                   }});
        if (c.others_script.empty()) return program;
        const auto num_puts = uint64_t(std::count_if(
            c.script.begin(), c.script.end(), [](char operation) { return operation == 'p' || operation == 'P'; }));
        program.threads.push_back({"other", [=](ModelPlatform& p) {
                                     AwaitTold told{p, world->told};
                                     run_roles(p, told);
                                     post_all(p, *world, c.others_script, num_puts);
                                     close(p, *world);
                                   }});
        return program;
      },
      options);
}

}  // namespace switchyard::model
