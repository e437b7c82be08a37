// Death: a rank's process kills itself at every failpoint of the library, with and without masks. The others must
// notice within a second or so: by an error that names it, or, with masks, by going on without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <set>

#include "faults/failpoint_list.hpp"
#include "faults/life.hpp"
#include "support/process_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;

constexpr int kNumRanks = 3;
constexpr int kNumRounds = 6;  // the victim dies in one of the first two
// The promise is one second; the rest is for machines with more to do than these tests. Far less than the time limits
// of LifeOptions, so that a wait that only ends with those is found out.
constexpr uint64_t kNoticeNs = 2500 * kMillisecond;

// ---- what a rank does ----

void say_noticed() {
  puts("noticed");
  fflush(stdout);
}

std::string judge_error(const Status& status, int victim) {
  say_noticed();
  if (names_rank(status.message(), victim)) return "";
  return text("the error does not name rank ", victim, ": ", status.to_string());
}

// With masks, joined ranks go on whatever happens to one of them; a clean-up that the dead rank took part in may fail.
// All do as many rounds: survivors learn of the death in different operations.
std::string go_on_without(Life& life, int victim) {
  bool noticed = false;
  for (int round = 0; round < kNumRounds; ++round) {
    const Status status = life.round_trip(/*staged=*/round % 2 != 0);
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
    const Status status = life.round_trip(/*staged=*/round % 2 != 0);
    if (!life.wrong().empty()) return life.wrong();
    if (!status.ok()) return judge_error(status, victim);
  }
  return text("rank ", victim, " is missing, and ", kNumRounds, " round trips succeeded");
}

// The victim does the same; it only does not get to the end.
std::string live(const RankProcess& self) {
  const LifeOptions options = LifeOptions::from_arguments(self.arguments);
  Life life(options, self.id, self.rank);
  if (const Status joined = life.join(); !joined.ok()) return judge_error(joined, options.victim);
  return options.masks ? go_on_without(life, options.victim) : fail_with(life, options.victim);
}

// ---- who dies where ----

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
// Before that, the harness has no windows that survivors could fail to register.
bool allows_windows(const FailpointPlace& place) {
  return place.starts_with("ll.") || place.starts_with("ep.") || place.starts_with("mask.");
}
// Nobody knows yet that it exists: only the time limit tells.
bool before_anybody_watches(const FailpointPlace& place) { return place.starts_with("comm.before_connect"); }

struct Death {
  FailpointPlace place;
  LifeOptions options;
  int hit = 1;

  std::string name() const { return text(place.name, "@", hit, ", ", options.name()); }
};
void PrintTo(const Death& death, std::ostream* out) { *out << death.name(); }

bool possible(const Death& death) {
  const FailpointPlace& place = death.place;
  if (only_the_hub(place) && death.options.victim != 0) return false;
  if (never_the_hub(place) && death.options.victim == 0) return false;
  if (needs_masks(place) && !death.options.masks) return false;
  if (needs_windows(place) && (!death.options.windows || death.options.masks)) return false;
  if (death.options.windows && !allows_windows(place)) return false;
  return death.hit == 1 || place.starts_with("ll.d") || place.starts_with("ll.c") || place.starts_with("window.");
}

std::vector<Death> all_deaths() {
  std::vector<Death> deaths;
  for (const FailpointPlace& place : all_failpoints()) {
    for (int variant = 0; variant < 48; ++variant) {
      Death death{place, {}, 1 + variant / 24};
      death.options.victim = variant % 3;
      death.options.masks = variant / 3 % 2 != 0;
      death.options.windows = variant / 6 % 2 != 0;
      death.options.layout = variant / 12 % 2 != 0 ? Layout::kRankMajor : Layout::kExpertMajor;
      if (before_anybody_watches(place)) death.options.comm_timeout_ns = kSecond;
      if (possible(death)) deaths.push_back(death);
    }
  }
  return deaths;
}

// Between telling one peer and telling the next: the others know different things then, so every variant counts.
bool between_peers(const FailpointPlace& place) {
  return place.starts_with("ll.dispatch.after_arrival") || place.starts_with("ll.combine.message_counted");
}

// Each failpoint once with masks and once without, where both can be; what else varies goes round.
std::vector<Death> deaths_to_die() {
  const std::vector<Death> all = all_deaths();
  if (soaking()) return all;
  std::vector<Death> chosen;
  size_t turn = 0;
  for (const FailpointPlace& place : all_failpoints()) {
    for (const bool masks : {false, true}) {
      std::vector<Death> candidates;
      std::copy_if(all.begin(), all.end(), std::back_inserter(candidates), [&](const Death& death) {
        return death.place.name == place.name && death.options.masks == masks;
      });
      if (between_peers(place)) chosen.insert(chosen.end(), candidates.begin(), candidates.end());
      else if (!candidates.empty()) chosen.push_back(candidates[turn++ * 7 % candidates.size()]);
    }
  }
  return chosen;
}

class Kill : public ::testing::TestWithParam<Death> {};

TEST_P(Kill, IsNoticedByTheOthers) {
  const Death& death = GetParam();
  const int victim = death.options.victim;
  auto started = ProcessRanks::start(
      {.num_ranks = kNumRanks, .body = "live", .arguments = death.options.to_arguments(), .environment = [&](int rank) {
         std::vector<std::string> variables;
         if (rank == victim) {
           variables.push_back(text("SWITCHYARD_FAILPOINTS=", death.place.name, "=kill@", death.hit, "#", victim));
         }
         return variables;
       }});
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  ProcessRanks& ranks = *started.value();
  ASSERT_TRUE(ranks.wait_for_exit(victim, Deadline::after_ns(30 * kSecond))) << death.name();
  const uint64_t died_ns = now_ns();
  ASSERT_EQ(ranks.exit(victim)->exit_code, 128 + SIGKILL)
      << "rank " << victim << " did not come past " << death.name() << "; it printed:\n" << ranks.output(victim);
  for (int rank = 0; rank < kNumRanks; ++rank) {
    if (rank == victim) continue;
    ranks.wait_for_output(rank, "noticed\n", Deadline::after_ns(30 * kSecond));
  }
  const uint64_t notice_ns = now_ns() - died_ns;
  RecordProperty("notice_ms", std::to_string(notice_ns / kMillisecond));
  for (int rank = 0; rank < kNumRanks; ++rank) {
    if (rank == victim) continue;
    ASSERT_TRUE(ranks.wait_for_exit(rank, Deadline::after_ns(30 * kSecond)))
        << death.name() << ": rank " << rank << " hangs; it printed:\n" << ranks.output(rank);
    EXPECT_EQ(ranks.exit(rank)->exit_code, 0)
        << death.name() << ": rank " << rank << " " << ranks.exit(rank)->reason << ":\n" << ranks.output(rank);
  }
  EXPECT_LT(notice_ns, kNoticeNs) << death.name();
}

std::string name_of(const ::testing::TestParamInfo<Death>& death) {
  std::string name = death.param.place.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return text(death.index, "_", name, death.param.options.masks ? "_masks" : "");
}

INSTANTIATE_TEST_SUITE_P(All, Kill, ::testing::ValuesIn(deaths_to_die()), name_of);

TEST(KillList, CoversEveryFailpoint) {
  std::set<std::string> covered;
  for (const Death& death : deaths_to_die()) covered.insert(death.place.name);
  for (const FailpointPlace& place : all_failpoints()) EXPECT_TRUE(covered.contains(place.name)) << place.name;
  EXPECT_GE(covered.size(), 51u);
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"live", live}});
}
