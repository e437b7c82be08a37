// Frames: how bootstrap messages travel. A 32-byte header, then `length` bytes of payload.
//
// Until a connection is authenticated, frames have tag 0 and at most kMaxUnauthenticatedBytes of payload. From then on
// every frame carries a keyed tag over its header (with its place in the stream) and its payload, so that nothing can
// be changed, injected, repeated or left out between the two ends without being noticed. Contents are not encrypted.
//
// THREADS  pure functions and values.
// ERRORS   a bad header is kRemoteError; the connection that sent it can't be used any further.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/keyed_hash.hpp"
#include "switchyard/status.hpp"

namespace switchyard {

constexpr size_t kFrameHeaderBytes = 32;
constexpr uint32_t kFrameMagic = 0x46445953;  // "SYDF"
constexpr uint16_t kFrameVersion = 2;

constexpr int kMaxBootstrapRanks = 4096;
constexpr uint32_t kMaxUnauthenticatedBytes = 256;
constexpr uint32_t kMaxBlobBytes = 64u << 10;
constexpr uint32_t kMaxResultBytes = 16u << 20;
// What a rank may send to the coordinator at most: a blob with the list of its members.
constexpr uint32_t kMaxRequestBytes = 64 + 4 * kMaxBootstrapRanks + kMaxBlobBytes;

enum class FrameType : uint16_t {
  kHello = 1,           // rank -> coordinator: nonce, who I am
  kChallenge = 2,       // coordinator -> rank: nonce
  kProof = 3,           // rank -> coordinator: keyed hash of both
  kWelcome = 4,         // coordinator -> rank: the other keyed hash of both; tagged frames follow
  kAccepted = 5,        // coordinator -> rank: you are in
  kRefused = 6,         // coordinator -> rank: you are not, and why
  kExchange = 7,        // rank -> coordinator: my blob
  kResult = 8,          // coordinator -> member: all blobs
  kExchangeFailed = 9,  // coordinator -> member: this one will never complete, and why
  kMissing = 10,        // coordinator -> member: who has not come yet; shortly before its deadline, or when one leaves
  kRankGone = 11,       // coordinator -> everyone: a rank died or left
  kAbort = 12,          // either way: the job is over, and why
  kGoodbye = 13,        // rank -> coordinator: I leave in good order
  kHeartbeat = 14,      // either way: nothing; the other end's kernel has to acknowledge it
  kUnreachable = 15,    // rank -> coordinator -> rank, and back -> everyone: the network does not join us
  kLeftNetwork = 16,    // rank -> coordinator -> everyone: I leave one of the job's networks in good order
};
constexpr uint16_t kMaxFrameType = 16;

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

struct FrameHeader {
  FrameType type{};
  uint32_t length_bytes = 0;
  uint64_t sequence = 0;  // how many frames this end sent before on this connection
  uint64_t tag = 0;
};

FrameHeaderBytes encode_frame_header(const FrameHeader& header);
Result<FrameHeader> parse_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes, uint32_t max_length_bytes);

// The tag of an authenticated frame; the header's own tag field does not enter.
uint64_t frame_tag(const SecretKey& key, const FrameHeader& header, const Digest& payload_digest);

// Bytes with their digest, which is computed once even if the same payload goes to many peers.
struct FramePayload {
  explicit FramePayload(std::vector<std::byte> content) : bytes(std::move(content)), digest(plain_hash(bytes)) {}
  const std::vector<std::byte> bytes;
  const Digest digest;
};
// Shared because one result waits in the send queues of all members.
using SharedPayload = std::shared_ptr<const FramePayload>;

inline SharedPayload make_payload(std::vector<std::byte> bytes) {
  return std::make_shared<const FramePayload>(std::move(bytes));
}

}  // namespace switchyard
