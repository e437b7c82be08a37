// The bootstrap among strangers, liars and the dying.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "boot_support.hpp"
#include "comm/handshake.hpp"

namespace switchyard::test {
namespace {

// Joins by hand, without a Bootstrap, so that a test can do what no Bootstrap would.
FrameChannel join_raw(const UniqueId& id, int rank, int num_ranks) {
  FrameChannel channel(raw_connection(id), "the coordinator");
  EXPECT_TRUE(client_handshake(channel, id.secret(), rank, num_ranks, in_seconds(5)).ok());
  const auto verdict = channel.receive(in_seconds(5));
  EXPECT_TRUE(verdict.ok() && verdict->type == FrameType::kAccepted);
  return channel;
}

void take_part_in_joining(FrameChannel& channel, int num_ranks) {
  channel.send(FrameType::kExchange,
               ExchangeRequest{{Bootstrap::kWorldCommId, 0}, 30 * kSecond, world(num_ranks), {}}.encode());
  ASSERT_TRUE(channel.flush(in_seconds(5)).ok());
  const auto joined = channel.receive(in_seconds(30));
  ASSERT_TRUE(joined.ok() && joined->type == FrameType::kResult);
}

TEST(BootstrapAmongStrangers, FormsWhileOthersConnectCloseAndSendRubbish) {
  const auto coordinator = start_coordinator();
  std::atomic<bool> done{false};
  std::atomic<uint64_t> num_strangers{0};
  std::thread stranger([&] {
    for (int i = 0; !done.load(std::memory_order_relaxed); i++) {
      const auto fd = connect_to(coordinator->id().endpoint(), in_seconds(5));
      if (!fd.ok()) break;  // the coordinator has ended
      if (i % 2 == 0) send(fd.value().get(), "GET / HTTP/1.1\r\nHost: switchyard.example\r\n\r\n", 45, MSG_NOSIGNAL);
      num_strangers.fetch_add(1, std::memory_order_relaxed);
    }
  });
  ASSERT_TRUE(eventually([&] { return num_strangers.load(std::memory_order_relaxed) > 10; }));
  run_ranks(coordinator->id(), 8, [](Bootstrap& bootstrap) {
    for (int round = 0; round < 20; round++) ASSERT_TRUE(bootstrap.barrier(1, world(8), in_seconds(30)).ok());
  });
  done.store(true, std::memory_order_relaxed);
  stranger.join();
  EXPECT_GT(coordinator->counters().num_dropped_peers, 0u);
}

TEST(BootstrapAmongStrangers, FormsWhileHundredsOfSilentConnectionsAreOpen) {
  const auto coordinator = start_coordinator();
  std::vector<Fd> silent;
  for (int i = 0; i < 400; i++) silent.push_back(raw_connection(coordinator->id()));
  const uint64_t begin_ns = now_ns();
  run_ranks(coordinator->id(), 4, [](Bootstrap&) {});
  EXPECT_LT(now_ns() - begin_ns, 4 * kSecond)
      << "silent connections make room long before their handshake time is over";
  EXPECT_EQ(coordinator->counters().num_joined, 4u);
}

TEST(BootstrapAmongStrangers, DropsASilentPeerAfterFiveSeconds) {
  const auto coordinator = start_coordinator();
  const Fd silent = raw_connection(coordinator->id());
  const uint64_t begin_ns = now_ns();
  EXPECT_TRUE(hung_up(silent, in_seconds(10)));
  EXPECT_GT(now_ns() - begin_ns, 4 * kSecond);
  EXPECT_LT(now_ns() - begin_ns, 7 * kSecond);
  EXPECT_TRUE(eventually([&] { return coordinator->counters().num_dropped_peers == 1; }));
}

TEST(BootstrapAmongStrangers, DropsAPeerThatStopsAfterHalfAHeader) {
  const auto coordinator = start_coordinator();
  const Fd slow = raw_connection(coordinator->id());
  const FrameHeaderBytes header = encode_frame_header({FrameType::kHello, 40, 0, 0});
  send_raw(slow, std::span(header).first(16));
  run_ranks(coordinator->id(), 2, [](Bootstrap&) {});
  EXPECT_TRUE(hung_up(slow, in_seconds(10)));
}

TEST(BootstrapAmongStrangers, DropsAHugeLengthAtOnce) {
  const auto coordinator = start_coordinator();
  const Fd liar = raw_connection(coordinator->id());
  send_raw(liar, encode_frame_header({FrameType::kHello, 0xffffffff, 0, 0}));
  EXPECT_TRUE(hung_up(liar, in_seconds(2)));
  EXPECT_TRUE(eventually([&] { return coordinator->counters().num_dropped_peers == 1; }));
}

TEST(BootstrapAmongStrangers, TurnsAwayAWrongKeyAndTheJobStillForms) {
  const auto coordinator = start_coordinator();
  JobSecret wrong = coordinator->id().secret();
  wrong.key[0] ^= std::byte(1);
  const UniqueId forged = UniqueId::make(coordinator->id().endpoint(), wrong);
  const auto outsider = Bootstrap::connect(forged, 0, 2, in_seconds(10));
  ASSERT_FALSE(outsider.ok());
  EXPECT_NE(outsider.status().message().find("another job"), std::string::npos) << outsider.status().message();
  run_ranks(coordinator->id(), 2, [](Bootstrap&) {});
  EXPECT_EQ(coordinator->counters().num_dropped_peers, 1u);
}

TEST(BootstrapAmongStrangers, SaysSoWhenNoCoordinatorIsThere) {
  auto coordinator = start_coordinator();
  const UniqueId id = coordinator->id();
  coordinator.reset();
  const uint64_t begin_ns = now_ns();
  const auto bootstrap = Bootstrap::connect(id, 0, 1, in_seconds(30));
  ASSERT_FALSE(bootstrap.ok());
  EXPECT_NE(bootstrap.status().message().find("no coordinator"), std::string::npos);
  EXPECT_LT(now_ns() - begin_ns, 5 * kSecond);
}

TEST(BootstrapDeadline, NamesTheRanksThatNeverJoined) {
  const auto coordinator = start_coordinator();
  const uint64_t begin_ns = now_ns();
  const auto bootstrap = Bootstrap::connect(coordinator->id(), 1, 4, Deadline::after_ns(300 * kMillisecond));
  ASSERT_FALSE(bootstrap.ok());
  EXPECT_NE(bootstrap.status().message().find("missing: rank 0, 2, 3"), std::string::npos)
      << bootstrap.status().message();
  EXPECT_LT(now_ns() - begin_ns, 2 * kSecond);
}

TEST(BootstrapDeadline, NamesTheRankMissingInAnExchangeAndClosesTheCommunicator) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() != 2) {
      const Status late = bootstrap.barrier(5, world(3), Deadline::after_ns(300 * kMillisecond));
      EXPECT_NE(late.message().find("missing: rank 2"), std::string::npos) << late.message();
      EXPECT_EQ(bootstrap.barrier(5, world(3), in_seconds(30)).message(), late.message());
    }
    EXPECT_TRUE(bootstrap.barrier(6, world(3), in_seconds(30)).ok()) << "other communicators go on";
  });
}

