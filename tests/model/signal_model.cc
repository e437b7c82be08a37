#include "model/signal_model.hpp"

#include <bit>
#include <memory>

#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

constexpr uint64_t kMaxWrites = 14;  // a signal each, in 4 bits of the word
constexpr uint64_t kMaxCompletions = kMaxWrites + 1;

// What the lock of the source's endpoint protects, and how many places of the target's queue are given out. All of it
// is in one word, and what is done under the lock is one read-modify-write of it.
struct State {
  uint64_t num_posted, num_queued;
  uint64_t delivered;  // bits, by write

  static State unpack(uint64_t word) { return {word & 0xff, word >> 8 & 0xff, word >> 16}; }
  uint64_t pack() const { return num_posted | num_queued << 8 | delivered << 16; }
  // As the source has it after these posts and deliveries.
  SmallSentOrder sent() const {
    SmallSentOrder sent;
    for (uint64_t write = 0; write < num_posted; ++write) {
      const uint32_t number = sent.next();
      sent.posted();
      if ((delivered >> write & 1) != 0) sent.delivered(number);
    }
    return sent;
  }
};

struct Network {
  const ArrivalCase c;
  const Kernels kernels;
  uint64_t* state;
  Cell* data;        // [num_writes] at the target
  uint64_t* queue;   // [kMaxCompletions] of the target: the signal's value << 4 | 1 + number
  uint64_t* echoes;  // 1 when the write that comes twice has come once
  uint64_t* ahead;   // the signal of the other way

  uint64_t signal_of(uint64_t write) const {
    return (c.unsignalled >> write & 1) != 0 ? 0 : uint64_t{1} << (4 * write);
  }
  uint64_t num_completions() const { return c.num_writes + (c.twice != UINT64_MAX || c.stray != UINT32_MAX ? 1 : 0); }
  bool has_room(const State& now) const {
    if (c.fault != ArrivalFault::kRoomByCount) return now.sent().has_room();
    return now.num_posted - uint64_t(std::popcount(now.delivered)) < 2;
  }
  void complete(const ModelPlatform& p, uint64_t place, uint32_t number, uint64_t signal) const {
    p.store_release(&queue[place], signal << 4 | (number + 1));  // release; pairs with the acquire in Target
  }
};

// Carries one write at a time. With its delivery it does what the source does then: post the next one, if there is
// room. Having both in one step loses nothing: a source that looks late is a wire that delivers late.
struct Wire {
  const ModelPlatform& p;
  const Network& network;
  uint64_t write = UINT64_MAX;  // UINT64_MAX: none
  uint64_t number = 0;
  uint64_t full = UINT64_MAX;  // the state in which there was no room
  uint64_t is_through = 0;

  bool done() const { return is_through != 0; }
  bool step() {
    if (full != UINT64_MAX && p.load_relaxed(network.state) == full) return false;
    const bool places_late = network.c.fault == ArrivalFault::kCompletedBeforeTheData;
    if (write != UINT64_MAX && !places_late) place();
    const auto deliver_and_post = [&](uint64_t word) {
      State now = State::unpack(word);
      if (write != UINT64_MAX) {
        now.delivered |= uint64_t{1} << write;
        ++now.num_queued;
      }
      if (now.num_posted < network.c.num_writes && network.has_room(now)) ++now.num_posted;
      return now.pack();
    };
    const uint64_t word = p.modify_acq_rel(network.state, deliver_and_post);
    const State before = State::unpack(word), after = State::unpack(deliver_and_post(word));
    if (write != UINT64_MAX) {
      network.complete(p, before.num_queued, uint32_t(number), network.signal_of(write));
      if (places_late) place();
      if (write == network.c.twice) p.store_release(network.echoes, 1);  // release; pairs with the acquire in Echo
    }
    const bool has_posted = after.num_posted > before.num_posted;
    write = has_posted ? before.num_posted : UINT64_MAX;
    number = has_posted ? before.sent().next() : 0;
    is_through = !has_posted && after.num_posted == network.c.num_writes ? 1 : 0;
    full = has_posted || is_through != 0 ? UINT64_MAX : after.pack();
    p.set_history(mix(write, full));
    return true;
  }

 private:
  void place() const { p.write(&network.data[write], {write + 1, write + 1}); }
};

// What arrives although it can't be: a completion that comes again once it has been delivered, or a stray one.
struct Echo {
  const ModelPlatform& p;
  const Network& network;
  bool is_through = false;

  bool done() const { return is_through; }
  bool step() {
    const ArrivalCase& c = network.c;
    if (c.twice != UINT64_MAX && p.load_acquire(network.echoes) == 0) return false;
    const auto draw_place = [](uint64_t word) {
      State now = State::unpack(word);
      ++now.num_queued;
      return now.pack();
    };
    const uint64_t place = State::unpack(p.modify_acq_rel(network.state, draw_place)).num_queued;
    if (c.twice != UINT64_MAX) network.complete(p, place, uint32_t(c.twice), network.signal_of(c.twice));
    else network.complete(p, place, c.stray, uint64_t{1} << 59);
    return is_through = true;
  }
};

