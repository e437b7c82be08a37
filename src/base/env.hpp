// Every environment variable the library reads, read once, each documented on its field (and in docs/env.md).
// Flags accept 1/on/true and 0/off/false in any case; anything else is warned about and treated as unset.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"

namespace switchyard {

struct Env {
  // SWITCHYARD_LOG: error, warn, info or debug. Default warn.
  LogLevel log_level = LogLevel::kWarn;
  // SWITCHYARD_NODE_ID: pretend to be on the node of this number; splits one machine into several.
  std::optional<int64_t> node_id;
  // SWITCHYARD_TIMEOUT_MS: default limit of host-side waits (bootstrap, registration). Default 30000.
  uint64_t timeout_ms = 30'000;
  // SWITCHYARD_HEARTBEAT_MS: how often a rank and its coordinator make sure of each other. Default 1000.
  uint64_t heartbeat_ms = 1'000;
  // SWITCHYARD_PIN: pin each stream's worker to a core of the rank's share (hwloc). Default off.
  bool pin = false;
  // SWITCHYARD_NET: name of the network plugin. Default "mem" inside one node.
  std::string net;
  // SWITCHYARD_GIN: how kernels reach the network, "direct" or "proxy". Default direct.
  std::string gin;
  // SWITCHYARD_PROGRESS_THREADS: threads that help the networks of this process along. Default 1.
  uint64_t progress_threads = 1;
  // SWITCHYARD_NET_CHECKSUM: payloads between nodes carry checksums. Default off; equal on all ranks.
  bool net_checksum = false;
  // SWITCHYARD_NET_DATA_BYTES: how much of the completion data that a network carries is used, 4 to 8. Default: all of it. Tests only.
  uint64_t net_data_bytes = 8;
  // SWITCHYARD_NET_FAULTS: what the network shall get wrong, "seed=1,flip=0.01,..." (net/fault_plan.hpp; tests only).
  std::string net_faults;
  // SWITCHYARD_INTERFACE: the network interfaces that ofi uses, a rail each, separated by commas; listeners bind the first.
  // Default lo for one machine.
  std::vector<std::string> interfaces;
  // SWITCHYARD_POLL_US: how long an idle worker polls before it sleeps. Default 200.
  uint64_t poll_us = 200;
  // SWITCHYARD_TRACE_RECORDS: capacity of each rank's trace ring, a power of two. Default 16384.
  uint64_t trace_records = 16'384;
  // NCCL_EP_TIMEOUT_MS: limit of an expert-parallel wait; overrides the group's timeout_ns.
  std::optional<uint64_t> ep_timeout_ms;
  // NCCL_EP_DEBUG, NCCL_EP_ENV_VERBOSE: as in the C API's contract.
  bool ep_debug = false;
  bool ep_env_verbose = false;
  // SWITCHYARD_FAILPOINTS: "name=action,..." where action is kill, stop, error or delay:MS (tests only).
  std::string failpoints;
  // What was set of all that, for people: "NAME=value, NAME=value".
  std::string in_effect;

  // The one that listeners bind, if any is named.
  std::optional<std::string> interface() const {
    return interfaces.empty() ? std::nullopt : std::optional(interfaces.front());
  }
};

const Env& env();

// The environment as it is now; the library itself uses env(). Exposed for fuzzers.
Env read_env();

// Parses one flag as described above; nothing if it is neither on nor off. Exposed for tests and fuzzers.
std::optional<bool> parse_flag(const std::string& value);
// A whole decimal number within [low, high], or nothing.
std::optional<uint64_t> parse_number(const std::string& value, uint64_t low, uint64_t high);

}  // namespace switchyard
