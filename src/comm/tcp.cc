#include "comm/tcp.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "base/env.hpp"
#include "base/log.hpp"

namespace switchyard {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress to_socket_address(const TcpEndpoint& endpoint) {
  SocketAddress out;
  if (endpoint.family == IpFamily::kV4) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.data(), sizeof v4.sin_addr);
    std::memcpy(&out.storage, &v4, out.size = sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    std::memcpy(&v6.sin6_addr, endpoint.address.data(), sizeof v6.sin6_addr);
    std::memcpy(&out.storage, &v6, out.size = sizeof v6);
  }
  return out;
}

// False for families other than IP, and for link-local addresses: those mean nothing on another host. An IPv4 address
// in the clothes of IPv6 comes out as what it is.
bool from_socket_address(const sockaddr* address, TcpEndpoint& out) {
  out = {};
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    std::memcpy(out.address.data(), &v4.sin_addr, sizeof v4.sin_addr);
    out.port = ntohs(v4.sin_port);
    return true;
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, address, sizeof v6);
  if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return false;
  out.port = ntohs(v6.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(out.address.data(), &v6.sin6_addr.s6_addr[12], 4);
    return true;
  }
  out.family = IpFamily::kV6;
  std::memcpy(out.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  return true;
}

Result<Fd> open_socket(const TcpEndpoint& endpoint) {
  const int domain = endpoint.family == IpFamily::kV4 ? AF_INET : AF_INET6;
  Fd fd(socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::system_error(text("no socket for ", endpoint.to_string()));
  return fd;
}

// Small frames leave at once, and a machine or link that is gone ends the connection within three heartbeats of a second: both ends
// send something every heartbeat, and what the other kernel has not acknowledged one and a half after TCP sent it for the
// second time, which it does within 0.4 s, ends it. By then TCP has sent it four times, so a packet that is lost now and
// then is no death. It is the kernel that acknowledges: a process that is stopped is there. The keep-alives are the
// kernel's as well, for an end whose own process is stopped.
void tune(const Fd& fd) {
  const auto set = [&](int level, int option, int value) {
    if (setsockopt(fd.get(), level, option, &value, sizeof value) == 0) return;
    log(LogLevel::kWarn, "a connection of the bootstrap can't be told option ", option, " of level ", level, ": ",
        std::strerror(errno), "; a machine that is gone may be noticed late");
  };
  const int heartbeat_s = int((env().heartbeat_ms + 999) / 1000);  // keep-alives know only seconds
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, heartbeat_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, heartbeat_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, int(3 * env().heartbeat_ms / 2));
}

// A connect to a free port of the ephemeral range can meet itself (simultaneous open); that is no listener.
bool connected_to_itself(const Fd& fd) {
  SocketAddress local, peer;
  if (getsockname(fd.get(), local.get(), &local.size) != 0) return false;
  if (getpeername(fd.get(), peer.get(), &peer.size) != 0) return false;
  return local.size == peer.size && std::memcmp(&local.storage, &peer.storage, local.size) == 0;
}

Status connect_failed(const TcpEndpoint& endpoint, int error) {
  return Status::remote(text("cannot connect to ", endpoint.to_string(), ": ", std::strerror(error)));
}

}  // namespace

bool TcpEndpoint::is_loopback() const {
  if (family == IpFamily::kV4) return address[0] == std::byte(127);
  in6_addr v6;
  std::memcpy(&v6, address.data(), sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

bool TcpEndpoint::is_wildcard() const {
  in6_addr v6;
  std::memcpy(&v6, address.data(), sizeof v6);
  // ::ffff:0.0.0.0 would listen on every interface of IPv4.
  const bool mapped = family == IpFamily::kV6 && IN6_IS_ADDR_V4MAPPED(&v6);
  return std::all_of(address.begin() + (mapped ? 12 : 0), address.end(), [](std::byte b) { return b == std::byte(0); });
}

std::string TcpEndpoint::to_string() const {
  char name[INET6_ADDRSTRLEN] = "?";
  inet_ntop(family == IpFamily::kV4 ? AF_INET : AF_INET6, address.data(), name, sizeof name);
  return family == IpFamily::kV4 ? text(name, ":", port) : text("[", name, "]:", port);
}

Result<TcpEndpoint> interface_endpoint(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Status::system_error("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  TcpEndpoint best;
  bool found = false;
  std::set<std::string> usable;  // one may have several addresses
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    TcpEndpoint endpoint;
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (!from_socket_address(entry->ifa_addr, endpoint)) continue;
    usable.insert(entry->ifa_name);
    if (interface != entry->ifa_name) continue;
    if (!found || (best.family == IpFamily::kV6 && endpoint.family == IpFamily::kV4)) best = endpoint;
    found = true;
  }
  if (found) return best;
  std::string names;
  for (const std::string& name : usable) names += text(names.empty() ? "" : ", ", name);
  return Status::invalid_argument(text("no network interface '", interface,
                                       "' that is up and has an address; this host has: ", names,
                                       "; set SWITCHYARD_INTERFACE to one of them"));
}

Result<TcpEndpoint> resolve_endpoint(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return Status::invalid_argument(text("host '", host, "' has no address: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    TcpEndpoint endpoint;
    if (!from_socket_address(entry->ai_addr, endpoint)) continue;
    endpoint.port = port;
    return endpoint;
  }
  return Status::invalid_argument(text("host '", host, "' has no IP address that other hosts can use"));
}

Result<Fd> listen_at(TcpEndpoint& endpoint) {
  if (endpoint.is_wildcard()) {
    return Status::invalid_argument(
        text("refusing to listen on every interface (", endpoint.to_string(), "); name one"));
  }
  SWITCHYARD_ASSIGN(Fd fd, open_socket(endpoint));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  SocketAddress address = to_socket_address(endpoint);
  if (bind(fd.get(), address.get(), address.size) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return Status::system_error(text("cannot listen at ", endpoint.to_string()));
  }
  SocketAddress bound;
  if (getsockname(fd.get(), bound.get(), &bound.size) != 0 || !from_socket_address(bound.get(), endpoint)) {
    return Status::system_error("cannot read the address of a listener");
  }
  return fd;
}

Result<Fd> connect_to(const TcpEndpoint& endpoint, Deadline deadline) {
  SWITCHYARD_ASSIGN(Fd fd, open_socket(endpoint));
  SocketAddress address = to_socket_address(endpoint);
  if (connect(fd.get(), address.get(), address.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return connect_failed(endpoint, errno);
    if (!wait_for_events(fd.get(), POLLOUT, deadline)) return connect_failed(endpoint, ETIMEDOUT);
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return connect_failed(endpoint, error);
  }
  if (connected_to_itself(fd)) return connect_failed(endpoint, ECONNREFUSED);
  tune(fd);
  return fd;
}

Fd accept_from(const Fd& listener, TcpEndpoint& peer) {
  SocketAddress address;
  Fd fd(accept4(listener.get(), address.get(), &address.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) return fd;
  from_socket_address(address.get(), peer);
  tune(fd);
  return fd;
}

bool wait_for_events(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int num_ready = poll(&entry, 1, deadline.remaining_ms());
    if (num_ready > 0) return true;
    if (num_ready < 0 && errno != EINTR) poll(nullptr, 0, 1);  // out of memory for a moment; the deadline still holds
    if (deadline.expired()) return false;
  }
}

}  // namespace switchyard
