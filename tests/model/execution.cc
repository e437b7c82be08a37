#include "model/execution.hpp"

#include <cstring>
#include <utility>

#include "model/platform.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

constexpr std::string_view kOneWriter = "a word that a courier adds to has no other writer";

const char* order_name(Order order) {
  switch (order) {
    case Order::kRelaxed: return "relaxed";
    case Order::kAcquire: return "acquire";
    case Order::kRelease: return "release";
    case Order::kAcqRel: return "acq_rel";
    case Order::kPlain: return "plain";
  }
  return "?";
}

}  // namespace

Execution::Execution(const Program& program, Arena& arena, const Options& options, std::function<size_t(size_t)> choose)
    : program_(program), arena_(arena), options_(options), choose_(std::move(choose)), memory_(arena) {
  for (size_t t = 0; t < program.threads.size(); ++t) {
    threads_.push_back(std::make_unique<ThreadState>());
    threads_.back()->execution = this;
    threads_.back()->idx = int(t);
  }
}

// Making a line costs far more than the operation, so callers ask for with_trace_ before they put one together.
template <class... Parts>
void Execution::note(int thread, const Parts&... parts) {
  trace_.push_back(text("#", num_operations_, " ", program_.threads[size_t(thread)].name, ": ", parts...));
}

void Execution::begin(bool with_trace) {
  with_trace_ = with_trace;
  trace_.clear();
  num_operations_ = 0;
  is_cut_ = false;
  violation_.reset();
  insertions_.reset();
  added_to_.reset();
  arena_.restore();
  memory_.begin(int(threads_.size()));
  for (auto& thread : threads_) start_thread(*thread);
  settle();
}

void Execution::start_thread(ThreadState& thread) {
  thread.history = 0;
  thread.place = 0;
  thread.polls.reset();
  thread.idle_polls.reset();
  thread.stale_retry = false;
  thread.writes_left = program_.threads[size_t(thread.idx)].max_shared_writes;
  if (violation_ || is_cut_) {
    thread.wait = Wait::kParked;
    return;
  }
  thread.fiber.start(
      [](void* argument) {
        auto* self = static_cast<ThreadState*>(argument);
        self->execution->body(*self);
      },
      &thread);
  thread.fiber.resume();
}

void Execution::body(ThreadState& thread) {
  ModelPlatform platform(*this, thread.idx);
  program_.threads[size_t(thread.idx)].body(platform);
  thread.wait = Wait::kFinished;
}

void Execution::pause(ThreadState& thread, Wait wait) {
  thread.wait = wait;
  thread.fiber.pause();
}

void Execution::park(ThreadState& thread) {
  for (;;) pause(thread, Wait::kParked);
}

void Execution::run(Transition transition) {
  ThreadState& thread = *threads_[transition.thread];
  thread.distance = transition.distance;
  insertions_.reset();
  thread.fiber.resume();
  settle();
}

void Execution::settle() {
  for (bool changed = true; changed && !violation_ && !is_cut_;) {
    changed = false;
    for (auto& thread : threads_) {
      if (thread->wait != Wait::kIdle || !has_news(*thread)) continue;
      thread->fiber.resume();
      changed = true;
    }
  }
}

bool Execution::has_news(const ThreadState& thread) const {
  for (size_t l = 0; l < thread.idle_polls.size(); ++l) {
    if (thread.idle_polls[l] && memory_.has_unseen(thread.idx, int(l))) return true;
  }
  return false;
}

LocationSet Execution::outdated(const ThreadState& thread) const {
  LocationSet found;
  for (size_t l = 0; l < thread.polls.size(); ++l) {
    found[l] = thread.polls[l] && memory_.seen(thread.idx, int(l)) != thread.read[l];
  }
  return found;
}

void Execution::enabled(std::vector<Transition>& transitions) {
  transitions.clear();
  for (const auto& thread : threads_) {
    if (thread->wait == Wait::kTurn) transitions.push_back({uint8_t(thread->idx), 0});
    if (thread->wait != Wait::kChoice) continue;
    memory_.choices(thread->idx, thread->location, thread->is_write, distances_);
    for (uint16_t distance : distances_) transitions.push_back({uint8_t(thread->idx), distance});
  }
}

bool Execution::all_finished() const {
  for (const auto& thread : threads_) {
    if (thread->wait != Wait::kFinished) return false;
  }
  return true;
}

std::optional<int> Execution::pending_location(int thread) const {
  const ThreadState& state = *threads_[size_t(thread)];
  if (state.wait != Wait::kChoice) return std::nullopt;
  return state.location;
}

