#include <atomic>
#include <barrier>
#include <mutex>

#include "boot_support.hpp"

namespace switchyard::test {
namespace {

class BootstrapRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, BootstrapRanks, testing::Values(1, 2, 3, 8, 16));

TEST_P(BootstrapRanks, ExchangeBlobsOfDifferentSizes) {
  const int num_ranks = GetParam();
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), num_ranks, [&](Bootstrap& bootstrap) {
    const auto members = world(num_ranks);
    for (int round = 0; round < 20; round++) {
      const std::string mine(size_t(bootstrap.rank() * 100), char('a' + round));
      const auto blobs = bootstrap.exchange(1, members, bytes_of(mine), in_seconds(30));
      ASSERT_TRUE(blobs.ok()) << blobs.status().to_string();
      ASSERT_EQ(blobs.value().size(), size_t(num_ranks));
      for (int rank = 0; rank < num_ranks; rank++) {
        EXPECT_EQ(blobs.value()[size_t(rank)], bytes_of(std::string(size_t(rank * 100), char('a' + round))));
      }
    }
  });
  EXPECT_TRUE(eventually([&] { return coordinator->ended(); })) << "it ends by itself when all ranks have left";
  EXPECT_EQ(coordinator->counters().num_joined, uint64_t(num_ranks));
  EXPECT_EQ(coordinator->counters().num_dropped_peers, 0u);
}

TEST_P(BootstrapRanks, NobodyLeavesABarrierBeforeEveryoneCame) {
  const int num_ranks = GetParam();
  const auto coordinator = start_coordinator();
  std::atomic<int> num_arrived{0};
  run_ranks(coordinator->id(), num_ranks, [&](Bootstrap& bootstrap) {
    for (int round = 1; round <= 10; round++) {
      num_arrived.fetch_add(1, std::memory_order_relaxed);
      ASSERT_TRUE(bootstrap.barrier(2, world(num_ranks), in_seconds(30)).ok());
      EXPECT_GE(num_arrived.load(std::memory_order_relaxed), round * num_ranks);
    }
  });
}

TEST(Bootstrap, ExchangesLargestBlobs) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
    const std::vector<std::byte> mine(kMaxBlobBytes, std::byte(bootstrap.rank()));
    const auto blobs = bootstrap.exchange(1, world(3), mine, in_seconds(30));
    ASSERT_TRUE(blobs.ok()) << blobs.status().to_string();
    for (size_t rank = 0; rank < 3; rank++) {
      EXPECT_EQ(blobs.value()[rank], std::vector<std::byte>(kMaxBlobBytes, std::byte(rank)));
    }
    EXPECT_EQ(bootstrap.exchange(1, world(3), std::vector<std::byte>(kMaxBlobBytes + 1), in_seconds(1)).status().code(),
              Code::kInvalidArgument);
  });
}

TEST(Bootstrap, OrdersResultsByTheListOfMembers) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 4, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 1) return;
    const std::vector<int> members = {3, 0, 2};
    const auto values = bootstrap.exchange_values<int>(9, members, bootstrap.rank() * 10, in_seconds(30));
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    EXPECT_EQ(values.value(), (std::vector<int>{30, 0, 20}));
  });
}

TEST(Bootstrap, DisjointGroupsExchangeAtTheSameTimeAtTheirOwnPace) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 8, [](Bootstrap& bootstrap) {
    const int colour = bootstrap.rank() % 3;
    std::vector<int> members;
    for (int rank = colour; rank < 8; rank += 3) members.push_back(rank);
    for (int round = 0; round < 10 * (colour + 1); round++) {
      const auto values = bootstrap.exchange_values<int>(uint64_t(100 + colour), members, round, in_seconds(30));
      ASSERT_TRUE(values.ok()) << values.status().to_string();
      EXPECT_EQ(values.value(), std::vector<int>(members.size(), round));
    }
    ASSERT_TRUE(bootstrap.barrier(1, world(8), in_seconds(30)).ok());
  });
}

