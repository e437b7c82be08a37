// A rank that stops in the middle of an operation and wakes up again: the others mask it at their time limit, go on, and
// never see what it writes late; then it comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "faults/victim.hpp"
#include "platform/host/wait.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRanks = 3;
constexpr int kMinMaskedRounds = 10;  // of two epochs each
constexpr int kMaxRounds = 20'000;
constexpr uint64_t kTimeoutNs = 400 * kMillisecond;
constexpr uint64_t kRemoteTimeoutNs = kSecond;
constexpr uint64_t kPurpose = 0x73746f70;  // names the exchanges of the survivors

// ---- what a rank does ----

// The test's process sent SIGUSR1. Relaxed, in the handler and in survive(): it carries nothing but itself.
std::atomic<bool> g_go{false};
bool told_to_go() { return g_go.load(std::memory_order_relaxed); }

void say(const std::string& line) {
  puts(line.c_str());
  fflush(stdout);
}

// Three round trips with everybody.
std::string go_on_together(Life& life) {
  if (const Status met = life.comm()->barrier(); !met.ok()) return met.to_string();
  life.restart_rounds();
  for (int round = 0; round < 3; ++round) {
    const Status status = life.round_trip(/*varied=*/round == 1);
    if (!status.ok()) return "together again: " + status.to_string();
    if (!life.wrong().empty()) return life.wrong();
    if (life.victim_masked() || life.async_error()) return text("somebody was masked in round ", round, " after all");
  }
  return "";
}

std::string clean(Life& life) {
  if (const Status cleaned = life.clean_masks(); !cleaned.ok()) return "clean: " + cleaned.to_string();
  const Status cleared = life.group().error_clear();
  return cleared.ok() ? "" : cleared.to_string();
}

// What survivors tell each other after every round, so that they do the same afterwards.
struct Progress {
  int num_masked_rounds;
  int told_to_go;
};

// Goes on until the test says that the victim is awake again.
std::string survive(Life& life, const std::vector<int>& survivors, bool cleans_early) {
  for (int round = 0; round < kMaxRounds; ++round) {
    const Status status = life.round_trip(/*varied=*/round % 3 == 1);
    if (!status.ok()) return text("round ", round, ": ", status.to_string());
    if (!life.wrong().empty()) return text("round ", round, ": ", life.wrong());
    if (life.num_masked_rounds() == 1) say("masked");
    if (life.num_masked_rounds() == kMinMaskedRounds) say("went on");
    const auto progress =
        life.comm()->exchange_among(survivors, kPurpose, Progress{life.num_masked_rounds(), told_to_go()});
    if (!progress.ok()) return progress.status().to_string();
    const auto all = [&](auto happened) { return std::all_of(progress->begin(), progress->end(), happened); };
    if (cleans_early && all([](Progress p) { return p.num_masked_rounds >= kMinMaskedRounds / 2; })) {
      // The victim is taken in again, but does not come: it sleeps through all of that.
      if (const std::string fault = clean(life); !fault.empty()) return fault;
      cleans_early = false;
    }
    if (!all([](Progress p) { return p.told_to_go && p.num_masked_rounds >= kMinMaskedRounds; })) continue;
    if (const std::string fault = clean(life); !fault.empty()) return fault;
    say("cleaned");
    return go_on_together(life);
  }
  return "the test did not tell this rank to clean up";
}

// Stops in one of its first operations. That operation, or the next, must say that the others went on.
std::string stop_and_return(Life& life, const std::string& how) {
  life.judge_as_victim();
  for (int round = 0; !life.async_error(); ++round) {
    if (round == kMaxRounds) return "nobody gave up on this rank";
    const Status status = life.round_trip(/*varied=*/round % 3 == 1);
    if (!status.ok()) return "woken up: " + status.to_string();
    if (!life.wrong().empty()) return life.wrong();
  }
  say("awake");
  if (how != "just comes back") {
    // Until the others do, this only times out.
    Status cleaned = life.clean_masks();
    for (int attempt = 0; !cleaned.ok() && attempt < 50; ++attempt) cleaned = life.clean_masks();
    if (!cleaned.ok()) return "clean: " + cleaned.to_string();
  } else {
    wait_until(told_to_go, Deadline::after_ns(60 * kSecond));
  }
  if (const Status cleared = life.group().error_clear(); !cleared.ok()) return cleared.to_string();
  return go_on_together(life);
}

