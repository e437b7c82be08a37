// nmap, which connects to ports of this machine and asks what is there, one scan after the other.
//
// THREADS    has one of its own, on which it asks for the ports.
// OWNERSHIP  the scan that runs is waited for.
#pragma once
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace switchyard::testing {

class PortScanner {
 public:
  static bool installed() { return run({"nmap", "--version"}) == 0; }

  // `ports`: of the next scan; none, or 0: wait.
  explicit PortScanner(std::function<std::set<uint16_t>()> ports) : ports_(std::move(ports)), thread_([this] { scan_all(); }) {}
  ~PortScanner() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  // Scans that have begun, and ended.
  uint64_t num_begun() const { return num_begun_.load(std::memory_order_relaxed); }
  uint64_t num_ended() const { return num_ended_.load(std::memory_order_relaxed); }

 private:
  // The exit code; -1: it can't be run.
  static int run(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid = -1;
    const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    if (error != 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
  }
  void scan_all() {
    while (!stop_.load(std::memory_order_relaxed)) {
      num_begun_.fetch_add(1, std::memory_order_relaxed);
      std::string list;
      for (const uint16_t port : ports_()) {
        if (port != 0) list += (list.empty() ? "" : ",") + std::to_string(port);
      }
      if (list.empty()) std::this_thread::yield();
      else run({"nmap", "-sT", "-n", "-Pn", "-p" + list, "127.0.0.1"});
      num_ended_.store(num_begun_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
  }

  const std::function<std::set<uint16_t>()> ports_;
  std::atomic<uint64_t> num_begun_{0}, num_ended_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace switchyard::testing
