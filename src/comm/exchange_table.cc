#include "comm/exchange_table.hpp"

#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "base/clock.hpp"

namespace switchyard {
namespace {

constexpr uint64_t kNeverNs = std::numeric_limits<uint64_t>::max();

// Early enough to reach the waiting rank before it gives up, late enough to be true then.
uint64_t hint_time_ns(uint64_t at_ns, uint64_t timeout_ns) {
  const uint64_t ahead_ns = std::min(timeout_ns / 5, 200 * kMillisecond);
  return checked_add(at_ns, timeout_ns - ahead_ns).value_or(kNeverNs);
}

size_t position(const std::vector<int>& members, int rank) {
  return size_t(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace

size_t ExchangeTable::num_open(int rank) const {
  return size_t(std::count_if(entries_.begin(), entries_.end(), [&](const auto& item) {
    const size_t member_idx = position(item.second.members, rank);
    return member_idx < item.second.members.size() && item.second.blobs[member_idx].has_value();
  }));
}

Announcement ExchangeTable::fail(ExchangeKey key, Entry& entry, Status status) {
  Announcement out{FrameType::kExchangeFailed, ExchangeFailure{key, status}.encode(), {}};
  for (size_t i = 0; i < entry.members.size(); i++) {
    if (entry.blobs[i]) out.recipients.push_back(entry.members[i]);
  }
  entry.failure = std::move(status);
  std::fill(entry.hint_at_ns.begin(), entry.hint_at_ns.end(), kNeverNs);
  return out;
}

Result<std::optional<Announcement>> ExchangeTable::add(int rank, ExchangeRequest request, uint64_t at_ns) {
  if (position(request.members, rank) == request.members.size()) {
    return Status::remote(text("asked for ", request.key.to_string(), " without being a member"));
  }
  auto [it, is_new] = entries_.try_emplace(request.key);
  Entry& entry = it->second;
  if (is_new) {
    entry.members = request.members;
    entry.blobs.resize(entry.members.size());
    entry.hint_at_ns.resize(entry.members.size(), kNeverNs);
  }
  const auto agree = [&] { return entry.members == request.members; };
  const size_t member_idx = position(entry.members, rank);
  if (member_idx < entry.members.size() && entry.blobs[member_idx]) {
    return Status::remote(text("joined ", request.key.to_string(), " twice"));
  }
  if (!agree() && entry.failure.ok()) {
    Announcement out = fail(request.key, entry,
                            Status::invalid_usage(text("rank ", rank, " and rank ", entry.members[0],
                                                       " disagree about the members of ", request.key.to_string())));
    out.recipients.push_back(rank);
    return std::optional(std::move(out));
  }
  if (!entry.failure.ok()) {
    return std::optional(
        Announcement{FrameType::kExchangeFailed, ExchangeFailure{request.key, entry.failure}.encode(), {rank}});
  }
  entry.num_arrived++;
  entry.num_blob_bytes += request.blob.size();
  entry.blobs[member_idx] = std::move(request.blob);
  entry.hint_at_ns[member_idx] = hint_time_ns(at_ns, request.timeout_ns);
  if (num_open(rank) > kMaxOpenPerRank) {
    return Status::remote(text("has more than ", kMaxOpenPerRank, " exchanges open"));
  }
  if (ExchangeResult::encoded_bytes(entry.members.size(), entry.num_blob_bytes) > kMaxResultBytes) {
    return std::optional(fail(request.key, entry,
                              Status::invalid_argument(text("the blobs of ", request.key.to_string(), " exceed ",
                                                            kMaxResultBytes, " bytes together"))));
  }
  if (entry.num_arrived < entry.members.size()) return std::optional<Announcement>();

  ExchangeResult result{request.key, {}};
  for (auto& blob : entry.blobs) result.blobs.push_back(std::move(*blob));
  Announcement out{FrameType::kResult, result.encode(), std::move(entry.members)};
  entries_.erase(it);
  return std::optional(std::move(out));
}

std::vector<Announcement> ExchangeTable::drop_member(int rank) {
  std::vector<Announcement> hints;
  for (auto item = entries_.begin(); item != entries_.end();) {
    auto& [key, entry] = *item;
    const size_t member_idx = position(entry.members, rank);
    if (member_idx == entry.members.size()) {
      ++item;
      continue;
    }
    if (entry.blobs[member_idx]) add_hint(hints, key, entry, kNeverNs - 1);
    item = entries_.erase(item);
  }
  return hints;
}

// For those whose hint is due until then.
void ExchangeTable::add_hint(std::vector<Announcement>& hints, ExchangeKey key, Entry& entry, uint64_t until_ns) {
  Announcement hint{FrameType::kMissing, {}, {}};
  ExchangeMissing missing{key, {}};
  for (size_t i = 0; i < entry.members.size(); i++) {
    if (!entry.blobs[i]) missing.ranks.push_back(entry.members[i]);
    if (entry.hint_at_ns[i] > until_ns) continue;
    entry.hint_at_ns[i] = kNeverNs;
    hint.recipients.push_back(entry.members[i]);
  }
  if (hint.recipients.empty()) return;
  hint.payload = missing.encode();
  hints.push_back(std::move(hint));
}

std::vector<Announcement> ExchangeTable::due_hints(uint64_t at_ns) {
  std::vector<Announcement> hints;
  for (auto& [key, entry] : entries_) add_hint(hints, key, entry, at_ns);
  return hints;
}

uint64_t ExchangeTable::next_hint_ns() const {
  uint64_t next_ns = kNeverNs;
  for (const auto& [key, entry] : entries_) {
    next_ns = std::min(next_ns, *std::min_element(entry.hint_at_ns.begin(), entry.hint_at_ns.end()));
  }
  return next_ns;
}

}  // namespace switchyard