void Execution::fail(Fault fault, std::string message) {
  if (!violation_) violation_ = Violation{fault, std::move(message), {}};
}

std::string Execution::describe_waits() const {
  std::string waits;
  for (const auto& thread : threads_) {
    if (thread->wait != Wait::kIdle) continue;
    waits += text(waits.empty() ? "" : "; ", program_.threads[size_t(thread->idx)].name, " waits on");
    for (size_t l = 0; l < thread->idle_polls.size(); ++l) {
      if (thread->idle_polls[l])
        waits += text(" ", arena_.describe(memory_.address_of(int(l))), " = ", memory_.newest(int(l)));
    }
  }
  return waits;
}

uint64_t Execution::fingerprint() const {
  std::bitset<kMaxThreads> live;
  uint64_t hash = 0;
  for (const auto& thread : threads_) {
    hash = mix(hash, uint64_t(thread->wait));
    hash = mix(hash, thread->history);
    if (thread->wait == Wait::kFinished) continue;
    live.set(size_t(thread->idx));
    hash = mix(hash, thread->place);
    hash = mix(hash, thread->writes_left);
    hash = mix(hash, std::hash<LocationSet>()(thread->polls));
    hash = mix(hash, std::hash<LocationSet>()(outdated(*thread)));
    if (thread->wait == Wait::kChoice) hash = mix(hash, uint64_t(thread->location) << 1 | uint64_t(thread->is_write));
    if (thread->wait == Wait::kIdle || thread->stale_retry) {
      hash = mix(hash, std::hash<LocationSet>()(thread->idle_polls));
      hash = mix(hash, uint64_t(thread->stale_retry));
    }
  }
  return mix(hash, memory_.fingerprint(live));
}

// --- inside a fiber ---

void Execution::count_operation(ThreadState& thread) {
  if (++num_operations_ <= options_.max_operations) return;
  fail(Fault::kUnbounded, text(program_.threads[size_t(thread.idx)].name, " still runs after ", options_.max_operations,
                               " operations: a loop that waits must call idle()"));
  park(thread);
}

void Execution::count_write(ThreadState& thread) {
  if (thread.writes_left == UINT32_MAX || thread.writes_left-- > 0) return;
  ++num_killed_;
  if (with_trace_) note(thread.idx, "is killed");
  thread.writes_left = 0;
  for (;;) pause(thread, Wait::kFinished);
}

const std::string& Execution::name_of(int agent) const {
  if (agent >= pipe_of(0)) return program_.threads[size_t(agent - pipe_of(0))].name;
  if (agent >= courier_agent(0)) return program_.couriers[size_t(agent - courier_agent(0))];
  return program_.threads[size_t(agent)].name;
}

bool Execution::is_local(ThreadState& thread, int agent, const void* address, size_t num_bytes, bool is_write) {
  if (!arena_.contains(address, num_bytes)) return false;
  const Arena::WordUse word = arena_.use_of(address);
  const bool is_own = word.use == Arena::Use::kPrivate && word.owner == agent;
  if (is_own || (word.use == Arena::Use::kConstant && !is_write)) {
    count_operation(thread);
    return true;
  }
  if (word.use == Arena::Use::kShared || word.use == Arena::Use::kMixed) return false;
  fail(Fault::kBadAccess, text(name_of(agent), is_write ? ": writes " : ": reads ", arena_.describe(address), ", which is declared ",
                               word.use == Arena::Use::kConstant ? "constant" : "private to another thread"));
  park(thread);
}

uint64_t Execution::read_local(ThreadState& thread, const void* address, size_t num_bytes) {
  uint64_t value = 0;
  std::memcpy(&value, address, num_bytes);
  thread.history = mix(thread.history, value);
  return value;
}

int Execution::locate(ThreadState& thread, const void* address, size_t num_bytes) {
  const bool is_word = reinterpret_cast<uintptr_t>(address) % num_bytes == 0;
  if (!is_word || !arena_.contains(address, num_bytes)) {
    fail(Fault::kBadAccess, text(program_.threads[size_t(thread.idx)].name, ": atomic operation on ",
                                 arena_.describe(address), ", which is no aligned word of an object in the arena"));
    park(thread);
  }
  const std::optional<int> location = memory_.location(address, num_bytes);
  if (!location) {
    fail(
        Fault::kBadAccess,
        text(program_.threads[size_t(thread.idx)].name, ": atomic operation on ", arena_.describe(address),
             ", which is also accessed as plain data (or the program has more than ", kMaxLocations, " atomic words)"));
    park(thread);
  }
  return *location;
}

