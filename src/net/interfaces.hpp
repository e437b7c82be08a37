// The network interfaces that a rank uses: which ones, and whether their cables are still there.
//
// THREADS    choosing: any; a LinkWatch: one at a time.
// ERRORS     naming the interface that is unfit, and those that are there.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "switchyard/status.hpp"

namespace switchyard {

struct Interface {
  std::string name;
  std::string address;  // IPv4
};

// Those that SWITCHYARD_INTERFACE names, in its order; else one: loopback if all ranks are on this machine, else the
// first that is up and is not loopback.
Result<std::vector<Interface>> choose_interfaces(bool one_machine);

// Finds out that an interface is down or has lost its carrier. Where there is one interface the heartbeats of the
// bootstrap do (docs/networks.md); they travel over the first, and say nothing about the others.
class LinkWatch {
 public:
  explicit LinkWatch(std::vector<Interface> interfaces);

  // The first interface that has been without a carrier for two heartbeats; null: there is none. BLOCKING: never; looks
  // a few times a heartbeat at most, however often it is called.
  const Interface* lost();

 private:
  struct Link {
    Interface interface;
    uint64_t down_since_ns = 0;  // 0: it is up
  };
  std::vector<Link> links_;
  uint64_t next_look_ns_ = 0;
};

}  // namespace switchyard
