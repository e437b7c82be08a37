// What is inside the frames of an authenticated connection. encode() and parse() are inverse; parse() takes any bytes.
//
// THREADS  pure functions and values.
// ERRORS   kRemoteError with what was wrong, for the receiver to put the peer's name before.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/frame.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

using Blobs = std::vector<std::vector<std::byte>>;

constexpr size_t kMaxReasonBytes = 512;  // of what a peer says went wrong

// The sequence counts the exchanges of one communicator.
struct ExchangeKey {
  static constexpr uint64_t kWorld = ~uint64_t{0};  // the communicator of all ranks; those of splits are hashes
  uint64_t comm_id = 0;
  uint64_t sequence = 0;
  auto operator<=>(const ExchangeKey&) const = default;
  std::string to_string() const;
};

struct ExchangeRequest {  // kExchange
  ExchangeKey key;
  uint64_t timeout_ns = 0;   // how long the sender will wait
  std::vector<int> members;  // world ranks, distinct, in the order of the result
  std::vector<std::byte> blob;

  std::vector<std::byte> encode() const;
  static Result<ExchangeRequest> parse(std::span<const std::byte> payload, int num_ranks);
};

struct ExchangeResult {  // kResult
  ExchangeKey key;
  Blobs blobs;  // by position in the list of members

  // What encode() would give, without doing it.
  static uint64_t encoded_bytes(uint64_t num_members, uint64_t num_blob_bytes) {
    return 20 + 4 * num_members + num_blob_bytes;
  }
  std::vector<std::byte> encode() const;
  static Result<ExchangeResult> parse(std::span<const std::byte> payload);
};

struct ExchangeFailure {  // kExchangeFailed
  ExchangeKey key;
  Status status;

  std::vector<std::byte> encode() const;
  static Result<ExchangeFailure> parse(std::span<const std::byte> payload);
};

struct ExchangeMissing {  // kMissing
  ExchangeKey key;
  std::vector<int> ranks;

  std::vector<std::byte> encode() const;
  static Result<ExchangeMissing> parse(std::span<const std::byte> payload);
};

// kRankGone, kAbort, kRefused: whom it is about, how it must be taken, and words for people.
struct Notice {
  uint32_t rank = 0;
  Code code = Code::kRemoteError;  // of kRankGone: kOk if the rank left in good order
  std::string reason;

  std::vector<std::byte> encode() const;
  static Result<Notice> parse(std::span<const std::byte> payload);
};

// kLeftNetwork
struct Departure {
  uint64_t comm_id = 0;
  uint32_t rank = 0;

  std::vector<std::byte> encode() const;
  static Result<Departure> parse(std::span<const std::byte> payload, int num_ranks);
};

// kUnreachable: the network of this name does not join these two any more.
struct Unreachable {
  uint64_t comm_id = 0;
  uint32_t from = 0;  // who found out
  uint32_t to = 0;
  std::string reason;

  std::vector<std::byte> encode() const;
  static Result<Unreachable> parse(std::span<const std::byte> payload, int num_ranks);
};

// "3, 5 and 12 more": names the first few.
std::string list_ranks(std::span<const int> ranks);

}  // namespace switchyard
