#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "comm/channel.hpp"
#include "comm/exchange_table.hpp"
#include "comm/message.hpp"
#include "comm/unique_id.hpp"
#include "comm/wire.hpp"

namespace switchyard {
namespace {

struct SocketPair {
  SocketPair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    near = Fd(fds[0]);
    far = Fd(fds[1]);
  }
  Fd near, far;
};

Deadline soon() { return Deadline::after_ns(5 * kSecond); }

std::vector<std::byte> pattern(size_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  for (size_t i = 0; i < num_bytes; i++) bytes[i] = std::byte(i * 31 + 7);
  return bytes;
}

JobSecret some_secret() {
  JobSecret secret;
  EXPECT_TRUE(crypto_ready().ok());
  fill_random(secret.key);
  fill_random(secret.job_id);
  return secret;
}

UniqueId some_id() {
  TcpEndpoint endpoint;
  endpoint.address = {std::byte(127), std::byte(0), std::byte(0), std::byte(1)};
  endpoint.port = 4242;
  return UniqueId::make(endpoint, some_secret());
}

TEST(FrameHeader, SurvivesEncodingAndParsing) {
  const FrameHeader header{FrameType::kExchange, 77, 123456789012345, 0xfedcba9876543210};
  const auto parsed = parse_frame_header(encode_frame_header(header), 100);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->type, header.type);
  EXPECT_EQ(parsed->length_bytes, 77u);
  EXPECT_EQ(parsed->sequence, header.sequence);
  EXPECT_EQ(parsed->tag, header.tag);
}

TEST(FrameHeader, LiesOnTheWireInLittleEndianOrder) {
  const auto bytes = encode_frame_header({FrameType::kProof, 0x01020304, 5, 6});
  EXPECT_EQ(bytes[0], std::byte('S'));
  EXPECT_EQ(bytes[3], std::byte('F'));
  EXPECT_EQ(bytes[6], std::byte(3));
  EXPECT_EQ(bytes[12], std::byte(4));
  EXPECT_EQ(bytes[15], std::byte(1));
}

TEST(FrameHeader, IsRefusedIfAnyFixedFieldIsWrong) {
  const auto good = encode_frame_header({FrameType::kHello, 10, 0, 0});
  ASSERT_TRUE(parse_frame_header(good, 10).ok());
  EXPECT_FALSE(parse_frame_header(good, 9).ok());
  for (const size_t byte_idx : {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11}) {
    auto bad = good;
    bad[byte_idx] ^= std::byte(0x80);
    EXPECT_FALSE(parse_frame_header(bad, 1u << 31).ok()) << "byte " << byte_idx;
  }
  auto unknown_type = good;
  unknown_type[6] = std::byte(kMaxFrameType + 1);
  EXPECT_FALSE(parse_frame_header(unknown_type, 10).ok());
}

TEST(FrameChannel, CarriesFramesOfAllSizesInOrder) {
  SocketPair pair;
  FrameChannel sender(std::move(pair.near), "near"), receiver(std::move(pair.far), "far");
  const JobSecret secret = some_secret();
  sender.authenticate({secret.key, secret.key}, kMaxResultBytes);
  receiver.authenticate({secret.key, secret.key}, kMaxResultBytes);
  const std::vector<size_t> sizes = {0, 1, 255, 65536, 3'000'001, kMaxResultBytes, 5};
  std::thread writer([&] {
    for (const size_t size : sizes) sender.send(FrameType::kResult, pattern(size));
    EXPECT_TRUE(sender.flush(soon()).ok());
  });
  for (const size_t size : sizes) {
    const auto frame = receiver.receive(soon());
    ASSERT_TRUE(frame.ok()) << frame.status().to_string();
    EXPECT_EQ(frame->payload, pattern(size));
  }
  writer.join();
  EXPECT_EQ(sender.unsent_bytes(), 0u);
}

TEST(FrameChannel, RefusesMoreThan256BytesBeforeAuthentication) {
  SocketPair pair;
  FrameChannel sender(std::move(pair.near), "near"), receiver(std::move(pair.far), "far");
  sender.send(FrameType::kHello, pattern(256));
  sender.send(FrameType::kHello, pattern(257));
  ASSERT_TRUE(sender.flush(soon()).ok());
  EXPECT_TRUE(receiver.receive(soon()).ok());
  const auto second = receiver.receive(soon());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("257"), std::string::npos) << second.status().message();
}

