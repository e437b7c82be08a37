// What the bootstrap tests share: a coordinator with threads as ranks, and raw sockets that misbehave.
#pragma once
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/bootstrap.hpp"
#include "comm/coordinator.hpp"

namespace switchyard::test {

inline Deadline in_seconds(uint64_t seconds) { return Deadline::after_ns(seconds * kSecond); }

inline std::vector<int> world(int num_ranks) {
  std::vector<int> ranks(static_cast<size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

inline std::vector<std::byte> bytes_of(const std::string& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

inline std::unique_ptr<Coordinator> start_coordinator(const CoordinatorOptions& options = {}) {
  auto coordinator = Coordinator::start(options);
  EXPECT_TRUE(coordinator.ok()) << coordinator.status().to_string();
  return coordinator.ok() ? std::move(*coordinator) : nullptr;
}

// Runs `body` as each rank, in threads that all joined the job of `id`.
inline void run_ranks(const UniqueId& id, int num_ranks, const std::function<void(Bootstrap&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; rank++) {
    threads.emplace_back([&, rank] {
      auto bootstrap = Bootstrap::connect(id, rank, num_ranks, in_seconds(30));
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
      body(**bootstrap);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Polls with a deadline for something that another thread brings about.
inline bool eventually(const std::function<bool()>& condition, uint64_t limit_ns = 10 * kSecond) {
  const Deadline deadline = Deadline::after_ns(limit_ns);
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::yield();
  }
  return true;
}

inline Fd raw_connection(const UniqueId& id) {
  auto fd = connect_to(id.endpoint(), in_seconds(5));
  EXPECT_TRUE(fd.ok()) << fd.status().to_string();
  return fd.ok() ? std::move(*fd) : Fd();
}

inline void send_raw(const Fd& fd, std::span<const std::byte> bytes) {
  EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
}

// Did the other side hang up within the limit (whatever it sent before)?
inline bool hung_up(const Fd& fd, Deadline deadline) {
  std::byte sink[256];
  for (;;) {
    const ssize_t num_read = recv(fd.get(), sink, sizeof sink, MSG_DONTWAIT);
    if (num_read == 0 || (num_read < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (num_read < 0 && !wait_for_events(fd.get(), 1 /* POLLIN */, deadline)) return false;
  }
}

}  // namespace switchyard::test
