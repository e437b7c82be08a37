// The low-latency protocol is explored to the end in small configurations and found right.
#include "model/explore_test.hpp"
#include "model/ll_model.hpp"

namespace switchyard::model {
namespace {

class LowLatencyModel : public ::testing::TestWithParam<const Scenario*> {};

TEST_P(LowLatencyModel, EveryRowIsRightInEveryInterleaving) { expect_right(GetParam()->run(kernels<0>(), kPatient)); }

INSTANTIATE_TEST_SUITE_P(Low, LowLatencyModel, ::testing::ValuesIn(chosen(low_latency_scenarios())), name_of);

// A rank is killed before its first write to memory that others see, then before its second, and so on until it lives
// to the end. The other one is told so at any moment, even too early, and has to come to its end with whole sources.
TEST(LowLatencyModelDeath, OfARankAtAnyOfItsWritesLeavesTheOtherWithWholeSources) {
  uint64_t num_states = 0;
  bool is_killed = true;
  uint32_t num_writes = 0;
  for (; is_killed; ++num_writes) {
    const LlCase c{.script = "DCD", .masks = true, .suspects = true, .last_rank_writes = num_writes};
    const Report report = explore_ll(c, kernels<0>());
    ASSERT_FALSE(report.violation) << "killed before write " << num_writes + 1 << ": " << report.to_string();
    ASSERT_TRUE(report.exhaustive);
    is_killed = report.num_killed > 0;
    num_states += report.num_states;
  }
  std::cout << "killed at each of its " << num_writes - 1 << " writes: " << num_states << " states\n";
}

}  // namespace
}  // namespace switchyard::model
