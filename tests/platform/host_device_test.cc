#include "platform/host/device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "platform/host/wait.hpp"

namespace switchyard {
namespace {

Deadline soon() { return Deadline::after_ns(30 * kSecond); }

// Runs a scenario on a thread of its own, so that each starts with a thread that never set a device.
template <class Body>
void on_new_thread(Body body) {
  std::thread(body).join();
}

// A door that tasks wait behind until the test opens it. Shared with them: a task may still look at it when the test ends.
class Gate {
 public:
  ~Gate() { release(); }
  void release() { open_->store(1, std::memory_order_release); }  // pairs with acquire in the task of hold()
  Status hold(Stream& stream) {
    // Longer than the test's own time limit: a call that wrongly waits for the gate hangs, and the test fails.
    return stream.post([open = open_] {
      wait_until([&] { return open->load(std::memory_order_acquire) != 0; }, Deadline::after_ns(600 * kSecond));
    });
  }

 private:
  std::shared_ptr<std::atomic<uint32_t>> open_ = std::make_shared<std::atomic<uint32_t>>(0);
};

// Gives a stream that nothing holds back ample time to finish.
bool gets_idle(Stream& stream) {
  return wait_until([&] { return stream.idle(); }, Deadline::after_ns(20 * kMillisecond)) == WaitResult::kReady;
}

Stream* new_stream(StreamOrder order) {
  auto stream = Device::current().create_stream(order);
  EXPECT_TRUE(stream.ok()) << stream.status().to_string();
  return stream.value();
}

TEST(Device, IsZeroUntilAThreadSetsAnother) {
  on_new_thread([] {
    EXPECT_EQ(Device::current().ordinal(), 0);
    ASSERT_TRUE(Device::set_current(5).ok());
    EXPECT_EQ(Device::current().ordinal(), 5);
    on_new_thread([] { EXPECT_EQ(Device::current().ordinal(), 0); });
  });
}

TEST(Device, RefusesOrdinalsThatDoNotExist) {
  EXPECT_EQ(Device::set_current(-1).code(), Code::kInvalidArgument);
  EXPECT_EQ(Device::set_current(Device::kNumDevices).code(), Code::kInvalidArgument);
}

TEST(Device, SynchronizeWaitsForItsOwnStreamsAlone) {
  on_new_thread([] {
    Gate gate;
    ASSERT_TRUE(Device::set_current(1).ok());
    Stream* const busy = new_stream(StreamOrder::kBlocking);
    ASSERT_TRUE(gate.hold(*busy).ok());
    ASSERT_TRUE(Device::set_current(2).ok());
    EXPECT_TRUE(Device::current().synchronize(soon()).ok());  // another rank's device: its work does not matter
    ASSERT_TRUE(Device::set_current(1).ok());
    EXPECT_EQ(Device::current().synchronize(Deadline::after_ns(kMillisecond)).code(), Code::kInvalidUsage);
    gate.release();
    EXPECT_TRUE(Device::current().synchronize(soon()).ok());
    EXPECT_TRUE(Device::destroy_stream(busy).ok());
  });
}

TEST(Device, DefaultStreamRunsAfterEarlierWorkOfBlockingStreams) {
  on_new_thread([] {
    ASSERT_TRUE(Device::set_current(3).ok());
    Gate gate;
    int value = 0, seen = -1;
    Stream* const blocking = new_stream(StreamOrder::kBlocking);
    ASSERT_TRUE(gate.hold(*blocking).ok());
    ASSERT_TRUE(blocking->post([&] { value = 1; }).ok());
    auto default_stream = Device::stream_for_post(nullptr);
    ASSERT_TRUE(default_stream.ok());
    ASSERT_TRUE(default_stream.value()->post([&] { seen = value; }).ok());
    EXPECT_FALSE(gets_idle(*default_stream.value()));
    gate.release();
    ASSERT_TRUE(default_stream.value()->synchronize(soon()).ok());
    EXPECT_EQ(seen, 1);
    EXPECT_TRUE(Device::destroy_stream(blocking).ok());
  });
}

TEST(Device, BlockingStreamsRunAfterEarlierWorkOfTheDefaultStream) {
  on_new_thread([] {
    ASSERT_TRUE(Device::set_current(4).ok());
    Gate gate;
    int value = 0, seen = -1;
    Stream* const default_stream = Device::stream_for_post(nullptr).value();
    ASSERT_TRUE(gate.hold(*default_stream).ok());
    ASSERT_TRUE(default_stream->post([&] { value = 1; }).ok());
    Stream* const handle = new_stream(StreamOrder::kBlocking);
    Stream* const blocking = Device::stream_for_post(handle).value();
    ASSERT_EQ(blocking, handle);
    ASSERT_TRUE(blocking->post([&] { seen = value; }).ok());
    EXPECT_FALSE(gets_idle(*blocking));
    gate.release();
    ASSERT_TRUE(blocking->synchronize(soon()).ok());
    EXPECT_EQ(seen, 1);
    EXPECT_TRUE(Device::destroy_stream(blocking).ok());
  });
}

TEST(Device, NonBlockingStreamsIgnoreTheDefaultStream) {
  on_new_thread([] {
    ASSERT_TRUE(Device::set_current(6).ok());
    Gate gate;
    ASSERT_TRUE(gate.hold(*Device::stream_for_post(nullptr).value()).ok());
    Stream* const free_stream = Device::stream_for_post(new_stream(StreamOrder::kNonBlocking)).value();
    ASSERT_TRUE(free_stream->post([] {}).ok());
    EXPECT_TRUE(free_stream->synchronize(soon()).ok());
    EXPECT_TRUE(Device::destroy_stream(free_stream).ok());
  });
}

TEST(Device, FindsAStreamOfAnotherDevice) {
  on_new_thread([] {
    ASSERT_TRUE(Device::set_current(7).ok());
    Stream* const stream = new_stream(StreamOrder::kBlocking);
    ASSERT_TRUE(Device::set_current(8).ok());
    EXPECT_EQ(Device::find_stream(stream).value(), stream);
    EXPECT_TRUE(Device::destroy_stream(stream).ok());
  });
}

TEST(Device, RefusesHandlesThatAreNotLiveStreams) {
  on_new_thread([] {
    Stream* const stream = new_stream(StreamOrder::kBlocking);
    ASSERT_TRUE(Device::destroy_stream(stream).ok());
    EXPECT_EQ(Device::find_stream(stream).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(Device::destroy_stream(stream).code(), Code::kInvalidArgument);
    EXPECT_EQ(Device::destroy_stream(nullptr).code(), Code::kInvalidArgument);
    int local = 0;
    EXPECT_EQ(Device::stream_for_post(&local).status().code(), Code::kInvalidArgument);
  });
}

TEST(Device, DestroyingABusyStreamReturnsAtOnceAndLosesNoWork) {
  on_new_thread([] {
    ASSERT_TRUE(Device::set_current(9).ok());
    Gate gate;
    std::atomic<bool> ran{false};
    Stream* const stream = new_stream(StreamOrder::kBlocking);
    ASSERT_TRUE(gate.hold(*stream).ok());
    ASSERT_TRUE(stream->post([&] { ran.store(true); }).ok());
    EXPECT_TRUE(Device::destroy_stream(stream).ok());  // would never return if it waited: the gate is shut
    gate.release();
    EXPECT_TRUE(Device::current().synchronize(soon()).ok());
    EXPECT_TRUE(ran.load());
  });
}

}  // namespace
}  // namespace switchyard
