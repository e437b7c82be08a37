#include "net/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"

namespace switchyard {
namespace {

struct UpInterface {
  Interface interface;
  bool loopback;
};

Result<std::vector<UpInterface>> interfaces_that_are_up() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Status::system_error("listing network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<UpInterface> up;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || !(entry->ifa_flags & IFF_UP)) continue;
    char text_form[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text_form, sizeof(text_form)) == nullptr) continue;
    up.push_back({{entry->ifa_name, text_form}, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return up;
}

// What can't be found out is no reason to give up a network that works.
bool has_carrier(const Fd& any_socket, const Interface& interface) {
  ifreq request{};
  interface.name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  if (ioctl(any_socket.get(), SIOCGIFFLAGS, &request) != 0) return errno != ENODEV;
  return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

}  // namespace

Result<std::vector<Interface>> choose_interfaces(bool one_machine) {
  SWITCHYARD_ASSIGN(const std::vector<UpInterface> up, interfaces_that_are_up());
  std::string known;
  for (const UpInterface& item : up) known += text(known.empty() ? "" : ", ", item.interface.name);
  std::vector<Interface> chosen;
  for (const std::string& wanted : env().interfaces) {
    const auto found =
        std::find_if(up.begin(), up.end(), [&](const auto& item) { return item.interface.name == wanted; });
    if (found == up.end()) {
      return Status::invalid_usage(
          text("SWITCHYARD_INTERFACE names '", wanted, "', which has no IPv4 address or is down; up are: ", known));
    }
    chosen.push_back(found->interface);
  }
  if (!chosen.empty()) return chosen;
  const auto is_fit = [&](const UpInterface& item) { return item.loopback == one_machine; };
  const auto first = std::find_if(up.begin(), up.end(), is_fit);
  if (first == up.end()) {
    return Status::invalid_usage(text("no network interface that is up has an IPv4 address; up are: ", known));
  }
  if (!one_machine && std::count_if(first, up.end(), is_fit) > 1) {
    log(LogLevel::kWarn, "SWITCHYARD_INTERFACE names no interface, and several are up (", known, "): ", first->interface.name,
        " (address ", first->interface.address, ") is taken; other hosts may take one of another network");
  }
  return std::vector<Interface>{first->interface};
}

LinkWatch::LinkWatch(std::vector<Interface> interfaces) {
  for (Interface& interface : interfaces) links_.push_back({std::move(interface)});
}

const Interface* LinkWatch::lost() {
  const uint64_t now = now_ns(), heartbeat_ns = env().heartbeat_ms * kMillisecond;
  if (now < next_look_ns_) return nullptr;
  next_look_ns_ = now + heartbeat_ns / 4;
  const Fd any_socket(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (Link& link : links_) {
    if (has_carrier(any_socket, link.interface)) link.down_since_ns = 0;
    else if (link.down_since_ns == 0) link.down_since_ns = now;
    else if (now - link.down_since_ns >= 2 * heartbeat_ns) return &link.interface;
  }
  return nullptr;
}

}  // namespace switchyard
