// What libfabric does to a process that loads it: nothing before a network asks for it, and nothing to the signal
// handlers that the program had.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <string>

#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

bool is_loaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

void on_signal(int) {}
void on_signal_info(int, siginfo_t*, void*) {}

// A program's own: one of each kind, one that is ignored, and what is left as it is.
void set_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGABRT, &action, nullptr);
  action.sa_sigaction = on_signal_info;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

// In words, a line each. The C library sets a flag of its own.
std::string handlers() {
  constexpr int kOfTheCLibrary = 0x04000000;  // SA_RESTORER
  std::string all;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    all += text("signal ", number, ": ", reinterpret_cast<void*>(action.sa_handler), " ",
                action.sa_flags & ~kOfTheCLibrary, "\n");
  }
  return all;
}

// One test, for it is about the first time in a process.
TEST(OfiLibrary, IsLoadedWhenANetworkNeedsItAndLeavesSignalHandlersAlone) {
  set_handlers();
  const std::string before = handlers();
  { const ThreadRanks near(2, {.net = "mem"}, {0, 1}); }
  EXPECT_FALSE(is_loaded("libfabric")) << "nobody has asked for it";
  for (int i = 0; i < 2; ++i) {
    const ThreadRanks far(2, {.net = "ofi"}, {0, 1});
    EXPECT_TRUE(is_loaded("libfabric"));
    EXPECT_EQ(handlers(), before) << "while the network is there, time " << i + 1;
  }
  EXPECT_EQ(handlers(), before);
}

}  // namespace
}  // namespace switchyard::testing
