// Prints what the environment means to the library, one "field value" a line, for env_test.
#include <cstdio>

#include "base/env.hpp"
#include "base/failpoint.hpp"

int main() {
  using namespace switchyard;
  const Env& e = env();
  std::printf("log_level %d\n", int(e.log_level));
  std::printf("node_id %lld\n", e.node_id ? static_cast<long long>(*e.node_id) : -1);
  std::printf("timeout_ms %llu\n", static_cast<unsigned long long>(e.timeout_ms));
  std::printf("heartbeat_ms %llu\n", static_cast<unsigned long long>(e.heartbeat_ms));
  std::printf("pin %d\n", int(e.pin));
  std::printf("net '%s'\n", e.net.c_str());
  std::printf("net_checksum %d\n", int(e.net_checksum));
  std::printf("net_data_bytes %d\n", int(e.net_data_bytes));
  std::printf("net_faults '%s'\n", e.net_faults.c_str());
  std::printf("interface '%s'", e.interface().value_or("").c_str());
  for (const std::string& name : e.interfaces) std::printf(" '%s'", name.c_str());
  std::printf("\n");
  std::printf("poll_us %llu\n", static_cast<unsigned long long>(e.poll_us));
  std::printf("trace_records %llu\n", static_cast<unsigned long long>(e.trace_records));
  std::printf("ep_timeout_ms %lld\n", e.ep_timeout_ms ? static_cast<long long>(*e.ep_timeout_ms) : -1);
  std::printf("ep_debug %d\n", int(e.ep_debug));
  std::printf("ep_env_verbose %d\n", int(e.ep_env_verbose));
  std::printf("failpoint %d\n", int(SWITCHYARD_FAILPOINT("probe.point")));
  return 0;
}
