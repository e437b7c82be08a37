// Whole suites (suites.hpp) while the cables between the ranks' machines go down and up, lose packets or are slow:
// every case gives what its model says or, where that much is asked of the cables that connections may end, an error in
// time. SWITCHYARD_FAULTS_SOAK=1 runs more of each list, over all placements and both ways to the network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "faults/life.hpp"
#include "hosts/suites.hpp"

namespace switchyard::testing {
namespace {

struct Weather {
  const char* name;
  size_t num_plain, num_soaking;  // cases of a share, so that it ends in time
  bool flaps = false;
  int per_mille_lost = 0;
  int mbit = 0;
  bool may_fail = false;  // what TCP and heartbeats bear with more than luck is no reason to fail
};
const Weather kWeathers[] = {
    {.name = "flaps", .num_plain = 5, .num_soaking = 20, .flaps = true, .may_fail = true},
    {.name = "loss_of_1_per_mille", .num_plain = 8, .num_soaking = 100, .per_mille_lost = 1},
    {.name = "loss_of_10_per_mille", .num_plain = 4, .num_soaking = 30, .per_mille_lost = 10},
    {.name = "loss_of_50_per_mille", .num_plain = 1, .num_soaking = 8, .per_mille_lost = 50, .may_fail = true},
    {.name = "rate_of_100_mbit", .num_plain = 8, .num_soaking = 100, .mbit = 100},
    {.name = "rate_of_10_mbit", .num_plain = 4, .num_soaking = 25, .mbit = 10}};
constexpr size_t kNumRanks = 4;  // on two hosts or on four

constexpr int kMinFlaps = 200;  // of a suite in soak
// Of a wait for others, in kernels and in collective calls.
constexpr int kLimitMs = 20'000;
// Who waits for a rank that has ended does so for that long; then some stay three heartbeats, to tell others.
constexpr uint64_t kEndingNs = kLimitMs * kMillisecond + 10 * kSecond;

// Unequal: TCP sends again what was lost after 200 ms, then 400, and so on, and flaps that keep time with that end most
// connections. In soak so short that some end: one case of a hundred.
uint64_t up_ns(int flap_idx) {
  return uint64_t(soaking() ? 20 + 37 * flap_idx % 31 : 40 + 37 * flap_idx % 101) * kMillisecond;
}

// A prime, so that every value of what the lists go through comes up.
size_t step_for(size_t num_cases, size_t num_wanted) {
  const auto is_prime = [](size_t number) {
    for (size_t factor = 2; factor * factor <= number; ++factor) {
      if (number % factor == 0) return false;
    }
    return true;
  };
  size_t step = std::max<size_t>(1, num_cases / num_wanted);
  while (!is_prime(step)) ++step;
  return step;
}

struct Plan {
  Weather weather;
  Suite suite;
  size_t idx;
};
void PrintTo(const Plan& plan, std::ostream* out) { *out << plan.suite.body << " under " << plan.weather.name; }

std::vector<Plan> plans() {
  std::vector<Plan> plans;
  for (const Weather& weather : kWeathers) {
    for (const Suite& suite : all_suites()) plans.push_back({weather, suite, plans.size()});
  }
  return plans;
}

class HostsWeather : public SuitesTest, public ::testing::WithParamInterface<Plan> {
 protected:
  void run_share(const Placement& placement, bool proxy, size_t turn);
  void run_job(const Placement& placement, bool proxy, const Share& share);
  void endure();
  size_t num_ended() const {
    size_t num_ended = 0;
    for (int rank = 0; rank < ranks_->size(); ++rank) num_ended += !ranks_->running(rank);
    return num_ended;
  }