TEST(BootstrapDeath, FailsPendingAndLaterExchangesOfTheOthersByName) {
  const auto coordinator = start_coordinator();
  std::thread victim([&] {
    FrameChannel channel = join_raw(coordinator->id(), 2, 3);
    take_part_in_joining(channel, 3);
    // Dies here: the socket closes without a goodbye, while the others are inside their exchange or about to enter it.
  });
  std::vector<std::thread> survivors;
  for (const int rank : {0, 1}) {
    survivors.emplace_back([&, rank] {
      const auto bootstrap = Bootstrap::connect(coordinator->id(), rank, 3, in_seconds(30));
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
      std::atomic<int> died{-1};
      bootstrap.value()->set_event_handler([&](const BootstrapEvent& event) {
        if (event.kind == BootstrapEvent::Kind::kRankDied) died.store(event.rank, std::memory_order_relaxed);
      });
      for (int attempt = 0; attempt < 2; attempt++) {
        const Status status = bootstrap.value()->barrier(1, world(3), in_seconds(30));
        EXPECT_EQ(status.code(), Code::kRemoteError);
        EXPECT_NE(status.message().find("rank 2 died"), std::string::npos) << status.message();
      }
      EXPECT_TRUE(eventually([&] { return died.load(std::memory_order_relaxed) == 2; }));
      EXPECT_EQ(bootstrap.value()->dead_ranks(), std::vector<int>{2});
      const std::vector<int> rest = {0, 1};
      EXPECT_TRUE(bootstrap.value()->barrier(2, rest, in_seconds(30)).ok()) << "groups without the dead go on";
      EXPECT_TRUE(bootstrap.value()->health().ok());
    });
  }
  victim.join();
  for (std::thread& survivor : survivors) survivor.join();
}