std::string live(const RankProcess& self) {
  signal(SIGUSR1, [](int) { g_go.store(true, std::memory_order_relaxed); });
  const LifeOptions options = LifeOptions::from_arguments({self.arguments.begin(), self.arguments.end() - 1});
  Life life(options, self.id, self.rank);
  if (const Status joined = life.join(); !joined.ok()) return joined.to_string();
  if (self.rank == options.victim) return stop_and_return(life, self.arguments.back());
  std::vector<int> survivors;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    if (rank != options.victim) survivors.push_back(rank);
  }
  return survive(life, survivors, self.arguments.back() == "sleeps on");
}

// ---- who stops where ----

struct Stop {
  Fate fate;
  // How the victim comes back: it asks for it; it simply goes on; or it asks after it slept through a first re-admission.
  std::string how = {};

  std::string name() const { return text(fate.name(), ", ", how); }
};
void PrintTo(const Stop& stop, std::ostream* out) { *out << stop.name(); }

constexpr const char* kWaysBack[] = {"asks", "just comes back", "sleeps on"};

std::vector<Stop> stops_at(const FailpointPlace& place, Way way) {
  std::vector<Stop> stops;
  for (Fate& fate : all_fates(place, way)) {
    if (!fate.options.masks || fate.options.windows) continue;
    fate.options.timeout_ns = way == Way::kOneNode ? kTimeoutNs : kRemoteTimeoutNs;
    fate.options.comm_timeout_ns = 30 * kSecond;
    for (const char* how : kWaysBack) {
      // Between nodes nothing tells a rank that does not ask when the word of its re-admission has arrived.
      if (way != Way::kOneNode && how == std::string_view("just comes back")) continue;
      stops.push_back({fate, how});
    }
  }
  return stops;
}

// Each place once: victim, layout, hit and the way back go round. All combinations when soaking.
std::vector<Stop> all_stops() {
  std::vector<Stop> stops;
  size_t turn = 0;
  for (const FailpointPlace& place : all_failpoints()) {
    if (!in_an_operation(place)) continue;
    const Way between_nodes = turn % 2 != 0 ? Way::kOfiProxy : Way::kOfi;
    const std::vector<Stop> candidates = stops_at(place, only_between_nodes(place) ? between_nodes : Way::kOneNode);
    if (soaking()) stops.insert(stops.end(), candidates.begin(), candidates.end());
    else stops.push_back(candidates[turn % candidates.size()]);
    turn += 13;
  }
  return stops;
}

class StopAndContinue : public ::testing::TestWithParam<Stop> {};

TEST_P(StopAndContinue, NeverDisturbsTheOthersAndComesBack) {
  const Stop& stop = GetParam();
  const int victim = stop.fate.options.victim;
  auto started = start_with_victim(stop.fate, "stop", {stop.how});
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  ProcessRanks& ranks = *started.value();
  const auto all_say = [&](const std::string& line, bool with_victim) {
    for (int rank = 0; rank < kNumRanks; ++rank) {
      if (rank == victim && !with_victim) continue;
      if (!ranks.wait_for_output(rank, line, Deadline::after_ns(60 * kSecond))) {
        ADD_FAILURE() << stop.name() << ": rank " << rank << " did not say '" << line << "'\n"
                      << ranks.wait(Deadline::after_ns(kSecond));
        return false;
      }
    }
    return true;
  };
  // Who asks is woken at once, the others when everything that an operation uses was used again.
  ASSERT_TRUE(all_say(stop.how == "asks" ? "masked\n" : "went on\n", false));
  ranks.send(victim, SIGCONT);
  ASSERT_TRUE(ranks.wait_for_output(victim, "awake\n", Deadline::after_ns(60 * kSecond)))
      << stop.name() << ":\n" << ranks.output(victim);
  ASSERT_TRUE(all_say("went on\n", false));
  for (int rank = 0; rank < kNumRanks; ++rank) {
    if (rank != victim) ranks.send(rank, SIGUSR1);
  }
  ASSERT_TRUE(all_say("cleaned\n", false));
  ranks.send(victim, SIGUSR1);
  EXPECT_EQ(ranks.wait(Deadline::after_ns(60 * kSecond)), "") << stop.name();
}

INSTANTIATE_TEST_SUITE_P(All, StopAndContinue, ::testing::ValuesIn(all_stops()),
                         [](const auto& stop) { return stop.param.fate.name_of_test(stop.index); });

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"live", live}});
}
