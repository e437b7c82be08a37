// A network that refuses what is posted, as where an interface is down: for a moment, which loses nobody, or for good, which
// is an error that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/failpoint.hpp"
#include "net/net_rank.hpp"
#include "net/ways.hpp"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;

class Refusal : public ::testing::TestWithParam<NetWay> {
 protected:
  void TearDown() override { clear_failpoints(); }

  // Both ranks, which have written to each other before.
  void on_both(const std::function<void(NetRank&)>& body) {
    ThreadRanks ranks(2, GetParam().options(60 * kSecond), {0, 1});
    ranks.on_all([&](int rank) {
      NetRank self(ranks.comm(rank));
      ASSERT_EQ(self.put(self.put_of(0, 0, 64, 0)), NetPost::kPosted);
      ASSERT_TRUE(self.wait_signal(0, 1));
      ASSERT_TRUE(self.comm.barrier().ok());
      body(self);
    });
  }
  static void refuse() { ASSERT_TRUE(set_failpoint("net.write_refused", "error").ok()); }
  // Of both ranks.
  static void wait_for_refusals(uint64_t num) {
    ASSERT_EQ(wait_until([&] { return failpoint_hits("net.write_refused") >= num; }, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
  }
};
// Posts come from no kernel here, so that rings have no part in it.
std::vector<NetWay> ways_without_rings() {
  std::vector<NetWay> ways = all_ways();
  std::erase_if(ways, [](const NetWay& way) { return std::string(way.gin) != "direct"; });
  return ways;
}
INSTANTIATE_TEST_SUITE_P(All, Refusal, ::testing::ValuesIn(ways_without_rings()), name_of_way);

TEST_P(Refusal, ForAMomentLosesNobody) {
  on_both([](NetRank& self) {
    for (uint64_t round = 1; round <= 20; ++round) {
      if (self.comm.rank() == 0) {
        refuse();
        // As soon as the first has been refused some may go, while the others still have to come back.
        std::thread relenting([] {
          wait_for_refusals(3);
          clear_failpoints();
        });
        for (int i = 0; i < 4; ++i) EXPECT_EQ(self.put(self.put_of(4096, 0, 64, 1)), NetPost::kPosted) << self.net.error().to_string();
        relenting.join();
      } else {
        EXPECT_TRUE(self.wait_signal(1, 4 * round)) << self.net.error().to_string();
      }
      ASSERT_TRUE(self.comm.barrier().ok());
    }
    EXPECT_TRUE(self.net.error().ok()) << self.net.error().to_string();
  });
}

TEST_P(Refusal, ForGoodIsAnErrorThatSaysWhy) {
  on_both([](NetRank& self) {
    ASSERT_TRUE(self.comm.exchange(uint32_t{0}).ok());
    if (self.comm.rank() == 0) {
      refuse();
      // What lies between may take some of them.
      const auto is_lost = [&] { return self.net.put(self.put_of(4096, 0, 64, 1)) == NetPost::kFailed && !self.net.usable(1); };
      EXPECT_EQ(wait_until(is_lost, Deadline::after_ns(20 * kSecond)), WaitResult::kReady);
      EXPECT_THAT(self.net.why_lost(1).message(), HasSubstr("lost rank 1: a write: Network is unreachable"));
      clear_failpoints();
    } else {
      const auto is_lost = [&] { return !self.net.usable(0); };
      EXPECT_EQ(wait_until(is_lost, Deadline::after_ns(30 * kSecond)), WaitResult::kReady);
      EXPECT_THAT(self.net.why_lost(0).message(), HasSubstr("it says that it does not reach this rank any more: a write: Network is unreachable"));
    }
  });
}

}  // namespace
}  // namespace switchyard::testing
