// The high-throughput protocol is explored to the end in small configurations and found right.
#include "model/explore_test.hpp"

namespace switchyard::model {
namespace {

class HighThroughputModel : public ::testing::TestWithParam<const Scenario*> {};

TEST_P(HighThroughputModel, EveryRowIsRightInEveryInterleaving) {
  expect_right(GetParam()->run(kernels<0>(), kPatient));
}

INSTANTIATE_TEST_SUITE_P(High, HighThroughputModel, ::testing::ValuesIn(chosen(high_throughput_scenarios())), name_of);

}  // namespace
}  // namespace switchyard::model
