// Frames and what is in them: headers, whole connections (bytes as strangers send them, and tagged frames as members
// do), every message parser, and the coordinator's table of exchanges under requests of hostile members.
#include <array>

#include "comm/channel.hpp"
#include "comm/exchange_table.hpp"
#include "comm/message.hpp"
#include "fuzz.hpp"

namespace switchyard::fuzz {
namespace {

constexpr int kNumRanks = 4;

// What parses encodes to something that parses to the same.
template <class Message, class... Context>
void check_message(std::span<const std::byte> bytes, Context... context) {
  auto message = Message::parse(bytes, context...);
  if (!message.ok()) return;
  const auto encoded = message->encode();
  auto again = Message::parse(encoded, context...);
  require(again.ok() && again->encode() == encoded, "a message survives encoding and parsing");
}

void parse_all(std::span<const std::byte> bytes) {
  check_message<ExchangeRequest>(bytes, kNumRanks);
  check_message<ExchangeResult>(bytes);
  check_message<ExchangeFailure>(bytes);
  check_message<ExchangeMissing>(bytes);
  check_message<Notice>(bytes);
  check_message<Departure>(bytes, kNumRanks);
  check_message<Unreachable>(bytes, kNumRanks);
}

void parse_header(Input input) {
  FrameHeaderBytes bytes{};
  const auto piece = input.rest();
  std::copy_n(piece.begin(), std::min(piece.size(), bytes.size()), bytes.begin());
  auto header = parse_frame_header(bytes, kMaxUnauthenticatedBytes);
  if (!header.ok()) return;
  require(header->length_bytes <= kMaxUnauthenticatedBytes, "lengths are capped");
  require(encode_frame_header(*header) == bytes, "a header survives parsing and encoding");
}

// Bytes in pieces of the input's choice.
void read_as_stranger(Input input) {
  SocketPair pair;
  FrameChannel channel(std::move(pair.near), "fuzzer");
  while (!input.empty()) {
    feed(pair.far, input.take(1 + input.byte() % 64));
    for (;;) {
      auto frame = channel.receive();
      if (!frame.ok()) return;
      if (!frame->has_value()) break;
      require((*frame)->payload.size() <= kMaxUnauthenticatedBytes, "payloads of strangers are capped");
    }
  }
}

void read_as_member(Input input) {
  SocketPair pair;
  FrameChannel sender(std::move(pair.far), "sender"), receiver(std::move(pair.near), "receiver");
  SessionKeys keys;
  keys.send[0] = std::byte(1);
  sender.authenticate(keys, kMaxRequestBytes);
  receiver.authenticate({.send = keys.receive, .receive = keys.send}, kMaxRequestBytes);
  ExchangeTable table;
  for (uint64_t now_ns = 0; !input.empty(); now_ns += 1'000'000) {
    const uint8_t choice = input.byte();
    const auto payload = input.take(input.byte());
    sender.send(FrameType(1 + choice % kMaxFrameType), std::vector<std::byte>(payload.begin(), payload.end()));
    require(sender.flush().ok(), "the sender sends");
    auto frame = receiver.receive();
    require(frame.ok() && frame->has_value(), "a tagged frame arrives");
    const auto& bytes = (*frame)->payload;
    require(bytes.size() == payload.size(), "whole");
    parse_all(bytes);
    auto request = ExchangeRequest::parse(bytes, kNumRanks);
    if (request.ok()) (void)table.add(choice % kNumRanks, std::move(*request), now_ns);
    if (choice >= 250) table.drop_member(choice % kNumRanks);
    (void)table.due_hints(now_ns);
    (void)table.next_hint_ns();
  }
}

}  // namespace
}  // namespace switchyard::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace switchyard::fuzz;
  Input input(data, num_bytes);
  switch (input.byte() % 4) {
    case 0: parse_header(input); break;
    case 1: read_as_stranger(input); break;
    case 2: read_as_member(input); break;
    default: parse_all(input.rest()); break;
  }
  return 0;
}
