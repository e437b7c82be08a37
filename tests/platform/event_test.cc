#include "platform/host/event.hpp"

#include <gtest/gtest.h>

#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

Deadline soon() { return Deadline::after_ns(30 * kSecond); }

struct EventTest : ::testing::Test {
  void SetUp() override {
    first = std::move(Stream::create({.name = "first"})).value();
    second = std::move(Stream::create({.name = "second"})).value();
  }
  void TearDown() override { open_gate(); }
  // Holds a stream up until the test opens the gate.
  Status hold(Stream& stream) {
    return stream.post([this](Stream& self) {
      const WaitResult result = wait_until([this] { return gate.load(std::memory_order_acquire) != 0; }, soon());
      if (result != WaitResult::kReady) self.fail(Status::internal("the gate was never opened"));
    });
  }
  void open_gate() { gate.store(1, std::memory_order_release); }  // pairs with acquire in hold()

  std::atomic<uint32_t> gate{0};
  std::unique_ptr<Stream> first, second;
};

TEST_F(EventTest, NeverRecordedCountsAsComplete) {
  const Event event;
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(event.synchronize(Deadline::after_ns(0)).ok());
  EXPECT_TRUE(first->wait(event).ok());
  EXPECT_EQ(first->posted(), 0u);
}

TEST_F(EventTest, CompletesWhenItsStreamGetsThere) {
  Event event;
  ASSERT_TRUE(hold(*first).ok());
  ASSERT_TRUE(event.record(*first).ok());
  EXPECT_FALSE(event.query());
  EXPECT_EQ(event.synchronize(Deadline::after_ns(kMillisecond)).code(), Code::kInvalidUsage);
  open_gate();
  EXPECT_TRUE(event.synchronize(soon()).ok());
  EXPECT_TRUE(event.query());
}

TEST_F(EventTest, HoldsAnotherStreamBackUntilThen) {
  Event event;
  int value = 0, seen = 0;
  ASSERT_TRUE(hold(*first).ok());
  ASSERT_TRUE(first->post([&] { value = 42; }).ok());
  ASSERT_TRUE(event.record(*first).ok());
  ASSERT_TRUE(second->wait(event).ok());
  ASSERT_TRUE(second->post([&] { seen = value; }).ok());
  // Ample time for a stream that nothing holds back.
  EXPECT_EQ(wait_until([&] { return second->idle(); }, Deadline::after_ns(20 * kMillisecond)), WaitResult::kTimeout);
  open_gate();
  ASSERT_TRUE(second->synchronize(soon()).ok());
  EXPECT_EQ(seen, 42);
}

TEST_F(EventTest, AWaitKeepsToTheRecordItWasAskedFor) {
  Event event;
  ASSERT_TRUE(event.record(*second).ok());
  ASSERT_TRUE(second->synchronize(soon()).ok());
  ASSERT_TRUE(first->wait(event).ok());
  ASSERT_TRUE(hold(*second).ok());
  ASSERT_TRUE(event.record(*second).ok());  // later record: must not hold up the earlier wait
  EXPECT_TRUE(first->synchronize(soon()).ok());
  EXPECT_FALSE(event.query());
}

TEST_F(EventTest, MayBeDestroyedBeforeItsStreamsReachIt) {
  ASSERT_TRUE(hold(*first).ok());
  {
    Event event;
    ASSERT_TRUE(event.record(*first).ok());
    ASSERT_TRUE(second->wait(event).ok());
  }
  open_gate();
  EXPECT_TRUE(second->synchronize(soon()).ok());
}

TEST_F(EventTest, OutlivesItsStream) {
  Event event;
  ASSERT_TRUE(event.record(*first).ok());
  first.reset();
  EXPECT_TRUE(event.query());
}

TEST_F(EventTest, MeasuresTheTimeBetweenTwoRecords) {
  Event start, end;
  ASSERT_TRUE(start.record(*first).ok());
  ASSERT_TRUE(first->post([] { wait_until([] { return false; }, Deadline::after_ns(20 * kMillisecond)); }).ok());
  ASSERT_TRUE(end.record(*first).ok());
  ASSERT_TRUE(end.synchronize(soon()).ok());
  const auto elapsed = Event::elapsed_ms(start, end);
  ASSERT_TRUE(elapsed.ok());
  EXPECT_GE(elapsed.value(), 20.0f);
  EXPECT_LT(elapsed.value(), 5'000.0f);
  EXPECT_LE(*Event::elapsed_ms(end, start), -20.0f);
}

TEST_F(EventTest, RefusesToMeasureWhatIsNotThereYet) {
  Event start, end;
  ASSERT_TRUE(start.record(*first).ok());
  ASSERT_TRUE(first->synchronize(soon()).ok());
  EXPECT_EQ(Event::elapsed_ms(start, end).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(hold(*first).ok());
  ASSERT_TRUE(end.record(*first).ok());
  EXPECT_EQ(Event::elapsed_ms(start, end).status().code(), Code::kInProgress);
}

}  // namespace
}  // namespace switchyard
