// The TCP sockets under libfabric, which are this process's where ranks are threads.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "support/thread_ranks.hpp"

namespace switchyard::testing {

constexpr int kMaxFd = 1024;

// Where this process listens.
inline std::set<uint16_t> listening_ports() {
  std::set<uint16_t> ports;
  for (int fd = 0; fd < kMaxFd; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_in address{};
    size = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.sin_family != AF_INET) continue;
    ports.insert(ntohs(address.sin_port));
  }
  return ports;
}

// The ends of the connections to these ports, both of each.
inline std::vector<int> connections_to(const std::set<uint16_t>& ports) {
  std::vector<int> ends;
  const auto is_there = [&](int fd, auto ask) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    return ask(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.sin_family == AF_INET &&
           ports.contains(ntohs(address.sin_port));
  };
  for (int fd = 0; fd < kMaxFd; ++fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;  // not connected
    if (is_there(fd, getpeername) || is_there(fd, getsockname)) ends.push_back(fd);
  }
  return ends;
}

// A part of a job, of all its ranks: it has endpoints of its own, whose ports are the only new ones.
struct PartWithPorts {
  explicit PartWithPorts(ThreadRanks& ranks) : comms(size_t(ranks.size())), ranks_(ranks) {
    const std::set<uint16_t> before = listening_ports();
    ranks.on_all([&](int rank) { comms[size_t(rank)] = std::move(ranks.comm(rank).split(0, rank)).value(); });
    ports = listening_ports();
    for (const uint16_t port : before) ports.erase(port);
  }
  ~PartWithPorts() {
    ranks_.on_all([&](int rank) { comms[size_t(rank)].reset(); });
  }

  std::vector<std::unique_ptr<Communicator>> comms;
  std::set<uint16_t> ports;

 private:
  ThreadRanks& ranks_;
};

}  // namespace switchyard::testing
