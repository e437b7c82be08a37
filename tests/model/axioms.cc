#include "model/axioms.hpp"

#include <algorithm>
#include <array>
#include <bitset>

namespace switchyard::model {
namespace {

constexpr size_t kMaxEvents = 16;
using Kind = Operation::Kind;

// relation[a][b]: a is before b
using Relation = std::array<std::bitset<kMaxEvents>, kMaxEvents>;

Relation closure(Relation relation) {
  for (size_t via = 0; via < kMaxEvents; ++via) {
    for (size_t from = 0; from < kMaxEvents; ++from) {
      if (relation[from][via]) relation[from] |= relation[via];
    }
  }
  return relation;
}

bool has_cycle(const Relation& closed) {
  for (size_t e = 0; e < kMaxEvents; ++e) {
    if (closed[e][e]) return true;
  }
  return false;
}

struct Event {
  int thread;  // -1: initial value
  Operation operation;
  size_t operation_idx;
  bool is_plain() const { return operation.kind == Kind::kPlainRead || operation.kind == Kind::kPlainWrite; }
  bool reads() const { return !is_plain() && operation.kind != Kind::kStore; }
  bool writes() const { return operation.kind == Kind::kStore || operation.kind == Kind::kAdd; }
  bool acquires() const { return reads() && model::acquires(operation.order); }
  bool releases() const { return writes() && thread >= 0 && model::releases(operation.order); }
};

// Which operations take place: a thread may be stopped for ever at one of its waits, and guards may skip operations.
struct Selection {
  std::vector<size_t> stop;        // per thread: index of the wait, or its number of operations
  std::vector<bool> guard_passes;  // per operation of the program
};

// All candidates that share one selection.
class Candidates {
 public:
  Candidates(const SmallProgram& program, const Selection& selection, Allowed& allowed);
  void enumerate() { choose_reads_from(0); }

 private:
  void choose_reads_from(size_t event);
  void choose_modification_order(int word);
  bool compute_values();
  bool guards_hold() const;
  bool atomicity_holds() const;
  Relation happens_before() const;
  bool coherence_holds(const Relation& happens) const;
  bool has_race(const Relation& happens) const;
  bool is_stopped() const;
  bool waits_in_vain() const;
  void record_outcome();

