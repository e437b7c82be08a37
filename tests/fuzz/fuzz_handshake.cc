// The handshake, each side against bytes. Where the input asks for it the fuzzer plays a peer that knows the key, so
// that what comes after a good proof is reached as well.
#include "comm/handshake.hpp"
#include "fuzz.hpp"

namespace switchyard::fuzz {
namespace {

constexpr JobSecret kSecret{{std::byte(7)}, {std::byte(8)}};
constexpr Nonce kNonce{};  // see be_deterministic()

Digest transcript(const char* label, const HandshakeHello& hello) {
  return keyed_hash(kSecret.key, label, {kSecret.job_id, hello.encode(), kNonce});
}

std::vector<std::byte> to_vector(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

// As the coordinator's loop does it: until an error drops the peer.
void serve(FrameChannel& channel, bool peer_knows_the_key) {
  ServerHandshake handshake(kSecret);
  for (;;) {
    auto frame = channel.receive();
    if (!frame.ok() || !frame->has_value()) return;
    if (handshake.done()) return;
    if (!handshake.advance(**frame, channel).ok()) return;
    require(!handshake.done() || peer_knows_the_key, "nobody gets in without the key");
    if (handshake.done()) require(handshake.hello().rank < handshake.hello().num_ranks, "ranks are in range");
    if (!channel.flush().ok()) return;
  }
}

void against_server(Input input) {
  SocketPair pair;
  FrameChannel server(std::move(pair.near), "fuzzer");
  const bool knows_the_key = input.byte() % 2 == 1;
  if (knows_the_key) {
    HandshakeHello hello;
    const auto nonce = input.take(hello.nonce.size());
    std::copy(nonce.begin(), nonce.end(), hello.nonce.begin());
    hello.rank = input.byte();
    hello.num_ranks = input.byte();
    FrameChannel client(std::move(pair.far), "server");
    client.send(FrameType::kHello, hello.encode());
    client.send(FrameType::kProof, to_vector(transcript("rank", hello)));
    require(client.flush().ok(), "the client sends");
    feed(Fd(dup(client.fd())), input.rest());
    serve(server, true);
    return;
  }
  feed(pair.far, input.rest());
  serve(server, false);
}

// Everything the coordinator will ever say lies in the socket before the client starts, then the connection ends.
void against_client(Input input) {
  SocketPair pair;
  FrameChannel client(std::move(pair.near), "fuzzer");
  const uint8_t choice = input.byte();
  const bool honest = choice % 4 == 3;
  HandshakeHello expected;
  expected.rank = 1;
  expected.num_ranks = 2;
  {
    FrameChannel server(Fd(dup(pair.far.get())), "client");
    if (choice % 4 >= 1) server.send(FrameType::kChallenge, to_vector(kNonce));
    if (choice % 4 == 2) server.send(FrameType::kWelcome, to_vector(input.take(32)));
    if (honest) server.send(FrameType::kWelcome, to_vector(transcript("coordinator", expected)));
    require(server.flush().ok(), "the server sends");
  }
  feed(pair.far, input.rest());
  shutdown(pair.far.get(), SHUT_WR);
  auto outcome = client_handshake(client, kSecret, 1, 2, Deadline::after_ns(kSecond));
  const bool done = outcome.ok() && *outcome == HandshakeOutcome::kDone;
  require(done == honest, "the client trusts those who know the key, and nobody else");
  if (done) (void)client.receive();
}

}  // namespace
}  // namespace switchyard::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace switchyard::fuzz;
  if (num_bytes > 4096) return 0;  // more than a socket takes at once
  Input input(data, num_bytes);
  if (input.byte() % 2 == 0) against_server(input);
  else against_client(input);
  return 0;
}
