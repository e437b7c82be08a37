#include "base/log.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace switchyard {
namespace {

// A sink is a plain function, so that what it saw lives here.
struct Seen {
  std::mutex mutex;
  std::vector<std::pair<LogLevel, std::string>> lines;
};
Seen g_seen;

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    g_seen.lines.clear();
    set_log_sink([](LogLevel level, const char* line) {
      const std::lock_guard lock(g_seen.mutex);
      g_seen.lines.emplace_back(level, line);
    });
  }
  ~LogTest() override { set_log_sink(nullptr); }
};

TEST_F(LogTest, TheSinkGetsTheLevelAndTheJoinedParts) {
  log(LogLevel::kError, "rank ", 3, " lost peer ", 5);
  ASSERT_EQ(g_seen.lines.size(), 1u);
  EXPECT_EQ(g_seen.lines[0].first, LogLevel::kError);
  EXPECT_EQ(g_seen.lines[0].second, "rank 3 lost peer 5");
}

TEST_F(LogTest, LevelsBelowTheConfiguredOneAreLeftOut) {
  if (log_enabled(LogLevel::kDebug)) GTEST_SKIP() << "SWITCHYARD_LOG=debug";
  log(LogLevel::kDebug, "noise");
  EXPECT_TRUE(g_seen.lines.empty());
}

TEST_F(LogTest, LinesOfManyThreadsArriveWholeAndOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log(LogLevel::kError, "thread ", t, " line ", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(g_seen.lines.size(), 400u);
  int num_of_thread_2 = 0;
  for (const auto& [level, line] : g_seen.lines) num_of_thread_2 += line.starts_with("thread 2 line ");
  EXPECT_EQ(num_of_thread_2, 100);
}

TEST_F(LogTest, NullRestoresStandardError) {
  set_log_sink(nullptr);
  testing::internal::CaptureStderr();
  log_line(LogLevel::kWarn, "hello");
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(output.starts_with("switchyard[")) << output;
  EXPECT_TRUE(output.ends_with("] warn: hello\n")) << output;
  EXPECT_TRUE(g_seen.lines.empty());
}

}  // namespace
}  // namespace switchyard
