#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "comm/handshake.hpp"

namespace switchyard {
namespace {

class HandshakeTest : public testing::Test {
 protected:
  HandshakeTest() : HandshakeTest(pair()) {}

  static JobSecret fresh_secret() {
    JobSecret secret;
    EXPECT_TRUE(crypto_ready().ok());
    fill_random(secret.key);
    fill_random(secret.job_id);
    return secret;
  }
  static Deadline soon() { return Deadline::after_ns(5 * kSecond); }

  // Serves frames until the handshake is done or failed, then hangs up if it failed.
  Status serve(ServerHandshake& handshake) {
    while (!handshake.done()) {
      auto frame = server_.receive(soon());
      Status status = frame.ok() ? handshake.advance(*frame, server_) : frame.status();
      if (!status.ok()) {
        shutdown(server_.fd(), SHUT_RDWR);
        return status;
      }
      SWITCHYARD_TRY(server_.flush(soon()));
    }
    return {};
  }

  const JobSecret secret_ = fresh_secret();
  FrameChannel client_, server_;

 private:
  static std::array<int, 2> pair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    return fds;
  }
  explicit HandshakeTest(std::array<int, 2> fds)
      : client_(Fd(fds[0]), "the coordinator"), server_(Fd(fds[1]), "a rank") {}
};

TEST_F(HandshakeTest, EndsInAnAuthenticatedChannelBothWays) {
  std::thread server([&] {
    ServerHandshake handshake(secret_);
    ASSERT_TRUE(serve(handshake).ok());
    EXPECT_EQ(handshake.hello().rank, 3u);
    EXPECT_EQ(handshake.hello().num_ranks, 8u);
    server_.send(FrameType::kAccepted, std::vector<std::byte>());
    EXPECT_TRUE(server_.flush(soon()).ok());
    const auto reply = server_.receive(soon());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    EXPECT_EQ(reply->payload.size(), 1000u);
  });
  const auto outcome = client_handshake(client_, secret_, 3, 8, soon());
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome.value(), HandshakeOutcome::kDone);
  EXPECT_TRUE(client_.receive(soon()).ok());
  client_.send(FrameType::kExchange, std::vector<std::byte>(1000));
  EXPECT_TRUE(client_.flush(soon()).ok());
  server.join();
}

TEST_F(HandshakeTest, RankWithAnotherKeyIsTurnedAway) {
  std::thread server([&] {
    ServerHandshake handshake(secret_);
    EXPECT_NE(serve(handshake).message().find("does not know the job key"), std::string::npos);
  });
  JobSecret other = secret_;
  other.key[31] ^= std::byte(1);
  const auto outcome = client_handshake(client_, other, 0, 1, soon());
  server.join();
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.status().message().find("another job"), std::string::npos) << outcome.status().message();
}

TEST_F(HandshakeTest, RankOfAnotherJobWithTheSameKeyIsTurnedAway) {
  std::thread server([&] {
    ServerHandshake handshake(secret_);
    EXPECT_FALSE(serve(handshake).ok());
  });
  JobSecret other = secret_;
  other.job_id[0] ^= std::byte(1);
  EXPECT_FALSE(client_handshake(client_, other, 0, 1, soon()).ok());
  server.join();
}

TEST_F(HandshakeTest, ImpostorThatReflectsTheProofIsNotBelieved) {
  std::thread impostor([&] {
    ASSERT_TRUE(server_.receive(soon()).ok());
    server_.send(FrameType::kChallenge, std::vector<std::byte>(32));
    ASSERT_TRUE(server_.flush(soon()).ok());
    auto proof = server_.receive(soon());
    ASSERT_TRUE(proof.ok());
    server_.send(FrameType::kWelcome, std::move(proof->payload));
    ASSERT_TRUE(server_.flush(soon()).ok());
  });
  const auto outcome = client_handshake(client_, secret_, 0, 2, soon());
  impostor.join();
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.status().message().find("does not know the job key"), std::string::npos);
}

