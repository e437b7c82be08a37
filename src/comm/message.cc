#include "comm/message.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "comm/wire.hpp"

namespace switchyard {
namespace {

void put_key(WireWriter& out, const ExchangeKey& key) {
  out.put(key.comm_id);
  out.put(key.sequence);
}

ExchangeKey get_key(WireReader& in) {
  ExchangeKey key;
  key.comm_id = in.get<uint64_t>();
  key.sequence = in.get<uint64_t>();
  return key;
}

void put_reason(WireWriter& out, std::string_view reason) { out.put_text(reason.substr(0, kMaxReasonBytes)); }

// The rest of the payload. A peer's words go into logs and error messages: nothing that could move a cursor there.
std::string get_reason(WireReader& in) {
  std::string reason;
  for (const std::byte b : in.get_bytes(std::min(in.remaining_bytes(), kMaxReasonBytes))) {
    const char c = char(b);
    reason += c >= ' ' && c <= '~' ? c : '?';
  }
  return reason;
}

std::optional<Code> to_code(uint32_t value) {
  const auto code = Untrusted<uint32_t>(value).within(0, uint32_t(Code::kInProgress));
  return code ? std::optional(Code(*code)) : std::nullopt;
}

// A list of distinct ranks below num_ranks, or nothing.
std::optional<std::vector<int>> get_ranks(WireReader& in, uint32_t num_listed, int num_ranks) {
  if (num_listed > uint32_t(num_ranks)) return std::nullopt;
  std::vector<int> ranks;
  std::vector<bool> seen(size_t(num_ranks), false);
  for (uint32_t i = 0; i < num_listed; i++) {
    const auto rank = Untrusted<uint32_t>(in.get<uint32_t>()).within(0, uint32_t(num_ranks) - 1);
    if (!rank || seen[*rank]) return std::nullopt;
    seen[*rank] = true;
    ranks.push_back(int(*rank));
  }
  return ranks;
}

Status malformed(const char* what) { return Status::remote(text("sent a malformed ", what)); }

}  // namespace

std::string ExchangeKey::to_string() const {
  if (comm_id == kWorld) return text("exchange ", sequence, " of the first communicator");
  return text("exchange ", sequence, " of communicator ", comm_id);
}

std::vector<std::byte> ExchangeRequest::encode() const {
  WireWriter out;
  put_key(out, key);
  out.put(timeout_ns);
  out.put(uint32_t(members.size()));
  for (const int rank : members) out.put(uint32_t(rank));
  out.put_bytes(blob);
  return out.take();
}

Result<ExchangeRequest> ExchangeRequest::parse(std::span<const std::byte> payload, int num_ranks) {
  WireReader in(payload);
  ExchangeRequest request;
  request.key = get_key(in);
  request.timeout_ns = in.get<uint64_t>();
  auto members = get_ranks(in, in.get<uint32_t>(), num_ranks);
  const auto blob = in.get_bytes(in.remaining_bytes());
  if (!members || members->empty() || !in.complete() || blob.size() > kMaxBlobBytes)
    return malformed("exchange request");
  request.members = std::move(*members);
  request.blob.assign(blob.begin(), blob.end());
  return request;
}

std::vector<std::byte> ExchangeResult::encode() const {
  WireWriter out;
  put_key(out, key);
  out.put(uint32_t(blobs.size()));
  for (const auto& blob : blobs) out.put(uint32_t(blob.size()));
  for (const auto& blob : blobs) out.put_bytes(blob);
  return out.take();
}

Result<ExchangeResult> ExchangeResult::parse(std::span<const std::byte> payload) {
  WireReader in(payload);
  ExchangeResult result;
  result.key = get_key(in);
  const auto num_blobs = Untrusted<uint32_t>(in.get<uint32_t>()).within(1, uint32_t(kMaxBootstrapRanks));
  if (!num_blobs) return malformed("exchange result");
  std::vector<uint32_t> sizes;
  for (uint32_t i = 0; i < *num_blobs; i++) sizes.push_back(in.get<uint32_t>());
  for (const uint32_t size : sizes) {
    const auto blob = in.get_bytes(size);
    result.blobs.emplace_back(blob.begin(), blob.end());
  }
  if (!in.complete()) return malformed("exchange result");
  return result;
}

std::vector<std::byte> ExchangeFailure::encode() const {
  WireWriter out;
  put_key(out, key);
  out.put(uint32_t(status.code()));
  put_reason(out, status.message());
  return out.take();
}

Result<ExchangeFailure> ExchangeFailure::parse(std::span<const std::byte> payload) {
  WireReader in(payload);
  ExchangeFailure failure;
  failure.key = get_key(in);
  const auto code = to_code(in.get<uint32_t>());
  std::string reason = get_reason(in);
  if (!code || *code == Code::kOk || !in.complete()) return malformed("exchange failure");
  failure.status = Status(*code, std::move(reason));
  return failure;
}

std::vector<std::byte> ExchangeMissing::encode() const {
  WireWriter out;
  put_key(out, key);
  out.put(uint32_t(ranks.size()));
  for (const int rank : ranks) out.put(uint32_t(rank));
  return out.take();
}

Result<ExchangeMissing> ExchangeMissing::parse(std::span<const std::byte> payload) {
  WireReader in(payload);
  ExchangeMissing missing;
  missing.key = get_key(in);
  auto ranks = get_ranks(in, in.get<uint32_t>(), kMaxBootstrapRanks);
  if (!ranks || !in.complete()) return malformed("list of missing ranks");
  missing.ranks = std::move(*ranks);
  return missing;
}

std::vector<std::byte> Notice::encode() const {
  WireWriter out;
  out.put(rank);
  out.put(uint32_t(code));
  put_reason(out, reason);
  return out.take();
}

Result<Notice> Notice::parse(std::span<const std::byte> payload) {
  WireReader in(payload);
  Notice notice;
  const auto rank = Untrusted<uint32_t>(in.get<uint32_t>()).within(0, uint32_t(kMaxBootstrapRanks) - 1);
  const auto code = to_code(in.get<uint32_t>());
  notice.reason = get_reason(in);
  if (!rank || !code || !in.complete()) return malformed("notice");
  notice.rank = *rank;
  notice.code = *code;
  return notice;
}

std::vector<std::byte> Departure::encode() const {
  WireWriter out;
  out.put(comm_id);
  out.put(rank);
  return out.take();
}

Result<Departure> Departure::parse(std::span<const std::byte> payload, int num_ranks) {
  WireReader in(payload);
  const auto comm_id = in.get<uint64_t>();
  const auto rank = Untrusted<uint32_t>(in.get<uint32_t>()).within(0, uint32_t(num_ranks) - 1);
  if (!rank || !in.complete()) return malformed("notice of a rank that leaves a network");
  return Departure{comm_id, *rank};
}

std::vector<std::byte> Unreachable::encode() const {
  WireWriter out;
  out.put(comm_id);
  out.put(from);
  out.put(to);
  put_reason(out, reason);
  return out.take();
}

Result<Unreachable> Unreachable::parse(std::span<const std::byte> payload, int num_ranks) {
  WireReader in(payload);
  Unreachable unreachable;
  unreachable.comm_id = in.get<uint64_t>();
  const auto from = Untrusted<uint32_t>(in.get<uint32_t>()).within(0, uint32_t(num_ranks) - 1);
  const auto to = Untrusted<uint32_t>(in.get<uint32_t>()).within(0, uint32_t(num_ranks) - 1);
  unreachable.reason = get_reason(in);
  if (!from || !to || *from == *to || !in.complete()) return malformed("notice of a rank that is not reached");
  unreachable.from = *from;
  unreachable.to = *to;
  return unreachable;
}

std::string list_ranks(std::span<const int> ranks) {
  constexpr size_t kMaxNamed = 16;
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kMaxNamed); i++) names += text(i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kMaxNamed) names += text(" and ", ranks.size() - kMaxNamed, " more");
  return names;
}

}  // namespace switchyard