TEST(BootstrapDeath, ExchangesWithoutTheDeadRankGoOnWhileTheyWait) {
  const auto coordinator = start_coordinator();
  std::atomic<bool> may_die{false};
  std::thread victim([&] {
    FrameChannel channel = join_raw(coordinator->id(), 2, 3);
    take_part_in_joining(channel, 3);
    EXPECT_TRUE(eventually([&] { return may_die.load(std::memory_order_relaxed); }));
  });
  std::vector<std::thread> survivors;
  for (const int rank : {0, 1}) {
    survivors.emplace_back([&, rank] {
      const auto bootstrap = Bootstrap::connect(coordinator->id(), rank, 3, in_seconds(30));
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
      const auto sees_death = [&] { return !bootstrap.value()->dead_ranks().empty(); };
      // Rank 0 is inside the exchange when the news comes; rank 1 enters it only afterwards.
      if (rank == 0) may_die.store(true, std::memory_order_relaxed);
      else EXPECT_TRUE(eventually(sees_death));
      const std::vector<int> rest = {0, 1};
      EXPECT_TRUE(bootstrap.value()->barrier(1, rest, in_seconds(30)).ok());
    });
  }
  victim.join();
  for (std::thread& survivor : survivors) survivor.join();
}

TEST(BootstrapDeath, RankThatLeftInGoodOrderIsGoneButNotDead) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 2, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 1) return;
    const Status status = bootstrap.barrier(1, world(2), in_seconds(30));
    EXPECT_NE(status.message().find("rank 1 has left"), std::string::npos) << status.message();
    EXPECT_TRUE(bootstrap.dead_ranks().empty());
  });
}

TEST(BootstrapDeath, FailsThoseWhoAreStillJoiningAndThoseWhoComeLater) {
  const auto coordinator = start_coordinator();
  std::optional<FrameChannel> victim(join_raw(coordinator->id(), 0, 3));
  std::thread waiting([&] {
    const auto bootstrap = Bootstrap::connect(coordinator->id(), 1, 3, in_seconds(30));
    EXPECT_NE(bootstrap.status().message().find("rank 0 died"), std::string::npos) << bootstrap.status().message();
  });
  ASSERT_TRUE(eventually([&] { return coordinator->counters().num_joined == 2; }));
  victim.reset();
  waiting.join();
  const auto late = Bootstrap::connect(coordinator->id(), 2, 3, in_seconds(30));
  EXPECT_NE(late.status().message().find("can't form"), std::string::npos) << late.status().message();
}

TEST(BootstrapDeath, RankThatBreaksTheProtocolCountsAsDead) {
  const auto coordinator = start_coordinator();
  std::thread liar([&] {
    FrameChannel channel = join_raw(coordinator->id(), 1, 2);
    take_part_in_joining(channel, 2);
    channel.send(FrameType::kExchange, std::vector<std::byte>(7));
    ASSERT_TRUE(channel.flush(in_seconds(5)).ok());
    while (channel.receive(in_seconds(30)).ok()) {
    }
  });
  const auto bootstrap = Bootstrap::connect(coordinator->id(), 0, 2, in_seconds(30));
  ASSERT_TRUE(bootstrap.ok());
  const Status status = bootstrap.value()->barrier(1, world(2), in_seconds(30));
  EXPECT_NE(status.message().find("malformed exchange request"), std::string::npos) << status.message();
  liar.join();
}

