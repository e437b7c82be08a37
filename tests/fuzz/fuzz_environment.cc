// Every variable the library reads, with any value; one a line, in the order of kNames. Lists of failpoints
// and of network faults are parsed; none strikes.
#include <cstdlib>

#include "base/env.hpp"
#include "base/failpoint.hpp"
#include "fuzz.hpp"
#include "net/fault_plan.hpp"

namespace switchyard::fuzz {
namespace {

constexpr const char* kNames[] = {"SWITCHYARD_LOG",          "SWITCHYARD_NODE_ID",   "SWITCHYARD_TIMEOUT_MS",
                                  "SWITCHYARD_PIN",          "SWITCHYARD_NET",       "SWITCHYARD_INTERFACE",
                                  "SWITCHYARD_POLL_US",      "NCCL_EP_TIMEOUT_MS",   "SWITCHYARD_TRACE_RECORDS",
                                  "NCCL_EP_DEBUG",           "NCCL_EP_ENV_VERBOSE",  "SWITCHYARD_FAILPOINTS",
                                  "SWITCHYARD_NET_CHECKSUM", "SWITCHYARD_NET_FAULTS", "SWITCHYARD_HEARTBEAT_MS",
                                  "SWITCHYARD_GIN",          "SWITCHYARD_PROGRESS_THREADS", "SWITCHYARD_NET_DATA_BYTES"};

void read_with(Input input) {
  for (const char* name : kNames) {
    std::string value = input.line();
    value = value.substr(0, value.find('\0'));  // no variable holds more
    if (value.empty()) unsetenv(name);
    else setenv(name, value.c_str(), 1);
  }
  const Env e = read_env();
  require(e.timeout_ms >= 1 && e.timeout_ms <= 86'400'000, "SWITCHYARD_TIMEOUT_MS is in range");
  require(!e.node_id || (*e.node_id >= 0 && *e.node_id <= 1 << 20), "SWITCHYARD_NODE_ID is in range");
  require(e.heartbeat_ms >= 250 && e.heartbeat_ms <= 60'000, "SWITCHYARD_HEARTBEAT_MS is in range");
  require(e.progress_threads >= 1 && e.progress_threads <= 64, "SWITCHYARD_PROGRESS_THREADS is in range");
  require(e.poll_us <= 10'000'000, "SWITCHYARD_POLL_US is in range");
  require(!e.ep_timeout_ms || *e.ep_timeout_ms >= 1, "NCCL_EP_TIMEOUT_MS is in range");
  require(e.trace_records >= 16 && (e.trace_records & (e.trace_records - 1)) == 0, "rings are powers of two");
  if (auto plan = FaultPlan::parse(e.net_faults); plan.ok()) {
    for (const double odds : {plan->delay, plan->drop, plan->duplicate, plan->reorder, plan->truncate, plan->flip}) {
      require(odds >= 0 && odds <= 1, "probabilities of SWITCHYARD_NET_FAULTS are in range");
    }
    require(plan->max_delay_ns <= 60 * kSecond, "delays of SWITCHYARD_NET_FAULTS are in range");
  }
  (void)set_failpoints(e.failpoints);
  clear_failpoints();
}

}  // namespace
}  // namespace switchyard::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  switchyard::fuzz::read_with(switchyard::fuzz::Input(data, num_bytes));
  return 0;
}
