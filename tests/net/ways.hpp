// The ways that puts may take from a kernel to the network: by its own thread or by the proxy, plain or with what can lie
// between.
#pragma once
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

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