TEST(BootstrapDeath, LossOfTheCoordinatorFailsEverythingAndSaysSo) {
  auto coordinator = start_coordinator();
  const UniqueId id = coordinator->id();
  std::atomic<int> num_waiting{0};
  std::thread killer([&] {
    EXPECT_TRUE(eventually([&] { return num_waiting.load(std::memory_order_relaxed) == 2; }));
    coordinator.reset();
  });
  run_ranks(id, 3, [&](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 2) {
      EXPECT_TRUE(eventually([&] { return !bootstrap.health().ok(); }));
      return;
    }
    num_waiting.fetch_add(1, std::memory_order_relaxed);
    const Status status = bootstrap.barrier(1, world(3), in_seconds(30));
    EXPECT_NE(status.message().find("lost the coordinator"), std::string::npos) << status.message();
    EXPECT_FALSE(bootstrap.barrier(2, world(3), in_seconds(30)).ok());
  });
  killer.join();
}

// What is sent must be acknowledged by the other machine, or its loss is noticed; tests/hosts cuts the cables.
TEST(BootstrapHeartbeats, AreSentByTheCoordinatorAndTakenByIt) {
  const auto coordinator = start_coordinator();
  FrameChannel rank = join_raw(coordinator->id(), 0, 2);
  for (int i = 0; i < 2; i++) {
    rank.send(FrameType::kHeartbeat, std::vector<std::byte>());
    ASSERT_TRUE(rank.flush(in_seconds(5)).ok());
    const auto frame = rank.receive(Deadline::after_ns(1500 * kMillisecond));
    ASSERT_TRUE(frame.ok()) << frame.status().to_string();
    EXPECT_EQ(frame->type, FrameType::kHeartbeat);
  }
}

TEST(BootstrapHeartbeats, EndAConnectionWhoseOtherEndDoesNotAcknowledgeForOneAndAHalf) {
  const auto coordinator = start_coordinator();
  const auto fd = connect_to(coordinator->id().endpoint(), in_seconds(5));
  ASSERT_TRUE(fd.ok());
  int timeout_ms = 0;
  socklen_t size = sizeof timeout_ms;
  ASSERT_EQ(getsockopt(fd->get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &size), 0);
  EXPECT_EQ(timeout_ms, 1500);
}

// The life of a rank process: gets the id, joins as rank 1 of 2, says so, and waits for an exchange that never
// completes.
[[noreturn]] void live_as_rank_1(int id_fd, int ready_fd) {
  UniqueId id;
  if (read(id_fd, static_cast<void*>(&id), sizeof id) != ssize_t(sizeof id)) _exit(1);
  const auto bootstrap = Bootstrap::connect(id, 1, 2, in_seconds(30));
  if (!bootstrap.ok() || write(ready_fd, "x", 1) != 1) _exit(2);
  (void)bootstrap.value()->barrier(9, world(2), in_seconds(60));
  _exit(3);
}