TEST(FrameChannel, NoticesAChangedByteARepeatedFrameAndAnotherKey) {
  const JobSecret secret = some_secret();
  const auto payload = pattern(40);
  FrameHeader header{FrameType::kExchange, 40, 0, 0};
  header.tag = frame_tag(secret.key, header, plain_hash(payload));
  const auto deliver = [&](std::vector<std::byte> wire, const SecretKey& key, int num_good) {
    SocketPair pair;
    EXPECT_EQ(send(pair.near.get(), wire.data(), wire.size(), 0), ssize_t(wire.size()));
    FrameChannel receiver(std::move(pair.far), "far");
    receiver.authenticate({key, key}, kMaxRequestBytes);
    for (int i = 0; i < num_good; i++) EXPECT_TRUE(receiver.receive(soon()).ok());
    return receiver.receive(Deadline::after_ns(50 * kMillisecond)).status().message();
  };
  std::vector<std::byte> wire;
  const auto header_bytes = encode_frame_header(header);
  wire.insert(wire.end(), header_bytes.begin(), header_bytes.end());
  wire.insert(wire.end(), payload.begin(), payload.end());

  auto changed = wire;
  changed.back() ^= std::byte(1);
  EXPECT_NE(deliver(changed, secret.key, 0).find("did not tag"), std::string::npos);
  auto twice = wire;
  twice.insert(twice.end(), wire.begin(), wire.end());
  EXPECT_NE(deliver(twice, secret.key, 1).find("out of order"), std::string::npos);
  EXPECT_NE(deliver(wire, some_secret().key, 0).find("did not tag"), std::string::npos);
}

TEST(FrameChannel, GivesUpAtTheDeadlineOnHalfAHeader) {
  SocketPair pair;
  const auto header = encode_frame_header({FrameType::kHello, 0, 0, 0});
  ASSERT_EQ(send(pair.near.get(), header.data(), 16, 0), 16);
  FrameChannel receiver(std::move(pair.far), "far");
  const uint64_t begin_ns = now_ns();
  EXPECT_FALSE(receiver.receive(Deadline::after_ns(50 * kMillisecond)).ok());
  EXPECT_GE(now_ns() - begin_ns, 50 * kMillisecond);
  EXPECT_LT(now_ns() - begin_ns, kSecond);
}

TEST(UniqueId, SurvivesHexadecimal) {
  const UniqueId id = some_id();
  const auto back = UniqueId::from_hex(id.to_hex());
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back.value(), id);
  EXPECT_EQ(id.to_hex().size(), 256u);
}

TEST(UniqueId, ParserRefusesEverySingleChangedDigit) {
  const std::string hex = some_id().to_hex();
  for (size_t i = 0; i < hex.size(); i++) {
    std::string bad = hex;
    bad[i] = bad[i] == '0' ? '1' : '0';
    EXPECT_FALSE(UniqueId::from_hex(bad).ok()) << "digit " << i;
    bad[i] = ' ';
    EXPECT_FALSE(UniqueId::from_hex(bad).ok());
  }
  EXPECT_FALSE(UniqueId::from_hex(hex + "0").ok());
  EXPECT_FALSE(UniqueId::from_hex(hex.substr(2)).ok());
  EXPECT_FALSE(UniqueId::from_hex("").ok());
}

TEST(UniqueId, OfZeroesIsRefusedWithAHint) {
  const Status status = UniqueId{}.validate();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("magic"), std::string::npos);
}

TEST(Messages, SurviveEncodingAndParsing) {
  const ExchangeRequest request{{7, 9}, 1000, {2, 0, 1}, pattern(33)};
  const auto request_back = ExchangeRequest::parse(request.encode(), 3);
  ASSERT_TRUE(request_back.ok());
  EXPECT_EQ(request_back->key, request.key);
  EXPECT_EQ(request_back->timeout_ns, 1000u);
  EXPECT_EQ(request_back->members, request.members);
  EXPECT_EQ(request_back->blob, request.blob);

  const ExchangeResult result{{7, 9}, {pattern(3), {}, pattern(500)}};
  const auto result_back = ExchangeResult::parse(result.encode());
  ASSERT_TRUE(result_back.ok());
  EXPECT_EQ(result_back->blobs, result.blobs);
  EXPECT_EQ(result.encode().size(), ExchangeResult::encoded_bytes(3, 503));

  const auto notice = Notice::parse(Notice{5, Code::kRemoteError, "gone\x1b[31m\n"}.encode());
  ASSERT_TRUE(notice.ok());
  EXPECT_EQ(notice->rank, 5u);
  EXPECT_EQ(notice->reason, "gone?[31m?") << "control characters of a peer must not reach a terminal";

  const auto unreachable = Unreachable::parse(Unreachable{7, 1, 2, "reset\n"}.encode(), 3);
  ASSERT_TRUE(unreachable.ok());
  EXPECT_EQ(unreachable->comm_id, 7u);
  EXPECT_EQ(unreachable->from, 1u);
  EXPECT_EQ(unreachable->to, 2u);
  EXPECT_EQ(unreachable->reason, "reset?");
  EXPECT_FALSE(Unreachable::parse(Unreachable{7, 0, 3, ""}.encode(), 3).ok()) << "there is no such rank";
  EXPECT_FALSE(Unreachable::parse(Unreachable{7, 3, 0, ""}.encode(), 3).ok()) << "there is no such rank";
  EXPECT_FALSE(Unreachable::parse(Unreachable{7, 1, 1, ""}.encode(), 3).ok()) << "nobody is out of its own reach";
}

