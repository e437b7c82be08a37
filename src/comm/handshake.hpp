// The handshake: both ends prove that they know the job key before anything else is read from them.
//
//   rank        -> coordinator  kHello      nonce, rank, num_ranks
//   coordinator -> rank         kChallenge  nonce
//   rank        -> coordinator  kProof      H(key, "rank",        job id, hello, both nonces)
//   coordinator -> rank         kWelcome    H(key, "coordinator", job id, hello, both nonces)
//
// The labels differ, so a proof can't be reflected; both nonces are fresh, so it can't be replayed; the rank is inside,
// so it can't be used for another one. The rank proves first: a stranger who connects learns nothing but a nonce.
//
// THREADS  as the channel they work on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "comm/channel.hpp"
#include "comm/keyed_hash.hpp"

namespace switchyard {

constexpr uint64_t kHandshakeNs = 5 * kSecond;
// A half-open connection this old may be thrown out for a newcomer; an honest rank needs a few milliseconds.
constexpr uint64_t kHalfOpenGraceNs = 100 * kMillisecond;

struct HandshakeHello {
  Nonce nonce{};
  uint32_t rank = 0;
  uint32_t num_ranks = 0;

  std::vector<std::byte> encode() const;
  // Refuses ranks outside of 0..num_ranks-1 and more than kMaxBootstrapRanks ranks.
  static Result<HandshakeHello> parse(std::span<const std::byte> payload);
};

// The coordinator's side, one frame at a time.
class ServerHandshake {
 public:
  explicit ServerHandshake(const JobSecret& secret) : secret_(secret) {}

  // Takes a frame of the peer and queues the answer. EFFECTS: done() turns true when the peer has proven itself;
  // from then on the channel is authenticated. An error means: drop this peer.
  Status advance(const Frame& frame, FrameChannel& channel);
  bool done() const { return done_; }
  const HandshakeHello& hello() const { return *hello_; }

 private:
  Status take_hello(const Frame& frame, FrameChannel& channel);
  Status take_proof(const Frame& frame, FrameChannel& channel);

  const JobSecret secret_;
  Nonce nonce_{};
  std::optional<HandshakeHello> hello_;
  bool done_ = false;
};

enum class HandshakeOutcome {
  kDone,
  kNoChallenge,  // the coordinator was too busy, or gave our place to a newcomer: worth another try
};

// The rank's side. BLOCKING: until the deadline or kHandshakeNs, whichever is first.
Result<HandshakeOutcome> client_handshake(FrameChannel& channel, const JobSecret& secret, int rank, int num_ranks,
                                          Deadline deadline);

}  // namespace switchyard