  const SmallProgram& program_;
  const Selection& selection_;
  Allowed& allowed_;
  std::vector<Event> events_;
  Relation program_order_{};
  std::array<size_t, kMaxEvents> reads_from_{};
  std::array<uint64_t, kMaxEvents> read_value_{}, written_{};
  std::array<std::vector<size_t>, kNumSmallWords> modification_;  // events, initial value first
};

Candidates::Candidates(const SmallProgram& program, const Selection& selection, Allowed& allowed)
    : program_(program), selection_(selection), allowed_(allowed) {
  for (int word = 0; word < kNumSmallWords; ++word) {
    events_.push_back({-1, {Kind::kStore, word, Order::kRelaxed, 0}, 0});
    modification_[size_t(word)].push_back(size_t(word));
  }
  size_t flat_idx = 0;
  for (size_t t = 0; t < program.size(); ++t) {
    for (size_t i = 0; i < program[t].size(); ++i, ++flat_idx) {
      if (i >= selection.stop[t] || !selection.guard_passes[flat_idx]) continue;
      const Event event{int(t), program[t][i], i};
      if (event.writes()) modification_[size_t(event.operation.word)].push_back(events_.size());
      for (size_t e = 0; e < events_.size(); ++e) {
        if (events_[e].thread < 0 || events_[e].thread == event.thread) program_order_[e].set(events_.size());
      }
      events_.push_back(event);
    }
  }
}

void Candidates::choose_reads_from(size_t event) {
  while (event < events_.size() && !events_[event].reads()) ++event;
  if (event == events_.size()) {
    if (compute_values() && guards_hold()) choose_modification_order(0);
    return;
  }
  for (size_t write : modification_[size_t(events_[event].operation.word)]) {
    if (write == event) continue;
    reads_from_[event] = write;
    choose_reads_from(event + 1);
  }
}

// False if program order and reads-from have a cycle, so that values would come out of thin air.
bool Candidates::compute_values() {
  Relation relation = program_order_;
  for (size_t e = 0; e < events_.size(); ++e) {
    if (events_[e].reads()) relation[reads_from_[e]].set(e);
  }
  relation = closure(relation);
  if (has_cycle(relation)) return false;
  std::vector<size_t> by_cause(events_.size());
  for (size_t e = 0; e < by_cause.size(); ++e) by_cause[e] = e;
  const auto num_causes = [&](size_t e) {
    return std::count_if(relation.begin(), relation.end(), [&](const auto& row) { return row[e]; });
  };
  std::sort(by_cause.begin(), by_cause.end(), [&](size_t a, size_t b) { return num_causes(a) < num_causes(b); });
  for (size_t e : by_cause) {
    const Event& event = events_[e];
    if (event.reads()) read_value_[e] = written_[reads_from_[e]];
    written_[e] = event.operation.value + (event.operation.kind == Kind::kAdd ? read_value_[e] : 0);
  }
  return true;
}

// A guarded operation takes place exactly if the last read before it returned what it expects; a wait that took place
// read what it waited for.
bool Candidates::guards_hold() const {
  for (size_t t = 0; t < program_.size(); ++t) {
    uint64_t last = 0;
    for (size_t i = 0; i < selection_.stop[t]; ++i) {
      const auto event = std::find_if(events_.begin(), events_.end(),
                                      [&](const Event& e) { return e.thread == int(t) && e.operation_idx == i; });
      const bool took_place = event != events_.end();
      const bool should = !program_[t][i].is_guarded || last == program_[t][i].expected;
      if (took_place != should) return false;
      if (took_place && event->reads()) last = read_value_[size_t(event - events_.begin())];
      if (took_place && event->operation.kind == Kind::kAwait && last != event->operation.value) return false;
    }
  }
  return true;
}

void Candidates::choose_modification_order(int word) {
  if (word == kNumSmallWords) {
    if (!atomicity_holds()) return;
    const Relation happens = happens_before();
    if (!coherence_holds(happens)) return;
    allowed_.has_race = allowed_.has_race || has_race(happens);
    if (!is_stopped()) {
      record_outcome();
    } else if (waits_in_vain()) {
      allowed_.has_deadlock = true;
    }
    return;
  }
  std::vector<size_t>& order = modification_[size_t(word)];
  const std::vector<size_t> kept = order;
  std::sort(order.begin() + 1, order.end());
  do {
    choose_modification_order(word + 1);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  order = kept;
}

bool Candidates::atomicity_holds() const {
  for (const std::vector<size_t>& order : modification_) {
    for (size_t place = 1; place < order.size(); ++place) {
      const size_t e = order[place];
      if (events_[e].operation.kind == Kind::kAdd && reads_from_[e] != order[place - 1]) return false;
    }
  }
  return true;
}

Relation Candidates::happens_before() const {
  Relation relation = program_order_;
  for (size_t e = 0; e < events_.size(); ++e) {
    if (!events_[e].acquires()) continue;
    // Back along the release sequence: additions continue it, anything else heads it or ends it.
    for (size_t write = reads_from_[e];; write = reads_from_[write]) {
      if (events_[write].releases()) relation[write].set(e);
      if (events_[write].operation.kind != Kind::kAdd) break;
    }
  }
  return closure(relation);
}

bool Candidates::coherence_holds(const Relation& happens) const {
  Relation access_order{};
  for (const std::vector<size_t>& order : modification_) {
    for (size_t a = 0; a < order.size(); ++a) {
      for (size_t b = a + 1; b < order.size(); ++b) {
        access_order[order[a]].set(order[b]);
        for (size_t e = 0; e < events_.size(); ++e) {
          if (events_[e].reads() && reads_from_[e] == order[a] && e != order[b]) access_order[e].set(order[b]);
        }
      }
    }
  }
  for (size_t e = 0; e < events_.size(); ++e) {
    if (events_[e].reads()) access_order[reads_from_[e]].set(e);
  }
  access_order = closure(access_order);
  if (has_cycle(happens) || has_cycle(access_order)) return false;
  for (size_t a = 0; a < events_.size(); ++a) {
    for (size_t b = 0; b < events_.size(); ++b) {
      if (happens[a][b] && access_order[b][a]) return false;
    }
  }
  return true;
}

bool Candidates::has_race(const Relation& happens) const {
  for (size_t a = 0; a < events_.size(); ++a) {
    for (size_t b = a + 1; b < events_.size(); ++b) {
      const Operation &one = events_[a].operation, &two = events_[b].operation;
      if (!events_[a].is_plain() || !events_[b].is_plain() || one.word != two.word) continue;
      if (one.kind == Kind::kPlainRead && two.kind == Kind::kPlainRead) continue;
      if (!happens[a][b] && !happens[b][a]) return true;
    }
  }
  return false;
}

bool Candidates::is_stopped() const {
  for (size_t t = 0; t < program_.size(); ++t) {
    if (selection_.stop[t] < program_[t].size()) return true;
  }
  return false;
}

// Does no stopped thread wait for its word's last value? (One that does would go on: the candidate is unfinished.)
bool Candidates::waits_in_vain() const {
  for (size_t t = 0; t < program_.size(); ++t) {
    if (selection_.stop[t] == program_[t].size()) continue;
    const Operation& wait = program_[t][selection_.stop[t]];
    if (written_[modification_[size_t(wait.word)].back()] == wait.value) return false;
  }
  return true;
}

void Candidates::record_outcome() {
  SmallOutcome outcome;
  for (size_t t = 0; t < program_.size(); ++t) {
    for (size_t i = 0; i < program_[t].size(); ++i) {
      const Kind kind = program_[t][i].kind;
      if (kind != Kind::kLoad && kind != Kind::kAdd) continue;
      uint64_t value = kNotRun;
      for (size_t e = 0; e < events_.size(); ++e) {
        if (events_[e].thread == int(t) && events_[e].operation_idx == i) value = read_value_[e];
      }
      outcome.push_back(value);
    }
  }
  for (const std::vector<size_t>& order : modification_) outcome.push_back(written_[order.back()]);
  allowed_.outcomes.insert(outcome);
}

}  // namespace

Allowed allowed_by_axioms(const SmallProgram& program) {
  Selection all;
  std::vector<size_t> guarded;
  for (const auto& thread : program) {
    for (const Operation& operation : thread) {
      if (operation.is_guarded) guarded.push_back(all.guard_passes.size());
      all.guard_passes.push_back(true);
    }
    all.stop.push_back(thread.size());
  }
  std::vector<Selection> selections{all};
  for (size_t g : guarded) {
    for (size_t s = 0, count = selections.size(); s < count; ++s) {
      selections.push_back(selections[s]);
      selections.back().guard_passes[g] = false;
    }
  }
  for (size_t t = 0; t < program.size(); ++t) {
    for (size_t s = 0, count = selections.size(); s < count; ++s) {
      for (size_t i = 0; i < program[t].size(); ++i) {
        if (program[t][i].kind != Kind::kAwait) continue;
        selections.push_back(selections[s]);
        selections.back().stop[t] = i;
      }
    }
  }
  Allowed allowed;
  for (const Selection& selection : selections) Candidates(program, selection, allowed).enumerate();
  return allowed;
}

}  // namespace switchyard::model
