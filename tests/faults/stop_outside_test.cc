// A rank's process that stops outside of an operation of a group: while it joins, registers memory, makes a group, posts, cleans
// masks, or in a collective. The others' calls end by their time limits with an error that names it, or, with masks, go on
// without it. Woken up when they are gone, it comes to its end by itself. (Stops in an operation, after which it comes back:
// stop_test.cc.)
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <set>

#include "faults/victim.hpp"
#include "platform/host/wait.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRanks = 3;
// Long enough for three processes to join on a busy machine, which every case has to do by then.
constexpr uint64_t kTimeoutNs = 800 * kMillisecond;
// A survivor reaches the call that waits for the victim a little after the victim has stopped, and this process hears
// of it later still. Less than a second time limit, so that a call that waits twice is found out.
constexpr uint64_t kAllowanceNs = 700 * kMillisecond;

// Stops that others need not hear of from the victim's own silence: between nodes, and from pair to pair, a rank may wait for one
// that waits for the victim, and names that one (docs/collectives.md).
bool may_be_named_by_another(const FailpointPlace& place) {
  return only_between_nodes(place) || place.starts_with("coll.pair.");
}

// Each place once, without masks where that can be; what else varies goes round. All when soaking.
std::vector<Fate> all_stops() {
  std::vector<Fate> stops;
  size_t turn = 0;
  for (const FailpointPlace& place : all_failpoints()) {
    if (in_an_operation(place) || may_be_named_by_another(place)) continue;
    std::vector<Fate> chosen = soaking() ? all_fates(place) : one_fate(place, /*masks=*/false, turn);
    if (chosen.empty()) chosen = one_fate(place, /*masks=*/true, turn);
    ++turn;
    for (Fate& stop : chosen) {
      stop.options.timeout_ns = kTimeoutNs;
      stop.options.comm_timeout_ns = kTimeoutNs;
      stops.push_back(stop);
    }
  }
  return stops;
}

// True if it stopped, false if it ended or did neither.
bool wait_for_stop(pid_t pid) {
  siginfo_t seen{};
  // The state is left as it is (WNOWAIT): ProcessRanks wants to see the end, too.
  wait_until(
      [&] { return waitid(P_PID, id_t(pid), &seen, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) != 0 || seen.si_pid != 0; },
      Deadline::after_ns(30 * kSecond));
  return seen.si_pid == pid && seen.si_code == CLD_STOPPED;
}

class StopOutside : public ::testing::TestWithParam<Fate> {};

TEST_P(StopOutside, EndsTheOthersCallsInTime) {
  const Fate& stop = GetParam();
  const int victim = stop.options.victim;
  auto started = start_with_victim(stop, "stop");
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  ProcessRanks& ranks = *started.value();
  ASSERT_TRUE(wait_for_stop(ranks.pid(victim)))
      << "rank " << victim << " did not come past " << stop.name() << "; ranks printed:\n"
      << ranks.wait(Deadline::after_ns(10 * kSecond));
  const uint64_t stopped_ns = now_ns();
  for (int rank = 0; rank < kNumRanks; ++rank) {
    if (rank != victim) ranks.wait_for_output(rank, "noticed\n", Deadline::after_ns(10 * kSecond));
  }
  const uint64_t notice_ns = now_ns() - stopped_ns;
  RecordProperty("notice_ms", std::to_string(notice_ns / kMillisecond));
  for (int rank = 0; rank < kNumRanks; ++rank) {
    if (rank == victim) continue;
    ASSERT_TRUE(ranks.wait_for_exit(rank, Deadline::after_ns(10 * kSecond)))
        << stop.name() << ": rank " << rank << " hangs; it printed:\n"
        << ranks.output(rank);
    EXPECT_EQ(ranks.exit(rank)->exit_code, 0)  // else it printed an error that does not name the victim
        << stop.name() << ": rank " << rank << " " << ranks.exit(rank)->reason << ":\n"
        << ranks.output(rank);
  }
  EXPECT_LT(notice_ns, kTimeoutNs + kAllowanceNs) << stop.name();

  ranks.send(victim, SIGCONT);
  ASSERT_TRUE(ranks.wait_for_exit(victim, Deadline::after_ns(10 * kSecond)))
      << stop.name() << ": the victim hangs after it was woken; it printed:\n"
      << ranks.output(victim);
  EXPECT_EQ(ranks.exit(victim)->exit_code, 0) << stop.name() << ": the victim " << ranks.exit(victim)->reason << ":\n"
                                              << ranks.output(victim);
  if (stop.options.masks) return;  // it may have gone on without the others
  EXPECT_NE(ranks.output(victim).find("noticed\n"), std::string::npos)
      << stop.name() << ": the victim did not notice that the others left; it printed:\n"
      << ranks.output(victim);
}

INSTANTIATE_TEST_SUITE_P(All, StopOutside, ::testing::ValuesIn(all_stops()),
                         [](const auto& stop) { return stop.param.name_of_test(stop.index); });

TEST(StopList, CoversEveryOtherFailpointTogetherWithStopsInOperations) {
  std::set<std::string> covered;
  for (const Fate& stop : all_stops()) covered.insert(stop.place.name);
  for (const FailpointPlace& place : all_failpoints()) {
    if (in_an_operation(place)) covered.insert(place.name);
    EXPECT_TRUE(covered.contains(place.name) || may_be_named_by_another(place)) << place.name;
  }
  EXPECT_GE(covered.size(), 79u);
}

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  using namespace switchyard::testing;
  return process_ranks_main(argc, argv, {{"live", live_with_a_victim}});
}
