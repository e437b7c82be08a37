// Several progress threads: they share what one proxy has to do.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>

#include "net/proxy.hpp"
#include "recorder.hpp"
#include "switchyard/device/net.hpp"
#include "switchyard/platform/host.hpp"

namespace switchyard::testing {
namespace {

constexpr int kNumRings = Proxy::kNumBulkRings + 1;
// Before anybody reads the environment: a thread for each ring.
const int kHasThreads = setenv("SWITCHYARD_PROGRESS_THREADS", std::to_string(kNumRings).c_str(), 1);

// Keeps who posts until all rings are at it.
class MeetingPoint final : public Recorder {
 public:
  NetPost put(const NetPut& put) override {
    std::unique_lock lock(meeting_);
    ++num_there_;
    all_there_.notify_all();
    has_met_ = all_there_.wait_for(lock, std::chrono::seconds(20), [&] { return num_there_ >= kNumRings; });
    lock.unlock();
    return Recorder::put(put);
  }
  bool has_met() {
    const std::lock_guard lock(meeting_);
    return has_met_;
  }

 private:
  std::mutex meeting_;
  std::condition_variable all_there_;
  int num_there_ = 0;
  bool has_met_ = false;
};

TEST(Progress, ThreadsShareTheRingsOfOneProxy) {
  ASSERT_EQ(kHasThreads, 0);
  constexpr NetCalls kCalls = {nullptr, nullptr, nullptr, [](void*) { return false; }, [](void*, int) { return true; }};
  const HostPlatform platform;
  MeetingPoint network;
  auto made = Proxy::create(host_runtime(), network, 2);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Proxy& proxy = **made;
  uint32_t abort = 0;
  const NetPath path{&proxy, &kCalls, proxy.rings(), Proxy::kNumBulkRings, 30 * kSecond, &abort};

  // A signal whose context has nothing on its way takes the reserved ring.
  const NetPut signal{1, 0, 0, 0, 0, 0, 3, 8, 1, nullptr}, data{1, 7, 100, 9, 200, 8, 0, 0, 0, nullptr};
  ASSERT_TRUE(net_put(platform, path, 0, signal));
  for (int context = 0; context < Proxy::kNumBulkRings; ++context) ASSERT_TRUE(net_put(platform, path, context, data));

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (network.posted().size() < kNumRings && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(network.posted().size(), size_t(kNumRings));
  EXPECT_TRUE(network.has_met()) << "one ring waited for another";
}

}  // namespace
}  // namespace switchyard::testing