void Execution::check_ordered(ThreadState& thread, int location, const void* address, Order order) {
  if (order != Order::kPlain || !memory_.has_unseen(thread.idx, location)) return;
  fail(Fault::kDataRace, text("#", num_operations_, " ", program_.threads[size_t(thread.idx)].name,
                              ": plain access to ", arena_.describe(address), " is not ordered after the atomic store of ",
                              memory_.newest(location)));
  park(thread);
}

uint16_t Execution::await_choice(ThreadState& thread, int location, bool is_write) {
  thread.location = location;
  thread.is_write = is_write;
  pause(thread, Wait::kChoice);
  count_operation(thread);
  thread.polls.set(size_t(location));
  if (thread.distance > 0) thread.stale_retry = false;
  return thread.distance;
}

// Without reductions, every other operation is a place to switch threads as well.
void Execution::turn(ThreadState& thread) {
  if (!options_.reduce) pause(thread, Wait::kTurn);
  count_operation(thread);
}

void Execution::wrote(ThreadState& thread, int location) {
  thread.stale_retry = false;
  if (!memory_.appended()) insertions_.set(size_t(location));
}

uint64_t Execution::load(int thread_idx, const void* address, size_t num_bytes, Order order) {
  ThreadState& thread = *threads_[size_t(thread_idx)];
  if (is_local(thread, address, num_bytes, false)) return read_local(thread, address, num_bytes);
  const int location = locate(thread, address, num_bytes);
  const uint16_t distance = await_choice(thread, location, false);
  check_ordered(thread, location, address, order);
  const uint64_t value = memory_.load(thread_idx, location, distance, order);
  thread.read[size_t(location)] = memory_.seen(thread_idx, location);
  thread.history = mix(thread.history, value);
  if (with_trace_)
    note(thread_idx, "load ", order_name(order), " ", arena_.describe(address), " -> ", value,
         memory_.has_unseen(thread_idx, location) ? text(" (newest is ", memory_.newest(location), ")") : "");
  return value;
}

void Execution::store(int thread_idx, void* address, size_t num_bytes, uint64_t value, Order order) {
  ThreadState& thread = *threads_[size_t(thread_idx)];
  if (is_local(thread, address, num_bytes, true)) return memory_.write_private(address, &value, num_bytes);
  const int location = locate(thread, address, num_bytes);
  turn(thread);
  count_write(thread);
  check_ordered(thread, location, address, order);
  memory_.choices(thread_idx, location, true, distances_);
  assert_that(thread_idx, !added_to_[size_t(location)], kOneWriter);
  const size_t choice = distances_.size() == 1 ? 0 : choose_(distances_.size());
  memory_.store(thread_idx, location, distances_[choice], value, order);
  wrote(thread, location);
  if (with_trace_)
    note(thread_idx, "store ", order_name(order), " ", arena_.describe(address), " = ", value,
         memory_.appended() ? "" : " (before another thread's store in modification order)");
}

uint64_t Execution::modify(int thread_idx, void* address, size_t num_bytes,
                           const std::function<uint64_t(uint64_t)>& update, Order order) {
  ThreadState& thread = *threads_[size_t(thread_idx)];
  if (is_local(thread, address, num_bytes, true)) {
    const uint64_t old = read_local(thread, address, num_bytes);
    const uint64_t value = update(old);
    memory_.write_private(address, &value, num_bytes);
    return old;
  }
  const int location = locate(thread, address, num_bytes);
  const uint16_t distance = await_choice(thread, location, true);
  count_write(thread);
  const uint64_t old = memory_.modify(thread_idx, location, distance, update, order);
  thread.read[size_t(location)] = memory_.seen(thread_idx, location);
  thread.history = mix(thread.history, old);
  wrote(thread, location);
  if (with_trace_)
    note(thread_idx, "modify ", order_name(order), " ", arena_.describe(address), " = ", update(old), " -> ", old);
  return old;
}

void Execution::put(void* address, const void* source, size_t num_bytes) {
  if (arena_.use_of(address).use == Arena::Use::kPrivate) return memory_.write_private(address, source, num_bytes);
  std::memcpy(address, source, num_bytes);
}

void Execution::plain(int thread_idx, bool by_pipe, bool is_write, const void* address, size_t num_bytes) {
  access(*threads_[size_t(thread_idx)], thread_idx, by_pipe, is_write, address, num_bytes);
}

