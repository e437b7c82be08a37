#include "base/env.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace switchyard {
namespace {

std::string read(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, before threads of ours exist
  return value ? value : "";
}

// Warnings can't go through log(): that reads the Env being built.
void warn_ignored(const char* name, const std::string& value, const char* allowed) {
  log_line(LogLevel::kWarn, text(name, "='", value, "' is ignored; allowed: ", allowed));
}

void read_flag(const char* name, bool& field) {
  const std::string value = read(name);
  if (value.empty()) return;
  if (const auto flag = parse_flag(value)) field = *flag;
  else warn_ignored(name, value, "1/on/true or 0/off/false");
}

template <class Field>
void read_number(const char* name, Field& field, uint64_t low, uint64_t high) {
  const std::string value = read(name);
  if (value.empty()) return;
  if (const auto number = parse_number(value, low, high)) field = *number;
  else warn_ignored(name, value, text("a number from ", low, " to ", high).c_str());
}

// Names between commas, empty ones too: whoever uses them says that there is no such thing.
void read_list(const char* name, std::vector<std::string>& field) {
  const std::string value = read(name);
  for (size_t begin = 0; !value.empty() && begin <= value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    field.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

Env read_env() {
  Env e;
  const std::string level = read("SWITCHYARD_LOG");
  if (level == "error") e.log_level = LogLevel::kError;
  else if (level == "info") e.log_level = LogLevel::kInfo;
  else if (level == "debug") e.log_level = LogLevel::kDebug;
  else if (!level.empty() && level != "warn") warn_ignored("SWITCHYARD_LOG", level, "error, warn, info, debug");
  read_number("SWITCHYARD_NODE_ID", e.node_id, 0, 1u << 20);
  read_number("SWITCHYARD_TIMEOUT_MS", e.timeout_ms, 1, 86'400'000);
  read_number("SWITCHYARD_HEARTBEAT_MS", e.heartbeat_ms, 250, 60'000);
  read_flag("SWITCHYARD_PIN", e.pin);
  e.net = read("SWITCHYARD_NET");
  e.gin = read("SWITCHYARD_GIN");
  read_number("SWITCHYARD_PROGRESS_THREADS", e.progress_threads, 1, 64);
  read_flag("SWITCHYARD_NET_CHECKSUM", e.net_checksum);
  read_number("SWITCHYARD_NET_DATA_BYTES", e.net_data_bytes, 4, 8);
  e.net_faults = read("SWITCHYARD_NET_FAULTS");
  read_list("SWITCHYARD_INTERFACE", e.interfaces);
  read_number("SWITCHYARD_POLL_US", e.poll_us, 0, 10'000'000);
  read_number("SWITCHYARD_TRACE_RECORDS", e.trace_records, 16, 1u << 24);
  if ((e.trace_records & (e.trace_records - 1)) != 0) {
    warn_ignored("SWITCHYARD_TRACE_RECORDS", text(e.trace_records), "a power of two");
    e.trace_records = Env{}.trace_records;
  }
  read_number("NCCL_EP_TIMEOUT_MS", e.ep_timeout_ms, 1, 86'400'000);
  read_flag("NCCL_EP_DEBUG", e.ep_debug);
  read_flag("NCCL_EP_ENV_VERBOSE", e.ep_env_verbose);
  e.failpoints = read("SWITCHYARD_FAILPOINTS");
  for (const char* name :
       {"SWITCHYARD_LOG", "SWITCHYARD_NODE_ID", "SWITCHYARD_TIMEOUT_MS", "SWITCHYARD_HEARTBEAT_MS", "SWITCHYARD_PIN",
        "SWITCHYARD_NET", "SWITCHYARD_GIN",
        "SWITCHYARD_PROGRESS_THREADS", "SWITCHYARD_NET_CHECKSUM", "SWITCHYARD_NET_DATA_BYTES", "SWITCHYARD_NET_FAULTS",
        "SWITCHYARD_INTERFACE", "SWITCHYARD_POLL_US", "SWITCHYARD_TRACE_RECORDS", "NCCL_EP_TIMEOUT_MS", "NCCL_EP_DEBUG", "NCCL_EP_ENV_VERBOSE",
        "SWITCHYARD_FAILPOINTS"}) {
    if (const std::string value = read(name); !value.empty()) {
      e.in_effect += text(e.in_effect.empty() ? "" : ", ", name, "=", value);
    }
  }
  return e;
}

const Env& env() {
  static const Env instance = read_env();
  return instance;
}

std::optional<bool> parse_flag(const std::string& value) {
  std::string lower;
  for (const char c : value) lower += char(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "1" || lower == "on" || lower == "true") return true;
  if (lower == "0" || lower == "off" || lower == "false") return false;
  return std::nullopt;
}

std::optional<uint64_t> parse_number(const std::string& value, uint64_t low, uint64_t high) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < low || number > high) return std::nullopt;
  return number;
}

}  // namespace switchyard
