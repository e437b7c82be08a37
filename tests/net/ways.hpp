// The ways that puts may take from a kernel to the network: by its own thread or by the proxy, plain or with what can lie
// between.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/env.hpp"
#include "comm/communicator.hpp"

namespace switchyard::testing {

struct NetWay {
  const char* name;
  const char* gin;
  NetDecorations decorations{};

  Communicator::Options options(uint64_t timeout_ns, const char* net = "ofi") const {
    return {.timeout_ns = timeout_ns, .net = net, .gin = gin, .net_decorations = decorations};
  }
};

// In which both ends of a connection that ended know. Three heartbeats where the machine is ours (net_reconnect_quick_test);
// beside other tests, or under a sanitizer, so long that slowness alone is no failure.
inline uint64_t promise_ns() {
  const bool is_quick_test = env().heartbeat_ms < 1000;
  return (is_quick_test ? 3 : 20) * env().heartbeat_ms * kMillisecond;
}

inline void PrintTo(const NetWay& way, std::ostream* out) { *out << way.name; }

inline auto name_of_way(const ::testing::TestParamInfo<NetWay>& info) { return std::string(info.param.name); }

inline std::vector<NetWay> plain_ways() { return {{"direct", "direct"}, {"proxy", "proxy"}}; }

// With checksums, and with faults of which none does damage.
inline std::vector<NetWay> all_ways() {
  const FaultPlan late{.seed = 2, .delay = 0.01, .max_delay_ns = kMillisecond};
  std::vector<NetWay> ways = plain_ways();
  ways.push_back({"direct_checksums", "direct", {.checksum = true}});
  ways.push_back({"proxy_checksums", "proxy", {.checksum = true}});
  ways.push_back({"direct_faults", "direct", {.faults = late}});
  ways.push_back({"proxy_faults_checksums", "proxy", {.faults = late, .checksum = true}});
  return ways;
}

}  // namespace switchyard::testing