void Execution::access(ThreadState& thread, int agent, bool by_pipe, bool is_write, const void* address,
                       size_t num_bytes) {
  const char* const verb = by_pipe ? (is_write ? "push to " : "push from ") : (is_write ? "write " : "read ");
  const std::string& who = name_of(agent);
  if (num_bytes == 0 || is_local(thread, agent, address, num_bytes, is_write)) return;
  turn(thread);
  if (is_write) count_write(thread);
  if (!arena_.contains(address, num_bytes) || memory_.holds_atomics(address, num_bytes)) {
    const bool inside = arena_.contains(address, num_bytes);
    fail(Fault::kBadAccess,
         text(who, ": ", verb, arena_.describe(address), ", ", num_bytes, " bytes, ",
              inside ? "which are also accessed atomically" : "which leave their object in the arena"));
    park(thread);
  }
  if (with_trace_) {
    note(thread.idx, agent == thread.idx ? "" : text(who, ": "), verb, arena_.describe(address), ", ", num_bytes, " bytes");
  }
  const auto race = memory_.access(agent, by_pipe, is_write, address, num_bytes, num_operations_);
  if (!race) return;
  const bool pipe = race->agent >= pipe_of(0);
  const std::string& other = name_of(race->agent);
  fail(Fault::kDataRace, text("#", num_operations_, " ", who, ": ", verb, arena_.describe(address),
                              " is not ordered after #", race->operation_idx, " ", other, ": ",
                              pipe ? "push (its pipe's " : "", race->is_write ? "write" : "read", pipe ? ")" : ""));
  park(thread);
}

void Execution::remember(int thread, const void* bytes, size_t num_bytes) {
  uint64_t words[2] = {0, 0};
  std::memcpy(words, bytes, num_bytes);
  uint64_t& history = threads_[size_t(thread)]->history;
  history = mix(mix(history, words[0]), words[1]);
}

void Execution::drain(int thread_idx) {
  turn(*threads_[size_t(thread_idx)]);
  memory_.drain(thread_idx);
  if (with_trace_) note(thread_idx, "drain");
}

void Execution::post(int thread_idx, int courier, const Errand& errand) {
  ThreadState& thread = *threads_[size_t(thread_idx)];
  const int agent = courier_agent(courier);
  memory_.hand_over(thread_idx, courier);
  if (errand.num_bytes > 0) {
    access(thread, agent, false, false, errand.from, errand.num_bytes);
    access(thread, agent, false, true, errand.to, errand.num_bytes);
    put(errand.to, errand.from, errand.num_bytes);
  }
  if (errand.addend == 0 || is_local(thread, agent, errand.word, sizeof *errand.word, true)) return;
  const int location = locate(thread, errand.word, sizeof *errand.word);
  turn(thread);
  count_write(thread);
  memory_.choices(agent, location, true, distances_);
  assert_that(thread_idx, distances_.size() == 1, kOneWriter);
  added_to_.set(size_t(location));
  const auto add = [&](uint64_t old) { return old + errand.addend; };
  const uint64_t old = memory_.modify(agent, location, distances_[0], add, Order::kAcqRel);
  wrote(thread, location);
  if (with_trace_) note(thread_idx, name_of(agent), ": add to ", arena_.describe(errand.word), " = ", old + errand.addend);
}

void Execution::idle(int thread_idx) {
  ThreadState& thread = *threads_[size_t(thread_idx)];
  if (outdated(thread).any()) {  // another round sees more, without anybody's doing
    thread.polls.reset();
    thread.stale_retry = false;
    return;
  }
  if (thread.stale_retry && thread.polls == thread.idle_polls) {
    is_cut_ = true;
    park(thread);
  }
  thread.idle_polls = thread.polls;
  thread.polls.reset();
  thread.stale_retry = true;
  count_operation(thread);
  if (with_trace_) note(thread_idx, "idle");
  pause(thread, Wait::kIdle);
}

void Execution::assert_that(int thread_idx, bool condition, std::string_view message) {
  if (condition) return;
  ThreadState& thread = *threads_[size_t(thread_idx)];
  if (with_trace_) note(thread_idx, "assertion fails: ", message);
  fail(Fault::kAssertion, text(program_.threads[size_t(thread_idx)].name, ": ", message));
  park(thread);
}

uint64_t Execution::begin_step(int thread_idx, uint64_t place) {
  ThreadState& thread = *threads_[size_t(thread_idx)];
  thread.place = place;
  return thread.history;
}

}  // namespace switchyard::model