// OfiEndpoint::take() for every completion.
struct Target {
  const ModelPlatform& p;
  const Network& network;
  uint64_t* signal;
  SmallSignalOrder order{};
  uint64_t num_taken = 0, num_refused = 0;

  bool done() const { return num_taken == network.num_completions(); }
  bool step() {
    // acquire; pairs with the release in complete()
    const uint64_t completion = p.load_acquire(&network.queue[num_taken]);
    if (completion == 0) return false;
    ++num_taken;
    const uint32_t number = uint32_t(completion & 15) - 1;
    if (!network.kernels.arrive(p, order, number, {0, 0, completion >> 4}, signal)) ++num_refused;
    p.assert_that(num_refused <= network.num_completions() - network.c.num_writes, "what is due is not refused");
    p.set_history(mix_bytes(mix(num_taken, num_refused), &order, sizeof order));
    return true;
  }
};

struct Reader {
  const ModelPlatform& p;
  const Network& network;
  const uint64_t* signal;
  uint64_t seen = 0;

  bool done() const {
    uint64_t all = 0;
    for (uint64_t write = 0; write < network.c.num_writes; ++write) all += network.signal_of(write);
    return seen == all;
  }
  bool step() {
    const bool relaxed = network.c.fault == ArrivalFault::kSignalReadRelaxed;
    const uint64_t now = relaxed ? p.load_relaxed(signal) : p.load_acquire(signal);
    if (now == seen) return false;
    seen = now;
    uint64_t sum = 0, num_covered = 0;
    for (; sum != now && num_covered < network.c.num_writes; ++num_covered) sum += network.signal_of(num_covered);
    p.assert_that(sum == now, "signals count in the order in which they were sent, each once");
    for (uint64_t write = 0; write < num_covered; ++write) {
      const Cell cell = p.read(&network.data[write]);
      p.assert_that(cell.code == write + 1 && cell.twin == write + 1, "data are there before their signal");
    }
    p.set_history(seen);
    return true;
  }
};

// The source of the signal that goes ahead, its way and what applies it: nothing of that needs anything of the others.
struct Ahead {
  const ModelPlatform& p;
  const Network& network;
  bool is_through = false;

  bool done() const { return is_through; }
  bool step() {
    const State now = State::unpack(p.load_acquire(network.state));
    if (!may_go(now)) return false;
    p.store_release(network.ahead, 1);  // release; pairs with the acquire in AheadReader
    return is_through = true;
  }

 private:
  bool may_go(const State& now) const {
    const uint64_t follows = network.c.ahead;
    if (network.c.fault == ArrivalFault::kAheadOfWhatIsPosted) return now.num_posted >= follows;
    if (network.c.fault == ArrivalFault::kAheadWhenTheLastIsThere) return (now.delivered >> (follows - 1) & 1) != 0;
    return now.num_posted - now.sent().num_open() >= follows;
  }
};

struct AheadReader {
  const ModelPlatform& p;
  const Network& network;
  bool has_seen = false;

  bool done() const { return has_seen; }
  bool step() {
    if (p.load_acquire(network.ahead) == 0) return false;
    for (uint64_t write = 0; write < network.c.ahead; ++write) {
      const Cell cell = p.read(&network.data[write]);
      p.assert_that(cell.code == write + 1 && cell.twin == write + 1, "data are there before a signal that goes ahead");
    }
    return has_seen = true;
  }
};

template <class Role>
Thread thread_of(std::string name, const std::shared_ptr<const Network>& network) {
  return {std::move(name), [=](ModelPlatform& p) {
            Role role{p, *network};
            run_roles(p, role);
          }};
}

}  // namespace

Report explore_arrivals(const ArrivalCase& c, const Kernels& kernels, const Options& options) {
  return explore(
      [&](Arena& arena) {
        const auto words = [&](const char* name, uint64_t count) {
          auto* first = arena.make_array<uint64_t>(count);
          arena.name(first, name);
          return first;
        };
        const auto network =
            std::make_shared<const Network>(Network{c, kernels, words("state", 1), arena.make_array<Cell>(c.num_writes),
                                                    words("queue", kMaxCompletions), words("echoes", 1),
                                                    words("ahead", 1)});
        arena.name(network->data, "data");
        uint64_t* const signal = words("signal", 1);
        Program program;
        for (int i = 0; i < c.num_wires; ++i) program.threads.push_back(thread_of<Wire>(text("wire", i), network));
        if (network->num_completions() > c.num_writes) program.threads.push_back(thread_of<Echo>("echo", network));
        if (c.ahead > 0) {
          program.threads.push_back(thread_of<Ahead>("ahead", network));
          program.threads.push_back(thread_of<AheadReader>("reader of what goes ahead", network));
        }
        program.threads.push_back({"target", [=](ModelPlatform& p) {
                                     Target target{p, *network, signal};
                                     run_roles(p, target);
                                     p.assert_that(target.num_refused == network->num_completions() - c.num_writes,
                                                   "what comes twice, or is not due, is refused");
                                   }});
        program.threads.push_back({"reader", [=](ModelPlatform& p) {
                                     Reader reader{p, *network, signal};
                                     run_roles(p, reader);
                                   }});
        return program;
      },
      options);
}

}  // namespace switchyard::model