TEST(BootstrapDeath, KilledProcessIsNoticedWithinASecond) {
  int id_pipe[2], ready_pipe[2];
  ASSERT_EQ(pipe(id_pipe) + pipe(ready_pipe), 0);
  const Fd id_in(id_pipe[0]), id_out(id_pipe[1]), ready_in(ready_pipe[0]), ready_out(ready_pipe[1]);
  const pid_t child = fork();  // before this process has any other thread
  ASSERT_GE(child, 0);
  if (child == 0) live_as_rank_1(id_in.get(), ready_out.get());

  const auto coordinator = start_coordinator();
  const UniqueId id = coordinator->id();
  ASSERT_EQ(write(id_out.get(), &id, sizeof id), ssize_t(sizeof id));
  const auto bootstrap = Bootstrap::connect(id, 0, 2, in_seconds(30));
  ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
  char ready = 0;
  ASSERT_EQ(read(ready_in.get(), &ready, 1), 1);
  const uint64_t begin_ns = now_ns();
  ASSERT_EQ(kill(child, SIGKILL), 0);
  const Status status = bootstrap.value()->barrier(1, world(2), in_seconds(30));
  EXPECT_LT(now_ns() - begin_ns, kSecond);
  EXPECT_NE(status.message().find("rank 1 died"), std::string::npos) << status.message();
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(BootstrapAbort, FromAnotherThreadEndsBlockedExchangesEverywhereWithinASecond) {
  const auto coordinator = start_coordinator();
  std::atomic<int> num_entering{0};
  std::atomic<uint64_t> aborted_ns{0};
  run_ranks(coordinator->id(), 4, [&](Bootstrap& bootstrap) {
    std::thread aborter;
    if (bootstrap.rank() == 0) {
      aborter = std::thread([&] {
        EXPECT_TRUE(eventually([&] { return num_entering.load(std::memory_order_relaxed) == 3; }));
        aborted_ns.store(now_ns(), std::memory_order_relaxed);
        bootstrap.abort("the test says so");
      });
    }
    if (bootstrap.rank() != 3) {
      num_entering.fetch_add(1, std::memory_order_relaxed);
      const Status status = bootstrap.barrier(1, world(4), in_seconds(60));
      EXPECT_LT(now_ns() - aborted_ns.load(std::memory_order_relaxed), kSecond);
      EXPECT_NE(status.message().find("rank 0 aborted the job: the test says so"), std::string::npos)
          << status.message();
    } else {
      EXPECT_TRUE(eventually([&] { return !bootstrap.health().ok(); }))
          << "also those who wait for nothing learn of it";
    }
    if (aborter.joinable()) aborter.join();
    EXPECT_FALSE(bootstrap.barrier(2, world(4), in_seconds(60)).ok());
  });
}

TEST(BootstrapAbort, CanBeCalledOverAndOverByEveryone) {
  for (int round = 0; round < 20; round++) {
    const auto coordinator = start_coordinator();
    run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
      std::thread other([&] { bootstrap.abort("one"); });
      (void)bootstrap.barrier(1, world(3), in_seconds(30));
      bootstrap.abort("two");
      other.join();
      EXPECT_FALSE(bootstrap.health().ok());
    });
  }
}

// As a rank does that aborts, leaves, and takes the coordinator with it.
TEST(BootstrapAbort, IsHeardByTheOthersEvenIfTheCoordinatorGoesAtOnce) {
  for (int round = 0; round < 100 && !testing::Test::HasFailure(); round++) {
    auto coordinator = start_coordinator();
    const UniqueId id = coordinator->id();
    std::vector<std::thread> others;
    for (int rank = 1; rank < 3; rank++) {
      others.emplace_back([&id, rank] {
        const auto bootstrap = Bootstrap::connect(id, rank, 3, in_seconds(30));
        ASSERT_TRUE(bootstrap.ok() && bootstrap.value()->barrier(1, world(3), in_seconds(30)).ok());
        const Status status = bootstrap.value()->barrier(2, world(3), in_seconds(30));
        EXPECT_NE(status.message().find("rank 0 aborted the job: early"), std::string::npos) << status.message();
      });
    }
    {
      const auto bootstrap = Bootstrap::connect(id, 0, 3, in_seconds(30));
      EXPECT_TRUE(bootstrap.ok() && bootstrap.value()->barrier(1, world(3), in_seconds(30)).ok());
      if (bootstrap.ok()) bootstrap.value()->abort("early");
    }
    coordinator.reset();
    for (std::thread& other : others) other.join();
  }
}

TEST(BootstrapAbort, ReachesHandlersThatWereSetAfterwards) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 2, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 0) return bootstrap.abort("early");
    ASSERT_TRUE(eventually([&] { return !bootstrap.health().ok(); }));
    std::atomic<int> num_events{0};
    bootstrap.set_event_handler([&](const BootstrapEvent& event) {
      if (event.kind == BootstrapEvent::Kind::kAborted && event.rank == 0) num_events.fetch_add(1);
    });
    EXPECT_TRUE(eventually([&] { return num_events.load() == 1; }));
    bootstrap.set_event_handler(nullptr);
  });
}

}  // namespace
}  // namespace switchyard::test