TEST(Messages, DeparturesSurviveAndNameARankThatThereIs) {
  const auto departure = Departure::parse(Departure{7, 2}.encode(), 3);
  ASSERT_TRUE(departure.ok());
  EXPECT_EQ(departure->comm_id, 7u);
  EXPECT_EQ(departure->rank, 2u);
  EXPECT_FALSE(Departure::parse(Departure{7, 3}.encode(), 3).ok());
}

TEST(Messages, RequestsWithWrongMembersAreRefused) {
  const auto parse = [](std::vector<int> members) {
    return ExchangeRequest::parse(ExchangeRequest{{}, 0, std::move(members), {}}.encode(), 3).ok();
  };
  EXPECT_TRUE(parse({0, 2}));
  EXPECT_FALSE(parse({}));
  EXPECT_FALSE(parse({0, 3}));
  EXPECT_FALSE(parse({1, 1}));
  EXPECT_FALSE(parse({-1}));
  EXPECT_FALSE(ExchangeRequest::parse(ExchangeRequest{{}, 0, {0}, pattern(kMaxBlobBytes + 1)}.encode(), 1).ok());
}

TEST(Messages, ParsersTakeAnyBytes) {
  std::mt19937 random(1);
  const std::vector<std::vector<std::byte>> seeds = {ExchangeRequest{{1, 2}, 3, {0, 1, 2}, pattern(20)}.encode(),
                                                     ExchangeResult{{1, 2}, {pattern(9), pattern(4)}}.encode(),
                                                     ExchangeMissing{{1, 2}, {1, 2}}.encode(),
                                                     Notice{1, Code::kRemoteError, "reason"}.encode(),
                                                     Unreachable{1, 0, 2, "reason"}.encode(),
                                                     Departure{1, 2}.encode()};
  for (int round = 0; round < 50'000; round++) {
    auto bytes = seeds[random() % seeds.size()];
    for (unsigned i = random() % 4; i > 0 && !bytes.empty(); i--) bytes[random() % bytes.size()] = std::byte(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 8));
    if (const auto request = ExchangeRequest::parse(bytes, 3); request.ok()) {
      EXPECT_EQ(request->encode(), bytes);
    }
    if (const auto result = ExchangeResult::parse(bytes); result.ok()) {
      EXPECT_EQ(result->encode(), bytes);
    }
    if (const auto missing = ExchangeMissing::parse(bytes); missing.ok()) {
      EXPECT_EQ(missing->encode(), bytes);
    }
    (void)ExchangeFailure::parse(bytes).ok();
    (void)Notice::parse(bytes).ok();
    (void)Unreachable::parse(bytes, 3).ok();
    (void)Departure::parse(bytes, 3).ok();
  }
}

TEST(ExchangeTable, NamesWhoIsMissingShortlyBeforeTheDeadlineOnce) {
  ExchangeTable table;
  const ExchangeRequest request{{1, 0}, kSecond, {0, 1, 2}, {}};
  ASSERT_TRUE(table.add(1, request, 0).ok());
  EXPECT_EQ(table.next_hint_ns(), 800 * kMillisecond);
  EXPECT_TRUE(table.due_hints(799 * kMillisecond).empty());
  const auto hints = table.due_hints(800 * kMillisecond);
  ASSERT_EQ(hints.size(), 1u);
  EXPECT_EQ(hints[0].recipients, std::vector<int>{1});
  EXPECT_EQ(ExchangeMissing::parse(hints[0].payload)->ranks, (std::vector<int>{0, 2}));
  EXPECT_TRUE(table.due_hints(kSecond).empty());
}

TEST(ExchangeTable, FailsAnExchangeWhoseResultWouldBeTooLarge) {
  ExchangeTable table;
  std::vector<int> members;
  for (int rank = 0; rank < 300; rank++) members.push_back(rank);
  int num_failed = 0;
  for (int rank = 0; rank < 300; rank++) {
    auto out = table.add(rank, ExchangeRequest{{1, 0}, kSecond, members, pattern(kMaxBlobBytes)}, 0);
    ASSERT_TRUE(out.ok());
    if (!out->has_value()) continue;
    EXPECT_EQ((*out)->type, FrameType::kExchangeFailed);
    num_failed += int((*out)->recipients.size());
  }
  EXPECT_EQ(num_failed, 300) << "everyone learns of it, also those who come late";
}

TEST(ExchangeTable, RefusesARankThatJoinsTwiceOrIsNoMember) {
  ExchangeTable table;
  const ExchangeRequest request{{1, 0}, kSecond, {0, 1}, {}};
  ASSERT_TRUE(table.add(0, request, 0).ok());
  EXPECT_FALSE(table.add(0, request, 0).ok());
  EXPECT_FALSE(table.add(2, request, 0).ok());
}

}  // namespace
}  // namespace switchyard