TEST(Bootstrap, ThreadsOfOneRankExchangeForDifferentCommunicatorsAtOnce) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
    std::vector<std::thread> threads;
    for (uint64_t comm_id = 0; comm_id < 4; comm_id++) {
      threads.emplace_back([&bootstrap, comm_id] {
        for (uint64_t round = 0; round < 50; round++) {
          const auto values = bootstrap.exchange_values(comm_id, world(3), comm_id * 1000 + round, in_seconds(30));
          ASSERT_TRUE(values.ok()) << values.status().to_string();
          EXPECT_EQ(values.value(), std::vector<uint64_t>(3, comm_id * 1000 + round));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Bootstrap, RefusesMembersThatCannotBe) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 2, [](Bootstrap& bootstrap) {
    const auto code_of = [&](std::vector<int> members) { return bootstrap.barrier(1, members, in_seconds(5)).code(); };
    EXPECT_EQ(code_of({}), Code::kInvalidArgument);
    EXPECT_EQ(code_of({0, 1, 2}), Code::kInvalidArgument);
    EXPECT_EQ(code_of({0, 1, 0}), Code::kInvalidArgument);
    EXPECT_EQ(code_of({1 - bootstrap.rank()}), Code::kInvalidArgument);
    EXPECT_EQ(code_of({0, 1}), Code::kOk);
  });
}

TEST(Bootstrap, TellsEveryoneWhenRanksDisagreeAboutTheMembers) {
  const auto coordinator = start_coordinator();
  std::barrier everyone_was_told(3);  // a rank that leaves early would be what a late one hears of first
  run_ranks(coordinator->id(), 3, [&](Bootstrap& bootstrap) {
    const std::vector<int> members = bootstrap.rank() == 2 ? std::vector<int>{0, 2, 1} : world(3);
    const Status status = bootstrap.barrier(1, members, in_seconds(30));
    everyone_was_told.arrive_and_wait();
    EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.to_string();
    EXPECT_NE(status.message().find("disagree"), std::string::npos);
  });
}

TEST(Bootstrap, NamesTheSenderOfAValueOfAnotherSize) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 2, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 1) {
      (void)bootstrap.exchange_values<char>(1, world(2), 'x', in_seconds(30)).ok();
      return;
    }
    const auto values = bootstrap.exchange_values<int>(1, world(2), 5, in_seconds(30));
    EXPECT_NE(values.status().message().find("rank 1 sent 1 bytes"), std::string::npos) << values.status().message();
  });
}

TEST(Bootstrap, ListsMayDifferInLength) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
    const std::vector<int> mine(size_t(bootstrap.rank()), bootstrap.rank());
    const auto lists = bootstrap.exchange_lists<int>(1, world(3), mine, in_seconds(30));
    ASSERT_TRUE(lists.ok()) << lists.status().to_string();
    EXPECT_EQ(lists.value(), (std::vector<std::vector<int>>{{}, {1}, {2, 2}}));
  });
}

TEST(Bootstrap, NamesTheSenderOfAListOfOtherThings) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 2, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 1) {
      (void)bootstrap.exchange_values<char>(1, world(2), 'x', in_seconds(30)).ok();
      return;
    }
    const auto lists = bootstrap.exchange_lists<int>(1, world(2), std::vector<int>{5}, in_seconds(30));
    EXPECT_NE(lists.status().message().find("rank 1 sent 1 bytes"), std::string::npos) << lists.status().message();
  });
}

TEST(Bootstrap, RefusesARankThatIsTakenAndTheJobStillForms) {
  const auto coordinator = start_coordinator();
  const UniqueId id = coordinator->id();
  std::vector<std::thread> threads;
  const auto join_as = [&](int rank) {
    threads.emplace_back([&id, rank] {
      const auto bootstrap = Bootstrap::connect(id, rank, 3, in_seconds(30));
      EXPECT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
    });
  };
  join_as(0);
  join_as(1);
  ASSERT_TRUE(eventually([&] { return coordinator->counters().num_joined == 2; }));
  const auto second = Bootstrap::connect(id, 1, 3, in_seconds(30));
  EXPECT_EQ(second.status().code(), Code::kInvalidUsage);
  EXPECT_NE(second.status().message().find("rank 1 is already taken"), std::string::npos) << second.status().message();
  join_as(2);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(coordinator->counters().num_refused, 1u);
}

