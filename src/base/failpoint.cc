#include "base/failpoint.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/log.hpp"

namespace switchyard {
namespace {

constexpr uint64_t kMaxDelayMs = 600'000;
constexpr uint64_t kMaxHits = 1'000'000'000;
constexpr uint64_t kMaxRank = 1u << 20;

enum class Kind { kOff, kKill, kStop, kError, kDelay };

struct Action {
  Kind kind = Kind::kOff;
  uint64_t delay_ms = 0;
  std::optional<uint64_t> only_hit = {};
  std::optional<uint64_t> only_rank = {};
  uint64_t num_hits = 0;
};

thread_local int g_thread_rank = -1;

std::optional<Action> parse_kind(const std::string& spec) {
  if (spec == "kill") return Action{.kind = Kind::kKill};
  if (spec == "stop") return Action{.kind = Kind::kStop};
  if (spec == "error") return Action{.kind = Kind::kError};
  if (spec == "off") return Action{.kind = Kind::kOff};
  constexpr std::string_view kDelay = "delay:";
  if (!spec.starts_with(kDelay)) return std::nullopt;
  const auto delay_ms = parse_number(spec.substr(kDelay.size()), 0, kMaxDelayMs);
  if (!delay_ms) return std::nullopt;
  return Action{.kind = Kind::kDelay, .delay_ms = *delay_ms};
}

// kind, then @hit and #rank in either order, each at most once.
std::optional<Action> parse_action(const std::string& spec) {
  size_t position = std::min(spec.find_first_of("@#"), spec.size());
  std::optional<Action> action = parse_kind(spec.substr(0, position));
  while (action && position < spec.size()) {
    const size_t next = std::min(spec.find_first_of("@#", position + 1), spec.size());
    const bool is_hit = spec[position] == '@';
    auto& filter = is_hit ? action->only_hit : action->only_rank;
    const auto number =
        parse_number(spec.substr(position + 1, next - position - 1), is_hit ? 1 : 0, is_hit ? kMaxHits : kMaxRank);
    if (filter || !number) return std::nullopt;
    filter = number;
    position = next;
  }
  return action;
}

void sleep_until(uint64_t end_ns) {
  const timespec end = {.tv_sec = time_t(end_ns / kSecond), .tv_nsec = long(end_ns % kSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) == EINTR) {
  }
}

using NamedAction = std::pair<std::string, Action>;

Result<std::vector<NamedAction>> parse_list(const std::string& list) {
  std::vector<NamedAction> actions;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const size_t equals = item.find('=');
    const auto action = equals == std::string::npos ? std::nullopt : parse_action(item.substr(equals + 1));
    if (equals == 0 || !action) {
      return Status::invalid_argument(text("failpoint '", item, "' is malformed; allowed: name=kill, stop, error, off ",
                                           "or delay:MS (at most ", kMaxDelayMs, "), then @HIT (from 1), #RANK"));
    }
    actions.emplace_back(item.substr(0, equals), *action);
    begin = end + 1;
  }
  return actions;
}

// Places that were hit, and actions by name; either may come first.
class Table {
 public:
  Table() {
    if (const Status status = set(env().failpoints); !status.ok()) {
      log(LogLevel::kWarn, "SWITCHYARD_FAILPOINTS is ignored: ", status.message());
    }
  }

  Status set(const std::string& list) {
    SWITCHYARD_ASSIGN(const std::vector<NamedAction> parsed, parse_list(list));
    const std::lock_guard lock(mutex_);
    for (const auto& [name, action] : parsed) set_locked(name, action);
    for (const auto& [name, sites] : sites_) update_sites(name);
    return {};
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    actions_.clear();
    for (const auto& [name, sites] : sites_) update_sites(name);
  }

  // Counts the hit; what to do now is done by the caller, outside the lock.
  Action hit(FailpointSite& site) {
    const std::lock_guard lock(mutex_);
    auto& sites = sites_[site.name()];
    if (std::find(sites.begin(), sites.end(), &site) == sites.end()) {
      sites.push_back(&site);
      update_sites(site.name());
    }
    const auto found = actions_.find(site.name());
    if (found == actions_.end()) return {};
    Action due;
    for (Action& action : found->second) {
      if (action.only_rank && (g_thread_rank < 0 || *action.only_rank != uint64_t(g_thread_rank))) continue;
      ++action.num_hits;
      if (!action.only_hit || action.num_hits == *action.only_hit) due = action;
    }
    return due;
  }

  bool has_actions(const char* name) {
    const std::lock_guard lock(mutex_);
    return actions_.contains(name);
  }

  uint64_t hits(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = actions_.find(name);
    if (found == actions_.end()) return 0;
    uint64_t most = 0;
    for (const Action& action : found->second) most = std::max(most, action.num_hits);
    return most;
  }

  std::vector<std::string> names() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, sites] : sites_) names.push_back(name);
    return names;
  }

 private:
  void set_locked(const std::string& name, const Action& action) {
    if (action.kind == Kind::kOff) {
      actions_.erase(name);
      return;
    }
    auto& actions = actions_[name];
    std::erase_if(actions, [&](const Action& old) { return old.only_rank == action.only_rank; });
    actions.push_back(action);
  }

  void update_sites(const std::string& name) {
    for (FailpointSite* site : sites_[name]) site->set_visit_table(actions_.contains(name));
  }

  std::mutex mutex_;
  std::map<std::string, std::vector<FailpointSite*>> sites_;  // static objects of the program, not owned
  std::map<std::string, std::vector<Action>> actions_;
};

Table& table() {
  static Table instance;
  return instance;
}

// Until the time is over or the actions of that name are taken back.
void delay(const char* name, uint64_t delay_ms) {
  const uint64_t end_ns = now_ns() + delay_ms * kMillisecond;
  for (uint64_t now = now_ns(); now < end_ns && table().has_actions(name); now = now_ns()) {
    sleep_until(std::min(end_ns, now + 10 * kMillisecond));
  }
}

}  // namespace

bool FailpointSite::hit_table() {
  const Action action = table().hit(*this);
  if (action.kind != Kind::kOff) {
    log(LogLevel::kInfo, "failpoint ", name_, " acts at hit ", action.num_hits, ", rank ", g_thread_rank);
  }
  switch (action.kind) {
    case Kind::kOff: return false;
    case Kind::kKill: kill(getpid(), SIGKILL); return false;
    case Kind::kStop: kill(getpid(), SIGSTOP); return false;
    case Kind::kDelay: delay(name_, action.delay_ms); return false;
    case Kind::kError: return true;
  }
  return false;
}

Status set_failpoint(const std::string& name, const std::string& action) { return table().set(name + "=" + action); }

Status set_failpoints(const std::string& list) { return table().set(list); }

void clear_failpoints() { table().clear(); }

uint64_t failpoint_hits(const std::string& name) { return table().hits(name); }

void set_failpoint_rank(int rank) { g_thread_rank = rank; }

std::vector<std::string> failpoint_names() { return table().names(); }

}  // namespace switchyard