  const Plan& plan_ = GetParam();
  size_t num_passed_ = 0, num_failed_ = 0;
  int num_all_flaps_ = 0;
  std::optional<size_t> failed_at_;  // of the last job: the first case that not all ranks passed
};

// Until all ranks have ended, or some have and the others don't follow.
void HostsWeather::endure() {
  Deadline deadline = Deadline::after_ns((soaking() ? 300 : 100) * kSecond);
  bool ending = false;
  while (num_ended() < kNumRanks && !deadline.expired()) {
    if (plan_.weather.flaps) flap(1, up_ns(num_flaps_));
    else (void)ranks_->wait(Deadline::after_ns(100 * kMillisecond));
    if (HasFatalFailure()) return;
    if (!ending && num_ended() > 0) {
      ending = true;
      deadline = Deadline::after_ns(kEndingNs);
    }
  }
  num_all_flaps_ += num_flaps_;
}

void HostsWeather::run_job(const Placement& placement, bool proxy, const Share& share) {
  failed_at_.reset();
  HostRanks wanted{.proxy = proxy, .per_mille_lost = plan_.weather.per_mille_lost};
  if (plan_.weather.mbit != 0) wanted.mbit = {plan_.weather.mbit};
  wanted.environment = {text("NCCL_EP_TIMEOUT_MS=", kLimitMs), text("SWITCHYARD_TIMEOUT_MS=", kLimitMs)};
  start_suite(plan_.suite, placement, share, std::move(wanted));
  if (HasFatalFailure()) return;
  if (plan_.weather.flaps) wait_until_running();
  if (HasFatalFailure()) return;
  endure();
  // Wrong bytes and crashes are in here, and who still runs.
  ASSERT_EQ(ranks_->wait(Deadline::after_ns(0)), "") << outputs();
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const Ending ending = ending_of(rank);
    ASSERT_NE(ending.through, ending.failed_at.has_value()) << outputs();
    if (ending.through) continue;
    failed_at_ = std::min(failed_at_.value_or(*ending.failed_at), *ending.failed_at);
    printf("%s, rank %d: %s\n", placement.name, rank, ending.error.c_str());
  }
}

// No connection is made a second time, so after an error a new job goes on.
void HostsWeather::run_share(const Placement& placement, bool proxy, size_t turn) {
  const size_t num_cases = plan_.suite.num_cases(placement.host_of_rank);
  const size_t step = step_for(num_cases, soaking() ? plan_.weather.num_soaking : plan_.weather.num_plain);
  Share share{turn % step, step};
  while (share.first < num_cases) {
    run_job(placement, proxy, share);
    if (HasFatalFailure()) return;
    const size_t end = failed_at_.value_or(num_cases);
    num_passed_ += (end - share.first + share.step - 1) / share.step;
    num_failed_ += failed_at_.has_value();
    share.first = end + share.step;
  }
}

TEST_P(HostsWeather, EveryCaseGivesWhatItsModelSaysOrAnErrorInTime) {
  const Weather& weather = plan_.weather;
  size_t turn = plan_.idx;
  do {
    for (const Placement& placement : all_placements()) {
      if (placement.host_of_rank.size() != kNumRanks) continue;
      for (const bool proxy : {false, true}) {
        // Of the four a plain run takes one, which differs between neighbours, and so do the cases.
        if (soaking() || turn % 4 == 0) run_share(placement, proxy, turn);
        if (HasFatalFailure()) return;
        ++turn;
      }
    }
  } while (soaking() && weather.flaps && num_all_flaps_ < kMinFlaps);
  const size_t num_planned = num_passed_ + num_failed_;
  printf("%zu of %zu cases passed, %zu ended with an error, %d flaps\n", num_passed_, num_planned, num_failed_,
         num_all_flaps_);
  RecordProperty("passed", int(num_passed_));
  RecordProperty("failed", int(num_failed_));
  // Of few cases one may be too much of them.
  EXPECT_LE(num_failed_, weather.may_fail ? std::max<size_t>(1, num_planned / 5) : 0);
}

INSTANTIATE_TEST_SUITE_P(All, HostsWeather, ::testing::ValuesIn(plans()), [](const auto& instance) {
  return text(instance.param.weather.name, "_", instance.param.suite.body);
});

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) { return switchyard::testing::suites_main(argc, argv); }
