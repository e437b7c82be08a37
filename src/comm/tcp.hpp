// TCP sockets of the bootstrap: where to listen, how to connect, both without ever blocking past a deadline.
//
// THREADS  any; values and descriptors only.
// ERRORS   system errors name the address; kRemoteError means that nobody answers there (yet).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

enum class IpFamily : uint16_t { kV4 = 4, kV6 = 6 };

struct TcpEndpoint {
  IpFamily family = IpFamily::kV4;
  std::array<std::byte, 16> address{};  // network order; IPv4 in the first four bytes, the rest zero
  uint16_t port = 0;

  bool is_loopback() const;
  bool is_wildcard() const;
  std::string to_string() const;  // "127.0.0.1:4242", "[::1]:4242"
};

// The address of a network interface of this host, port 0. IPv4 where it has one.
Result<TcpEndpoint> interface_endpoint(const std::string& interface);

// What a host name or number means. BLOCKING: as long as the name service takes; numbers never.
Result<TcpEndpoint> resolve_endpoint(const std::string& host, uint16_t port);

// A non-blocking listener. EFFECTS: fills in the port if it was 0. Wildcard addresses are refused.
Result<Fd> listen_at(TcpEndpoint& endpoint);

// A connected, non-blocking socket. BLOCKING: until the deadline.
Result<Fd> connect_to(const TcpEndpoint& endpoint, Deadline deadline);

// The next connection of a listener, ready for use, or an invalid Fd with errno as accept(2) left it.
Fd accept_from(const Fd& listener, TcpEndpoint& peer);

// Waits for poll(2) events, or the deadline (false). An error or hang-up counts as an event: the next read tells.
bool wait_for_events(int fd, short events, Deadline deadline);

}  // namespace switchyard
