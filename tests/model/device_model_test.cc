// Barriers, Gin and the meetings of collectives are explored to the end with two and three ranks and found right.
#include "model/explore_test.hpp"

namespace switchyard::model {
namespace {

class DeviceModel : public ::testing::TestWithParam<const Scenario*> {};

TEST_P(DeviceModel, OrdersWhatItPromisesToOrder) { expect_right(GetParam()->run(kernels<0>(), kPatient)); }

INSTANTIATE_TEST_SUITE_P(Node, DeviceModel, ::testing::ValuesIn(chosen(device_scenarios())), name_of);
INSTANTIATE_TEST_SUITE_P(Collectives, DeviceModel, ::testing::ValuesIn(chosen(collective_scenarios())), name_of);

}  // namespace
}  // namespace switchyard::model
