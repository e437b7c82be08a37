// Descriptor rings and the delivery of signals are explored to the end and found right. What they need of those around
// them, the proxy's worker, the source and the network, is shown by leaving it out.
#include "model/explore_test.hpp"
#include "model/ring_model.hpp"
#include "model/signal_model.hpp"

namespace switchyard::model {
namespace {

class NetworkModel : public ::testing::TestWithParam<const Scenario*> {};

TEST_P(NetworkModel, OrdersWhatItPromisesToOrder) { expect_right(GetParam()->run(kernels<0>(), kPatient)); }

INSTANTIATE_TEST_SUITE_P(Net, NetworkModel, ::testing::ValuesIn(chosen(network_scenarios())), name_of);

void expect_found(const Report& report, Fault fault) {
  print_size(report);
  ASSERT_TRUE(report.violation) << report.to_string();
  std::cout << fault_name(report.violation->fault) << ": " << report.violation->message << "\n";
  EXPECT_EQ(report.violation->fault, fault) << report.to_string();
}

TEST(NetworkModelFault, AWorkerThatIsDoneBeforeTheNetworkHasThePut) {
  expect_found(explore_reserved({.script = "ps", .fault = WorkerFault::kDoneBeforeTheNetworkHasIt}, kernels<0>()),
               Fault::kDataRace);
}
TEST(NetworkModelFault, AWorkerThatAnswersAFlushWhenItTakesIt) {
  expect_found(explore_ring({.producers = {"pf"}, .fault = WorkerFault::kFlushedWhenTaken}, kernels<0>()),
               Fault::kDataRace);
}
TEST(NetworkModelFault, ASourceThatCountsWhatIsInFlight) {
  expect_found(explore_arrivals({.fault = ArrivalFault::kRoomByCount}, kernels<0>()), Fault::kAssertion);
}
TEST(NetworkModelFault, ANetworkThatCompletesBeforeTheDataAreThere) {
  expect_found(explore_arrivals({.fault = ArrivalFault::kCompletedBeforeTheData}, kernels<0>()), Fault::kDataRace);
}
TEST(NetworkModelFault, ASignalThatGoesAheadOfWhatIsPosted) {
  expect_found(explore_arrivals({.num_writes = 3, .ahead = 2, .fault = ArrivalFault::kAheadOfWhatIsPosted}, kernels<0>()),
               Fault::kDataRace);
}
TEST(NetworkModelFault, ASignalThatGoesAheadWhenTheLastOfItsWritesIsThere) {
  expect_found(
      explore_arrivals({.num_writes = 3, .ahead = 2, .fault = ArrivalFault::kAheadWhenTheLastIsThere}, kernels<0>()),
      Fault::kDataRace);
}
TEST(NetworkModelFault, AReaderThatDoesNotAcquire) {
  expect_found(explore_arrivals({.fault = ArrivalFault::kSignalReadRelaxed}, kernels<0>()), Fault::kDataRace);
}

}  // namespace
}  // namespace switchyard::model