TEST(Bootstrap, FailsEverywhereIfRanksDisagreeAboutTheirNumber) {
  const auto coordinator = start_coordinator();
  std::vector<std::thread> threads;
  const uint64_t begin_ns = now_ns();
  for (const auto& [rank, num_ranks] : {std::pair(0, 3), std::pair(1, 3), std::pair(2, 4)}) {
    threads.emplace_back([&coordinator, rank = rank, num_ranks = num_ranks] {
      const auto bootstrap = Bootstrap::connect(coordinator->id(), rank, num_ranks, in_seconds(30));
      EXPECT_EQ(bootstrap.status().code(), Code::kInvalidArgument);
      EXPECT_NE(bootstrap.status().message().find("all must say the same"), std::string::npos)
          << bootstrap.status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(now_ns() - begin_ns, 10 * kSecond) << "nobody waits for the deadline";
}

TEST(Bootstrap, RefusesImpossibleRanksAndBadIds) {
  const auto coordinator = start_coordinator();
  const auto code_of = [&](int rank, int num_ranks) {
    return Bootstrap::connect(coordinator->id(), rank, num_ranks, in_seconds(1)).status().code();
  };
  EXPECT_EQ(code_of(0, 0), Code::kInvalidArgument);
  EXPECT_EQ(code_of(2, 2), Code::kInvalidArgument);
  EXPECT_EQ(code_of(-1, 2), Code::kInvalidArgument);
  EXPECT_EQ(code_of(0, kMaxBootstrapRanks + 1), Code::kInvalidArgument);
  EXPECT_EQ(Bootstrap::connect(UniqueId{}, 0, 1, in_seconds(1)).status().code(), Code::kInvalidArgument);
}

// What one rank has heard of networks.
class NetworkNews {
 public:
  explicit NetworkNews(Bootstrap& bootstrap) : bootstrap_(bootstrap) {
    bootstrap_.set_event_handler([this](const BootstrapEvent& event) {
      const std::lock_guard lock(mutex_);
      if (event.concerns_network()) events_.push_back(event);
    });
    meet();  // events of networks are not kept for who looks later
  }
  ~NetworkNews() { bootstrap_.set_event_handler(nullptr); }
  void meet() {
    EXPECT_TRUE(bootstrap_.barrier(1, world(bootstrap_.num_ranks()), in_seconds(30)).ok()) << "all goes on";
  }
  std::vector<BootstrapEvent> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  size_t size() const { return events().size(); }
  bool await(size_t num_events) const {
    return eventually([&] { return size() == num_events; });
  }

 private:
  Bootstrap& bootstrap_;
  mutable std::mutex mutex_;
  std::vector<BootstrapEvent> events_;
};

// Rank 0 says that a network does not reach rank 2.
TEST(Bootstrap, EverybodyHearsOfTheFirstLossOfANetworkOnceTheOtherEndHasConfirmedIt) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
    NetworkNews news(bootstrap);
    if (bootstrap.rank() == 1) bootstrap.confirm_unreachable(77, 0, "what nobody has told of");
    if (bootstrap.rank() == 0) {
      for (int i = 0; i < 1000; ++i) bootstrap.tell_unreachable(77, 2, "connection reset");
    }
    if (bootstrap.rank() == 2) {
      ASSERT_TRUE(news.await(1));
    }
    news.meet();
    EXPECT_EQ(news.size(), bootstrap.rank() == 2 ? 1u : 0u) << "who has left does not confirm, and nobody hears";
    news.meet();
    if (bootstrap.rank() == 2) bootstrap.confirm_unreachable(77, 0, "connection reset");
    EXPECT_TRUE(news.await(bootstrap.rank() == 2 ? 2 : 1));
    for (const BootstrapEvent& event : news.events()) {
      EXPECT_EQ(event.kind, BootstrapEvent::Kind::kUnreachable);
      EXPECT_EQ(event.rank, 0);
      EXPECT_EQ(event.peer, 2);
      EXPECT_EQ(event.comm_id, 77u);
      EXPECT_EQ(event.message, "connection reset");
    }
    news.meet();
    if (bootstrap.rank() == 2) bootstrap.confirm_unreachable(77, 0, "once more");
    if (bootstrap.rank() == 2) bootstrap.confirm_unreachable(77, 1, "what nobody has told of");
    if (bootstrap.rank() == 0) bootstrap.tell_unreachable(77, 0, "itself");
    news.meet();
    EXPECT_EQ(news.size(), bootstrap.rank() == 2 ? 2u : 1u);
  });
}

