#include "comm/handshake.hpp"

#include <algorithm>

#include "comm/wire.hpp"

namespace switchyard {
namespace {

Digest transcript_hash(const JobSecret& secret, std::string_view label, const HandshakeHello& hello,
                       const Nonce& server_nonce) {
  return keyed_hash(secret.key, label, {secret.job_id, hello.encode(), server_nonce});
}

SessionKeys server_keys(const JobSecret& secret, const HandshakeHello& hello, const Nonce& server_nonce) {
  return {transcript_hash(secret, "frames from coordinator", hello, server_nonce),
          transcript_hash(secret, "frames from rank", hello, server_nonce)};
}

std::vector<std::byte> to_vector(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

std::vector<std::byte> HandshakeHello::encode() const {
  WireWriter out;
  out.put_bytes(nonce);
  out.put(rank);
  out.put(num_ranks);
  return out.take();
}

Result<HandshakeHello> HandshakeHello::parse(std::span<const std::byte> payload) {
  WireReader in(payload);
  HandshakeHello hello;
  in.get_into(std::span(hello.nonce));
  hello.rank = in.get<uint32_t>();
  hello.num_ranks = in.get<uint32_t>();
  if (!in.complete()) return Status::remote("sent a greeting of the wrong size");
  if (hello.num_ranks < 1 || hello.num_ranks > uint32_t(kMaxBootstrapRanks) || hello.rank >= hello.num_ranks) {
    return Status::remote(text("claims to be rank ", hello.rank, " of ", hello.num_ranks, "; at most ",
                               kMaxBootstrapRanks, " ranks are allowed"));
  }
  return hello;
}

Status ServerHandshake::advance(const Frame& frame, FrameChannel& channel) {
  return hello_ ? take_proof(frame, channel) : take_hello(frame, channel);
}

Status ServerHandshake::take_hello(const Frame& frame, FrameChannel& channel) {
  if (frame.type != FrameType::kHello) return Status::remote("did not greet first");
  SWITCHYARD_ASSIGN(hello_, HandshakeHello::parse(frame.payload));
  fill_random(nonce_);
  channel.send(FrameType::kChallenge, to_vector(nonce_));
  return {};
}

Status ServerHandshake::take_proof(const Frame& frame, FrameChannel& channel) {
  if (frame.type != FrameType::kProof) return Status::remote("did not answer the challenge");
  if (!secret_equal(frame.payload, transcript_hash(secret_, "rank", *hello_, nonce_))) {
    return Status::remote("does not know the job key");
  }
  channel.send(FrameType::kWelcome, to_vector(transcript_hash(secret_, "coordinator", *hello_, nonce_)));
  channel.authenticate(server_keys(secret_, *hello_, nonce_), kMaxRequestBytes);
  done_ = true;
  return {};
}

Result<HandshakeOutcome> client_handshake(FrameChannel& channel, const JobSecret& secret, int rank, int num_ranks,
                                          Deadline deadline) {
  const Deadline limit = Deadline::after_ns(std::min(kHandshakeNs, deadline.remaining_ns()));
  // From half the grace on (the connection is older than this call) being dropped says nothing about our key.
  const Deadline surely_ours = Deadline::after_ns(kHalfOpenGraceNs / 2);
  HandshakeHello hello;
  fill_random(hello.nonce);
  hello.rank = uint32_t(rank);
  hello.num_ranks = uint32_t(num_ranks);
  channel.send(FrameType::kHello, hello.encode());
  if (!channel.flush(limit).ok()) return HandshakeOutcome::kNoChallenge;
  const auto challenge = channel.receive(limit);
  if (!challenge.ok()) return HandshakeOutcome::kNoChallenge;
  Nonce server_nonce;
  if (challenge->type != FrameType::kChallenge || challenge->payload.size() != server_nonce.size()) {
    return Status::remote(text(channel.peer(), " sent no challenge; is it the coordinator of this job?"));
  }
  std::copy(challenge->payload.begin(), challenge->payload.end(), server_nonce.begin());

  channel.send(FrameType::kProof, to_vector(transcript_hash(secret, "rank", hello, server_nonce)));
  const Status sent = channel.flush(limit);
  const auto welcome = sent.ok() ? channel.receive(limit) : Result<Frame>(sent);
  if (!welcome.ok()) {
    if (surely_ours.expired()) return HandshakeOutcome::kNoChallenge;
    return Status::remote(text("rank ", rank, " was turned away: ", welcome.status().message(),
                               " after seeing the proof; the unique id is of another job"));
  }
  if (welcome->type != FrameType::kWelcome ||
      !secret_equal(welcome->payload, transcript_hash(secret, "coordinator", hello, server_nonce))) {
    return Status::remote(text(channel.peer(), " does not know the job key; it is not the coordinator of this job"));
  }
  const SessionKeys keys = server_keys(secret, hello, server_nonce);
  channel.authenticate({.send = keys.receive, .receive = keys.send}, kMaxResultBytes);
  return HandshakeOutcome::kDone;
}

}  // namespace switchyard
