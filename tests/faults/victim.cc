#include "faults/victim.hpp"

#include <algorithm>
#include <cstdio>
#include <ostream>

namespace switchyard::testing {
namespace {

using oracle::Layout;

constexpr int kNumRounds = 6;  // the victim fails in one of the first two

// ---- who comes past where ----

bool only_the_hub(const FailpointPlace& place) { return place.starts_with("node_link.hub_"); }
// The hub invites; the others call.
bool never_the_hub(const FailpointPlace& place) {
  return place.starts_with("node_link.") && !only_the_hub(place) && !place.starts_with("node_link.before_invitation") &&
         !place.starts_with("node_link.after_invitation");
}
bool needs_masks(const FailpointPlace& place) {
  return place.starts_with("mask.") || place.starts_with("ll.admission.");
}
bool needs_windows(const FailpointPlace& place) { return place.starts_with("ll.dispatch.consent"); }
// What remains is told only where rows may be dropped.
bool needs_drops(const FailpointPlace& place) { return place.starts_with("ht.route.kept_posted"); }
// Where nobody can be missing, ranks of one node find places without being told.
bool needs_masks_or_nodes(const FailpointPlace& place) { return place.starts_with("ht.route.places_posted"); }
// Where results are in a window, they are read there.
bool needs_copies(const FailpointPlace& place) { return place.starts_with("ht.combine.row_staged"); }
// Before that, the harness has no windows that survivors could fail to register.
bool allows_windows(const FailpointPlace& place) {
  return place.starts_with("ll.") || place.starts_with("ht.") || place.starts_with("ep.") || place.starts_with("mask.");
}
bool is_collective(const FailpointPlace& place) { return place.starts_with("coll."); }
bool comes_again(const FailpointPlace& place) {
  return place.starts_with("ll.d") || place.starts_with("ll.c") || place.starts_with("ht.") || is_collective(place) ||
         place.starts_with("window.") || in_the_network(place);
}
// The later one of two. In the network a rank comes past before there is a group, too, and its threads all the time.
int later_hit(const FailpointPlace& place) {
  if (place.starts_with("progress.") || place.starts_with("net.progress")) return 60;
  constexpr const char* kOfSettingUp[] = {"net.provider_", "net.join_", "net.region_"};
  const bool sets_up = std::ranges::any_of(kOfSettingUp, [&](const char* prefix) { return place.starts_with(prefix); });
  return in_the_network(place) && !sets_up ? 12 : 2;
}

// Alone on its node where there are two.
constexpr int kLonely = 2;
bool needs_neighbours(const FailpointPlace& place) {
  return place.starts_with("node_link.") || place.starts_with("ht.combine.row_staged");
}
// By the rule of rails, for the lonely rank; which does so for all others.
constexpr int kForwardsHere = 0;
bool needs_forwarding(const FailpointPlace& place) {
  return place.starts_with("ht.forward.") || place.starts_with("ht.combine.sum_packed");
}

bool possible(const Fate& fate) {
  const FailpointPlace& place = fate.place;
  if (only_the_hub(place) && fate.options.victim != 0) return false;
  if (never_the_hub(place) && fate.options.victim == 0) return false;
  if (needs_masks(place) && !fate.options.masks) return false;
  if (needs_masks_or_nodes(place) && !fate.options.masks && fate.way == Way::kOneNode) return false;
  if (needs_windows(place) && (!fate.options.windows || fate.options.masks)) return false;
  if (needs_drops(place) && !fate.options.drops) return false;
  if (needs_copies(place) && fate.options.windows && !fate.options.masks) return false;
  if (fate.options.windows && !allows_windows(place)) return false;
  if (fate.options.algorithm == Algorithm::kCollectives &&
      (fate.options.masks || fate.options.layout != Layout::kExpertMajor))
    return false;  // all the same
  if (!lies_on(place, fate.way)) return false;
  if (fate.way != Way::kOneNode) {
    if (needs_windows(place)) return false;  // rows go through the group's buffers
    if (needs_neighbours(place) && fate.options.victim == kLonely) return false;
    if (needs_forwarding(place) && fate.options.victim != kLonely && fate.options.victim != kForwardsHere) return false;
  }
  return fate.hit == 1 || comes_again(place);
}

// ---- what a rank does ----

void say_noticed() {
  puts("noticed");
  fflush(stdout);
}

std::string judge_error(const Status& status, int victim) {
  say_noticed();
  if (names_rank(status.message(), victim)) return "";
  return text(kDoesNotName, victim, ": ", status.to_string());
}

// With masks, joined ranks go on whatever happens to one of them; a clean-up that the victim took part in may fail.
// All do as many rounds: survivors learn of the victim's end in different operations.
std::string go_on_without(Life& life, int victim) {
  bool noticed = false;
  for (int round = 0; round < kNumRounds; ++round) {
    const Status status = life.round_trip(/*varied=*/round % 2 != 0);
    if (!life.wrong().empty()) return life.wrong();
    if (!status.ok()) return "an operation failed in spite of masks: " + status.to_string();
    if (life.victim_masked() && !noticed) say_noticed();
    noticed |= life.victim_masked();
    if (noticed) continue;
    if (const Status cleaned = life.clean_masks(); !cleaned.ok()) {
      if (const std::string fault = judge_error(cleaned, victim); !fault.empty()) return fault;
      noticed = true;
    }
  }
  return life.num_masked_rounds() < 2 ? text("rank ", victim, " was not masked") : "";
}

std::string fail_with(Life& life, int victim) {
  for (int round = 0; round < kNumRounds; ++round) {
    const Status status = life.round_trip(/*varied=*/round % 2 != 0);
    if (!life.wrong().empty()) return life.wrong();
    if (!status.ok()) return judge_error(status, victim);
  }
  return text("rank ", victim, " is missing, and ", kNumRounds, " round trips succeeded");
}

// As the others, until it fails; if it gets on after that, they are gone. Alone it has results without them, or an
// error.
std::string live_as_victim(Life& life, bool masks) {
  life.judge_as_victim();
  for (int round = 0; round < kNumRounds; ++round) {
    Status status = life.round_trip(/*varied=*/round % 2 != 0);
    if (!life.wrong().empty()) return life.wrong();
    if (status.ok() && masks) status = life.clean_masks();
    if (!status.ok()) {
      puts(status.to_string().c_str());
      say_noticed();
      return "";
    }
  }
  return masks ? "" : "the others are gone, and round trips succeeded";
}

}  // namespace

// ---- Fate ----

std::string Fate::name() const {
  static constexpr const char* kOver[] = {"", ", over mem", ", over ofi", ", over ofi by proxy"};
  return text(place.name, "@", hit, ", ", options.name(), kOver[size_t(way)]);
}

std::string Fate::name_of_test(size_t index) const {
  std::string name = place.name;
  std::replace(name.begin(), name.end(), '.', '_');
  static constexpr const char* kOver[] = {"", "_mem", "", "_proxy"};
  return text(index, "_", name, options.masks ? "_masks" : "", kOver[size_t(way)]);
}

std::string Fate::failpoint(const char* action) const {
  return text("SWITCHYARD_FAILPOINTS=", place.name, "=", action, "@", hit);
}

void PrintTo(const Fate& fate, std::ostream* out) { *out << fate.name(); }

bool in_an_operation(const FailpointPlace& place) {
  return (place.starts_with("ll.") || place.starts_with("ht.")) && !needs_masks(place) && !needs_windows(place);
}

bool in_the_network(const FailpointPlace& place) {
  return place.starts_with("net.") || place.starts_with("proxy.") || place.starts_with("progress.") ||
         place.starts_with("mem.");
}

bool only_between_nodes(const FailpointPlace& place) {
  return place.starts_with("ht.rail.") || place.starts_with("coll.rail.") || needs_forwarding(place) ||
         in_the_network(place);
}

bool lies_on(const FailpointPlace& place, Way way) {
  if (place.starts_with("mem.")) return way == Way::kMem;
  if (place.starts_with("proxy.")) return way == Way::kOfiProxy;
  if (in_the_network(place)) return way == Way::kOfi || way == Way::kOfiProxy;
  return way != Way::kOneNode || !only_between_nodes(place);
}

bool before_anybody_watches(const FailpointPlace& place) { return place.starts_with("comm.before_connect"); }

std::vector<Fate> all_fates(const FailpointPlace& place, Way way) {
  std::vector<Fate> fates;
  for (int variant = 0; variant < 48; ++variant) {
    Fate fate{place, {}, variant < 24 ? 1 : later_hit(place), way};
    fate.options.victim = variant % 3;
    fate.options.masks = variant / 3 % 2 != 0;
    fate.options.windows = variant / 6 % 2 != 0;
    fate.options.layout = variant / 12 % 2 != 0 ? Layout::kRankMajor : Layout::kExpertMajor;
    if (place.starts_with("ht.")) {
      fate.options.algorithm = Algorithm::kHighThroughput;
      fate.options.drops = (variant / 6 + variant / 12) % 2 != 0;
    }
    if (is_collective(place)) fate.options.algorithm = Algorithm::kCollectives;
    if (in_the_network(place)) {  // which carries them all
      fate.options.algorithm = Algorithm(variant / 6 % 3);
      fate.options.windows = false;
    }
    fate.options.two_nodes = way != Way::kOneNode;
    if (possible(fate)) fates.push_back(fate);
  }
  return fates;
}

std::vector<Fate> one_fate(const FailpointPlace& place, bool masks, size_t turn, Way way) {
  std::vector<Fate> candidates = all_fates(place, way);
  std::erase_if(candidates, [&](const Fate& fate) { return fate.options.masks != masks; });
  if (candidates.empty()) return {};
  return {candidates[turn * 7 % candidates.size()]};
}

std::string live_with_a_victim(const RankProcess& self) {
  const LifeOptions options = LifeOptions::from_arguments(self.arguments);
  const bool is_victim = self.rank == options.victim;
  Life life(options, self.id, self.rank);
  if (const Status joined = life.join(); !joined.ok()) {
    if (!is_victim) return judge_error(joined, options.victim);
    puts(joined.to_string().c_str());
    say_noticed();
    return "";
  }
  if (is_victim) return live_as_victim(life, options.masks);
  return options.masks ? go_on_without(life, options.victim) : fail_with(life, options.victim);
}

Result<std::unique_ptr<ProcessRanks>> start_with_victim(const Fate& fate, const char* action,
                                                        const std::vector<std::string>& more_arguments) {
  std::vector<std::string> arguments = fate.options.to_arguments();
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  const auto environment = [&](int rank) {
    std::vector<std::string> variables;
    if (rank == fate.options.victim) variables.push_back(fate.failpoint(action));
    if (fate.way == Way::kOneNode) return variables;
    variables.push_back(text("SWITCHYARD_NET=", fate.way == Way::kMem ? "mem" : "ofi"));
    variables.push_back(text("SWITCHYARD_NODE_ID=", int(rank == kLonely)));
    variables.push_back(text("SWITCHYARD_GIN=", fate.way == Way::kOfiProxy ? "proxy" : "direct"));
    // Where writes carry little, all signals are messages.
    if (fate.place.starts_with("net.message_")) variables.push_back("SWITCHYARD_NET_DATA_BYTES=4");
    return variables;
  };
  return ProcessRanks::start({.num_ranks = fate.options.num_ranks,
                              .body = "live",
                              .arguments = arguments,
                              .environment = environment});
}

}  // namespace switchyard::testing