TEST_F(HandshakeTest, ProofOfOneConnectionIsWorthlessOnAnother) {
  // A listener in the middle records a rank's proof ...
  HandshakeHello hello;
  std::vector<std::byte> proof;
  std::thread server([&] {
    ServerHandshake handshake(secret_);
    auto frame = server_.receive(soon());
    ASSERT_TRUE(frame.ok());
    hello = *HandshakeHello::parse(frame->payload);
    ASSERT_TRUE(handshake.advance(*frame, server_).ok() && server_.flush(soon()).ok());
    frame = server_.receive(soon());
    ASSERT_TRUE(frame.ok());
    proof = frame->payload;
    ASSERT_TRUE(handshake.advance(*frame, server_).ok() && server_.flush(soon()).ok());
  });
  ASSERT_TRUE(client_handshake(client_, secret_, 0, 2, soon()).ok());
  server.join();
  // ... and replays the same greeting and proof.
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  FrameChannel again(Fd(fds[0]), "replayed");
  const Fd other_end(fds[1]);
  ServerHandshake handshake(secret_);
  ASSERT_TRUE(handshake.advance({FrameType::kHello, hello.encode()}, again).ok());
  EXPECT_FALSE(handshake.advance({FrameType::kProof, proof}, again).ok());
}

TEST_F(HandshakeTest, ProofOfOneRankIsWorthlessForAnother) {
  ServerHandshake handshake(secret_);
  HandshakeHello hello;
  hello.rank = 1;
  hello.num_ranks = 2;
  ASSERT_TRUE(handshake.advance({FrameType::kHello, hello.encode()}, server_).ok());
  ASSERT_TRUE(server_.flush(soon()).ok());
  const auto challenge = client_.receive(soon());
  ASSERT_TRUE(challenge.ok());
  const auto proof_as = [&](uint32_t rank) {
    HandshakeHello claimed = hello;
    claimed.rank = rank;
    const Digest digest = keyed_hash(secret_.key, "rank", {secret_.job_id, claimed.encode(), challenge->payload});
    return Frame{FrameType::kProof, {digest.begin(), digest.end()}};
  };
  EXPECT_FALSE(handshake.advance(proof_as(0), server_).ok());
  EXPECT_TRUE(handshake.advance(proof_as(1), server_).ok());
}

TEST_F(HandshakeTest, NothingButAGreetingIsAcceptedFirst) {
  for (uint16_t type = 2; type <= kMaxFrameType; type++) {
    ServerHandshake handshake(secret_);
    EXPECT_FALSE(handshake.advance({FrameType(type), {}}, server_).ok()) << type;
  }
}

TEST_F(HandshakeTest, GreetingsWithImpossibleRanksAreRefused) {
  const auto parse = [](uint32_t rank, uint32_t num_ranks) {
    return HandshakeHello::parse(HandshakeHello{{}, rank, num_ranks}.encode()).ok();
  };
  EXPECT_TRUE(parse(0, 1));
  EXPECT_TRUE(parse(kMaxBootstrapRanks - 1, kMaxBootstrapRanks));
  EXPECT_FALSE(parse(0, 0));
  EXPECT_FALSE(parse(2, 2));
  EXPECT_FALSE(parse(0, kMaxBootstrapRanks + 1));
  EXPECT_FALSE(HandshakeHello::parse(std::vector<std::byte>(39)).ok());
  EXPECT_FALSE(HandshakeHello::parse(std::vector<std::byte>(41)).ok());
}

// A coordinator beset by strangers closes unproven connections that are older than kHalfOpenGraceNs.
TEST_F(HandshakeTest, PlaceLostToANewcomerAfterAWhileIsWorthAnotherTry) {
  std::thread server([&] {
    ServerHandshake handshake(secret_);
    const auto hello = server_.receive(soon());
    ASSERT_TRUE(hello.ok());
    ASSERT_TRUE(handshake.advance(hello.value(), server_).ok() && server_.flush(soon()).ok());
    poll(nullptr, 0, int(kHalfOpenGraceNs / kMillisecond));
    shutdown(server_.fd(), SHUT_RDWR);
  });
  const auto outcome = client_handshake(client_, secret_, 0, 1, soon());
  server.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome.value(), HandshakeOutcome::kNoChallenge);
}

TEST_F(HandshakeTest, SilentCoordinatorIsWorthAnotherTryAfterTheDeadline) {
  const auto outcome = client_handshake(client_, secret_, 0, 1, Deadline::after_ns(50 * kMillisecond));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.value(), HandshakeOutcome::kNoChallenge);
}

}  // namespace
}  // namespace switchyard