TEST(Bootstrap, WhoTellsOfTheSameLossConfirmsIt) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
    NetworkNews news(bootstrap);
    if (bootstrap.rank() == 0) bootstrap.tell_unreachable(79, 1, "seen at both ends");
    if (bootstrap.rank() == 1) bootstrap.tell_unreachable(79, 0, "seen at both ends");
    ASSERT_TRUE(eventually([&] { return news.size() > 0; }));
    news.meet();
    EXPECT_EQ(news.events().back().comm_id, 79u);
  });
}

// All have heard that something is lost; of what is lost later only the two whom it joins need know, and both do.
TEST(Bootstrap, OfLaterLossesOfANetworkBothEndsHear) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 4, [](Bootstrap& bootstrap) {
    NetworkNews news(bootstrap);
    const int rank = bootstrap.rank();
    const auto lose = [&](int from, int to) {
      const size_t before = news.size();
      news.meet();
      if (rank == from) bootstrap.tell_unreachable(77, to, "connection reset");
      if (rank == to) {
        EXPECT_TRUE(news.await(before + 1)) << "is asked";
        bootstrap.confirm_unreachable(77, from, "connection reset");
      }
      news.meet();
      return news.size() - before;
    };
    EXPECT_EQ(lose(0, 1), rank == 1 ? 2u : 1u);
    EXPECT_EQ(lose(2, 3), rank == 3 ? 2u : rank == 2 ? 1u : 0u);
    EXPECT_EQ(lose(0, 3), rank == 3 ? 2u : rank == 0 ? 1u : 0u);
  });
}

TEST(Bootstrap, EverybodyHearsWhoLeavesANetwork) {
  const auto coordinator = start_coordinator();
  run_ranks(coordinator->id(), 3, [](Bootstrap& bootstrap) {
    NetworkNews news(bootstrap);
    if (bootstrap.rank() == 1) bootstrap.tell_left_network(78);
    ASSERT_TRUE(news.await(1));
    EXPECT_EQ(news.events()[0].kind, BootstrapEvent::Kind::kLeftNetwork);
    EXPECT_EQ(news.events()[0].rank, 1);
    EXPECT_EQ(news.events()[0].comm_id, 78u);
    news.meet();
  });
}

TEST(Bootstrap, RegistryKeepsCoordinatorsOfIdsAlive) {
  const auto first = create_unique_id(), second = create_unique_id();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first.value(), second.value());
  run_ranks(first.value(), 2,
            [](Bootstrap& bootstrap) { EXPECT_TRUE(bootstrap.barrier(1, world(2), in_seconds(30)).ok()); });
  run_ranks(second.value(), 2,
            [](Bootstrap& bootstrap) { EXPECT_TRUE(bootstrap.barrier(1, world(2), in_seconds(30)).ok()); });
}

TEST(Coordinator, EndsByItselfIfNobodyComes) {
  CoordinatorOptions options;
  options.startup_ns = 100 * kMillisecond;
  const auto coordinator = start_coordinator(options);
  EXPECT_TRUE(eventually([&] { return coordinator->ended(); }));
}

TEST(Coordinator, ListensOnLoopbackUnlessTold) {
  const auto coordinator = start_coordinator();
  EXPECT_TRUE(coordinator->id().endpoint().is_loopback());
  CoordinatorOptions wildcard;
  wildcard.endpoint = TcpEndpoint{};
  EXPECT_EQ(Coordinator::start(wildcard).status().code(), Code::kInvalidArgument);
}

TEST(Coordinator, NamesTheInterfacesOfThisHostIfOneIsUnknown) {
  const auto endpoint = interface_endpoint("nosuchinterface0");
  EXPECT_EQ(endpoint.status().code(), Code::kInvalidArgument);
  EXPECT_NE(endpoint.status().message().find("lo"), std::string::npos) << endpoint.status().message();
}

}  // namespace
}  // namespace switchyard::test
