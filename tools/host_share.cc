#include "tools/host_share.hpp"

#include <algorithm>
#include <span>

#include "base/checked.hpp"
#include "base/clock.hpp"
#include "comm/wire.hpp"
#include "tools/hosts_file.hpp"

namespace switchyard::tools {
namespace {

constexpr uint64_t kMaxGraceNs = 1'000'000'000 * kSecond;

void put_string(WireWriter& out, std::string_view string) {
  out.put(uint32_t(string.size()));
  out.put_text(string);
}

void put_list(WireWriter& out, const std::vector<std::string>& strings) {
  out.put(uint32_t(strings.size()));
  for (const std::string& string : strings) put_string(out, string);
}

std::string as_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string get_string(WireReader& in) { return as_string(in.get_bytes(in.get<uint32_t>())); }

// Grows with the strings that came, not with the number that announces them: the first that is missing ends it.
std::vector<std::string> get_list(WireReader& in) {
  std::vector<std::string> strings;
  bool there = true;
  for (uint32_t num_left = in.get<uint32_t>(); num_left > 0 && there; num_left--) {
    there = in.remaining_bytes() >= sizeof(uint32_t);
    strings.push_back(get_string(in));
  }
  return strings;
}

// Programs and variables end at a zero byte.
bool has_zero(const std::string& string) { return string.find('\0') != std::string::npos; }

Status refuse(const std::string& why) {
  return Status::invalid_argument(text("the description of this host's ranks ", why));
}

Status check_words(const HostShare& share) {
  if (!valid_host_name(share.host)) return refuse("has no valid host name");
  if (!share.directory.starts_with('/') || has_zero(share.directory)) return refuse("names no absolute directory");
  for (const std::string& variable : share.environment) {
    if (variable.find('=') == std::string::npos || variable.starts_with('=') || has_zero(variable)) {
      return refuse("has a variable that is not NAME=value");
    }
  }
  if (share.command.empty() || share.command.front().empty()) return refuse("names no program");
  if (std::any_of(share.command.begin(), share.command.end(), has_zero))
    return refuse("has a zero byte in the command");
  return {};
}

Status check(const HostShare& share) {
  if (share.num_ranks < 1 || share.num_ranks > kMaxRanks) {
    return refuse(text("speaks of ", share.num_ranks, " ranks, allowed 1..", kMaxRanks));
  }
  if (share.num_local_ranks < 1 || share.first_rank < 0 ||
      !range_fits(uint64_t(share.first_rank), uint64_t(share.num_local_ranks), uint64_t(share.num_ranks))) {
    return refuse(
        text("asks for ", share.num_local_ranks, " ranks from ", share.first_rank, ", the job has ", share.num_ranks));
  }
  if (share.grace_ns > kMaxGraceNs) return refuse("gives ranks longer to end than is allowed");
  SWITCHYARD_TRY(share.id.validate());
  return check_words(share);
}

// Out of range stays out of range, whatever the number.
int to_int(uint32_t number) { return int(std::min<uint32_t>(number, kMaxRanks + 1)); }

}  // namespace

Result<size_t> share_body_bytes(std::string_view header) {
  if (header.size() < kShareHeaderBytes || !header.starts_with(kShareMagic)) {
    return refuse(
        "is missing or of another version; `switchyard run --hosts` sends it, and needs the same release on all hosts");
  }
  WireReader in(std::as_bytes(std::span(header.substr(kShareMagic.size(), sizeof(uint32_t)))));
  const auto num_bytes = Untrusted<uint32_t>(in.get<uint32_t>()).within(0, uint32_t(kMaxShareBytes));
  if (!num_bytes) return refuse(text("is too long, allowed are ", kMaxShareBytes, " bytes"));
  return size_t(*num_bytes);
}

Result<std::string> encode(const HostShare& share) {
  SWITCHYARD_TRY(check(share));
  WireWriter body;
  put_string(body, share.host);
  put_string(body, share.directory);
  for (const int number : {share.first_rank, share.num_local_ranks, share.num_ranks}) body.put(uint32_t(number));
  body.put(share.grace_ns);
  put_list(body, share.environment);
  put_string(body, share.id.to_hex());
  put_list(body, share.command);
  if (body.bytes().size() > kMaxShareBytes) {
    return refuse(text("has ", body.bytes().size(), " bytes, allowed are ", kMaxShareBytes,
                       "; shorten the arguments or the variables"));
  }
  WireWriter size;
  size.put(uint32_t(body.bytes().size()));
  return std::string(kShareMagic) + as_string(size.bytes()) + as_string(body.bytes());
}

Result<HostShare> decode(std::string_view bytes) {
  SWITCHYARD_ASSIGN(const size_t body_bytes, share_body_bytes(bytes));
  bytes.remove_prefix(kShareHeaderBytes);
  WireReader in(std::as_bytes(std::span(bytes)));
  HostShare share;
  share.host = get_string(in);
  share.directory = get_string(in);
  for (int* number : {&share.first_rank, &share.num_local_ranks, &share.num_ranks})
    *number = to_int(in.get<uint32_t>());
  share.grace_ns = in.get<uint64_t>();
  share.environment = get_list(in);
  const std::string id = get_string(in);
  share.command = get_list(in);
  if (bytes.size() != body_bytes || !in.complete()) return refuse("is cut short, or goes on beyond its end");
  SWITCHYARD_ASSIGN(share.id, UniqueId::from_hex(id));
  SWITCHYARD_TRY(check(share));
  return share;
}

}  // namespace switchyard::tools
