#include "model/explorer.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "model/execution.hpp"
#include "switchyard/status.hpp"

namespace switchyard::model {
namespace {

// Visited states keep their sleep set as a mask. Transitions without a bit are never put to sleep.
constexpr int kMaskDistances = 64 / kMaxThreads;
uint64_t bit_of(Transition transition) {
  if (transition.distance >= kMaskDistances) return 0;
  return uint64_t(1) << (transition.thread * kMaskDistances + transition.distance);
}

// A choice on the current path: between transitions, or between places of a store in modification order.
struct Node {
  size_t num_alternatives = 0;
  size_t current = 0;
  std::vector<Transition> transitions;  // empty: places of a store
  std::vector<Transition> sleep;        // need not be followed: what comes after them is explored from an earlier state
};

class Explorer {
 public:
  Explorer(const Program& program, Arena& arena, const Options& options)
      : program_(program),
        options_(options),
        execution_(program, arena, options, [this](size_t num_places) { return choose_place(num_places); }) {}

  Report run();

 private:
  void run_once(bool with_trace);
  size_t choose_place(size_t num_places);
  bool open_node(std::optional<size_t> parent);
  void inherit_sleep(const Node& parent);
  void drop_sleeping_and_visited();
  bool backtrack();

  const Program& program_;
  const Options& options_;
  Execution execution_;
  std::vector<Node> path_;
  size_t cursor_ = 0;                               // how much of path_ the present execution has followed
  std::unordered_map<uint64_t, uint64_t> visited_;  // fingerprint -> transitions not followed from there
  std::vector<Transition> candidates_;
  std::vector<Transition> sleep_;
  Report report_;
};

Report Explorer::run() {
  const uint64_t start_ns = now_ns();
  do {
    run_once(false);
    ++report_.num_executions;
    if (execution_.violation()) {
      // The path leads to the violation again, this time written down.
      run_once(true);
      report_.violation = execution_.violation();
      report_.violation->trace = execution_.take_trace();
      report_.exhaustive = true;
      break;
    }
    if (report_.num_executions >= options_.max_executions) break;
    if (report_.num_executions % 256 == 0 && now_ns() - start_ns > options_.time_limit_ns) break;
  } while (!(report_.exhaustive = !backtrack()));
  report_.num_states = visited_.size();
  report_.num_killed = execution_.num_killed();
  report_.seconds = double(now_ns() - start_ns) * 1e-9;
  return std::move(report_);
}

void Explorer::run_once(bool with_trace) {
  cursor_ = 0;
  execution_.begin(with_trace);
  std::optional<size_t> parent;
  for (;;) {
    if (execution_.violation() || execution_.is_cut()) return;
    if (execution_.all_finished()) {
      const std::string complaint = program_.check_at_end ? program_.check_at_end() : "";
      if (!complaint.empty()) execution_.fail(Fault::kAssertion, complaint);
      return;
    }
    if (cursor_ == path_.size() && !open_node(parent)) return;
    parent = cursor_++;
    const Transition transition = path_[*parent].transitions[path_[*parent].current];
    execution_.run(transition);  // may add store choices to path_
  }
}

size_t Explorer::choose_place(size_t num_places) {
  if (cursor_ == path_.size()) {
    path_.emplace_back().num_alternatives = num_places;
    report_.max_depth = std::max(report_.max_depth, path_.size());
  }
  return path_[cursor_++].current;
}

// False if nothing new can come of the present state: it deadlocked, or was explored before.
bool Explorer::open_node(std::optional<size_t> parent) {
  execution_.enabled(candidates_);
  if (candidates_.empty()) {
    execution_.fail(Fault::kDeadlock, text("no thread can go on: ", execution_.describe_waits()));
    return false;
  }
  sleep_.clear();
  if (options_.reduce) {
    if (parent) inherit_sleep(path_[*parent]);
    drop_sleeping_and_visited();
    if (candidates_.empty()) return false;
  }
  Node& node = path_.emplace_back();
  node.num_alternatives = candidates_.size();
  node.transitions = candidates_;
  node.sleep = sleep_;
  report_.max_depth = std::max(report_.max_depth, path_.size());
  return true;
}

// What sleeps at the parent still sleeps unless the step just taken is of the same thread, or put a store between those
// among which the sleeper chooses, so that its distance means another one.
void Explorer::inherit_sleep(const Node& parent) {
  const uint8_t moved = parent.transitions[parent.current].thread;
  for (const Transition sleeper : parent.sleep) {
    const std::optional<int> location = execution_.pending_location(sleeper.thread);
    if (sleeper.thread == moved || !location || execution_.insertions()[size_t(*location)]) continue;
    sleep_.push_back(sleeper);
  }
}

// A visited state is explored again only for what slept at every earlier visit and does not sleep now.
void Explorer::drop_sleeping_and_visited() {
  uint64_t sleep_mask = 0;
  for (const Transition sleeper : sleep_) sleep_mask |= bit_of(sleeper);
  const auto [entry, is_new] = visited_.try_emplace(execution_.fingerprint(), sleep_mask);
  const uint64_t wanted = is_new ? ~sleep_mask : entry->second & ~sleep_mask;
  entry->second &= sleep_mask;
  std::erase_if(candidates_, [&](Transition transition) {
    const uint64_t bit = bit_of(transition);
    return bit == 0 ? !is_new : (wanted & bit) == 0;
  });
}

bool Explorer::backtrack() {
  while (!path_.empty()) {
    Node& node = path_.back();
    if (!node.transitions.empty() && bit_of(node.transitions[node.current]) != 0) {
      node.sleep.push_back(node.transitions[node.current]);
    }
    if (++node.current < node.num_alternatives) return true;
    path_.pop_back();
  }
  return false;
}

}  // namespace

const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::kAssertion: return "assertion";
    case Fault::kDataRace: return "data race";
    case Fault::kDeadlock: return "deadlock";
    case Fault::kBadAccess: return "bad access";
    case Fault::kUnbounded: return "unbounded";
  }
  return "?";
}

std::string Report::to_string() const {
  std::string result = text(num_executions, " executions, ", num_states, " states, depth ", max_depth, ", ", seconds,
                            " s, ", exhaustive ? "exhaustive" : "stopped at a limit");
  if (!violation) return result;
  result += text("\n", fault_name(violation->fault), ": ", violation->message);
  for (const std::string& line : violation->trace) result += "\n  " + line;
  return result;
}

Report explore(const std::function<Program(Arena&)>& make_program, const Options& options) {
  Arena arena;
  const Program program = make_program(arena);
  Report report;
  if (program.threads.empty() || program.threads.size() > size_t(kMaxThreads) ||
      program.couriers.size() > size_t(kMaxCouriers)) {
    report.violation = Violation{Fault::kBadAccess,
                                 text("a program has 1..", kMaxThreads, " threads and 0..", kMaxCouriers,
                                      " couriers, this one has ", program.threads.size(), " and ", program.couriers.size()),
                                 {}};
    return report;
  }
  arena.snapshot();
  return Explorer(program, arena, options).run();
}

}  // namespace switchyard::model
