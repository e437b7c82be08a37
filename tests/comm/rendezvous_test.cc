#include "comm/rendezvous.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "boot_support.hpp"
#include "comm/file_store.hpp"

namespace switchyard::test {
namespace {

using Variables = std::map<std::string, std::string>;

EnvGetter getter(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

class RendezvousTest : public testing::Test {
 protected:
  RendezvousTest() {
    char name[] = "/tmp/switchyard_test_XXXXXX";
    folder_ = mkdtemp(name);
    EXPECT_TRUE(crypto_ready().ok());
  }
  ~RendezvousTest() override { std::filesystem::remove_all(folder_); }

  bool folder_is_empty() const { return std::filesystem::is_empty(folder_); }

  // A meeting of threads; returns each rank's result.
  static std::vector<Result<UniqueId>> meet(int num_ranks, Launcher launcher, const Variables& variables,
                                            uint64_t limit_ns = 30 * kSecond) {
    std::vector<Result<UniqueId>> ids(size_t(num_ranks), Status::internal("did not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < num_ranks; rank++) {
      threads.emplace_back([&, rank] {
        const LaunchEnv launch{rank, num_ranks, rank, launcher, "a test"};
        ids[size_t(rank)] = rendezvous(launch, getter(variables), Deadline::after_ns(limit_ns));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ids;
  }

  // All got the same id, and it works.
  static void expect_met(const std::vector<Result<UniqueId>>& ids) {
    for (const auto& id : ids) ASSERT_TRUE(id.ok()) << id.status().to_string();
    for (const auto& id : ids) EXPECT_EQ(id.value(), ids[0].value());
    run_ranks(ids[0].value(), int(ids.size()), [](Bootstrap&) {});
  }

  static uint16_t free_port() {
    TcpEndpoint endpoint = *interface_endpoint("lo");
    EXPECT_TRUE(listen_at(endpoint).ok());
    return endpoint.port;
  }

  std::string folder_;
};

TEST_F(RendezvousTest, TakesTheIdFromTheEnvironment) {
  const auto coordinator = start_coordinator();
  expect_met(meet(2, Launcher::kSwitchyardRun, {{"SWITCHYARD_UNIQUE_ID", coordinator->id().to_hex()}}));
  const LaunchEnv launch{0, 2, 0, Launcher::kSwitchyardRun, "a test"};
  EXPECT_EQ(rendezvous(launch, getter({{"SWITCHYARD_UNIQUE_ID", "00ff"}}), in_seconds(1)).status().code(),
            Code::kInvalidArgument);
}

TEST_F(RendezvousTest, MeetsThroughANamedFileAndLeavesNothing) {
  expect_met(meet(4, Launcher::kSwitchyardRun, {{"SWITCHYARD_STORE", "file://" + folder_ + "/store"}}));
  EXPECT_TRUE(folder_is_empty());
}

TEST_F(RendezvousTest, MeetsAgainAndAgainAtTheSameFile) {
  const Variables variables = {{"SWITCHYARD_STORE", "file://" + folder_ + "/store"}};
  std::vector<std::thread> threads;
  std::vector<std::vector<UniqueId>> ids(3);
  for (int rank = 0; rank < 3; rank++) {
    threads.emplace_back([&, rank] {
      for (int round = 0; round < 5; round++) {
        const auto id =
            rendezvous({rank, 3, rank, Launcher::kSwitchyardRun, "a test"}, getter(variables), in_seconds(30));
        ASSERT_TRUE(id.ok()) << id.status().to_string();
        ids[size_t(rank)].push_back(id.value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_NE(ids[0][0], ids[0][1]);
}

TEST_F(RendezvousTest, OneHostOfEveryLauncherMeetsInThePrivateFolder) {
  const Variables torchrun = {{"XDG_RUNTIME_DIR", folder_},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"LOCAL_WORLD_SIZE", "3"},
                              {"MASTER_ADDR", "somewhere.example"},
                              {"MASTER_PORT", "29500"}};
  const Variables open_mpi = {
      {"XDG_RUNTIME_DIR", folder_}, {"PMIX_NAMESPACE", "12345"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
  const Variables slurm = {
      {"XDG_RUNTIME_DIR", folder_}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NNODES", "1"}};
  expect_met(meet(3, Launcher::kTorchrun, torchrun));
  expect_met(meet(3, Launcher::kOpenMpi, open_mpi));
  expect_met(meet(3, Launcher::kSlurm, slurm));
  EXPECT_TRUE(folder_is_empty());
}

TEST_F(RendezvousTest, TwoJobsInTheSameFolderDoNotMix) {
  std::vector<Result<UniqueId>> first, second;
  const auto variables = [&](const char* job) {
    return Variables{{"XDG_RUNTIME_DIR", folder_}, {"PMIX_NAMESPACE", job}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  };
  std::thread other([&] { first = meet(2, Launcher::kOpenMpi, variables("1")); });
  second = meet(2, Launcher::kOpenMpi, variables("2"));
  other.join();
  expect_met(first);
  expect_met(second);
  EXPECT_NE(first[0].value(), second[0].value());
  EXPECT_TRUE(folder_is_empty());
}

TEST_F(RendezvousTest, FileOfADeadJobIsNotTaken) {
  // The earlier job's coordinator is gone, its file is still there, even with the same identity.
  const std::string path = folder_ + "/store";
  auto dead = start_coordinator();
  auto left_over = PublishedFile::publish(path, std::nullopt, "", dead->id());
  ASSERT_TRUE(left_over.ok());
  dead.reset();
  const Variables variables = {{"SWITCHYARD_STORE", "file://" + path}};
  std::vector<Result<UniqueId>> ids(2, Status::internal("did not run"));
  std::atomic<bool> has_started{false};
  std::thread early([&] {
    const EnvGetter get = getter(variables);
    ids[1] = rendezvous(
        {1, 2, 1, Launcher::kSwitchyardRun, "a test"},
        [&](const char* name) {
          has_started.store(true, std::memory_order_relaxed);
          return get(name);
        },
        in_seconds(30));
  });
  ASSERT_TRUE(eventually([&] { return has_started.load(std::memory_order_relaxed); }));
  ids[0] = rendezvous({0, 2, 0, Launcher::kSwitchyardRun, "a test"}, getter(variables), in_seconds(30));
  early.join();
  expect_met(ids);
}

TEST_F(RendezvousTest, FileOfAnotherJobIsNotTaken) {
  const std::string path = folder_ + "/store";
  const auto other = start_coordinator();
  const auto published = PublishedFile::publish(path, std::nullopt, "SLURM_JOB_ID=6\n", other->id());
  ASSERT_TRUE(published.ok());
  EXPECT_TRUE(read_published(path, "SLURM_JOB_ID=6\n").value().has_value());
  EXPECT_FALSE(read_published(path, "SLURM_JOB_ID=7\n").value().has_value());
}

TEST_F(RendezvousTest, RefusesFilesThatOthersCouldHaveWrittenOrRead) {
  const std::string path = folder_ + "/store";
  const auto coordinator = start_coordinator();
  const auto published = PublishedFile::publish(path, std::nullopt, "", coordinator->id());
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(read_published(path, "").status().code(), Code::kInvalidUsage);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(symlink(path.c_str(), (folder_ + "/link").c_str()), 0);
  EXPECT_FALSE(read_published(folder_ + "/link", "").ok());
  EXPECT_FALSE(read_published(folder_, "").ok());
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_EQ(read_published(path, "").status().code(), Code::kInvalidUsage);
  }
}

TEST_F(RendezvousTest, RefusesAPrivateFolderThatIsOpenToOthers) {
  ASSERT_EQ(mkdir((folder_ + "/switchyard").c_str(), 0755), 0);
  const auto ids =
      meet(2, Launcher::kOpenMpi,
           {{"XDG_RUNTIME_DIR", folder_}, {"PMIX_NAMESPACE", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}, kSecond / 2);
  EXPECT_EQ(ids[0].status().code(), Code::kInvalidUsage);
  EXPECT_EQ(ids[1].status().code(), Code::kRemoteError);
}

TEST_F(RendezvousTest, TruncatedOrChangedFilesAreNoIds) {
  const std::string path = folder_ + "/store";
  const auto coordinator = start_coordinator();
  const auto published = PublishedFile::publish(path, std::nullopt, "", coordinator->id());
  std::ostringstream copy;
  copy << std::ifstream(path).rdbuf();
  const std::string whole = copy.str();
  ASSERT_GT(whole.size(), 256u);
  for (size_t i = 0; i < whole.size(); i += 3) {
    std::string changed = whole;
    changed[i] ^= 1;
    std::ofstream(path, std::ios::trunc) << changed;
    EXPECT_FALSE(read_published(path, "").value().has_value()) << "byte " << i;
    std::ofstream(path, std::ios::trunc) << whole.substr(0, i);
    EXPECT_FALSE(read_published(path, "").value().has_value()) << "length " << i;
  }
  std::ofstream(path, std::ios::trunc) << whole;
  EXPECT_EQ(read_published(path, "").value(), coordinator->id());
}

TEST_F(RendezvousTest, MeetsAtALoopbackPortWithoutAKeyTwice) {
  const Variables variables = {{"SWITCHYARD_STORE", text("tcp://127.0.0.1:", free_port())}};
  expect_met(meet(3, Launcher::kSwitchyardRun, variables));
  expect_met(meet(3, Launcher::kSwitchyardRun, variables));
}

TEST_F(RendezvousTest, TorchrunOnSeveralHostsMeetsBesideTheMasterPort) {
  const Variables variables = {{"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", text(free_port() - 1)},
                               {"LOCAL_WORLD_SIZE", "1"},
                               {"SWITCHYARD_JOB_KEY", "a key of this very job"}};
  expect_met(meet(2, Launcher::kTorchrun, variables));
}

TEST_F(RendezvousTest, RanksWithAnotherJobKeyStayOutside) {
  const std::string store = text("tcp://127.0.0.1:", free_port());
  const auto variables = [&](const char* key) {
    return Variables{{"SWITCHYARD_STORE", store}, {"SWITCHYARD_JOB_KEY", key}};
  };
  const auto come_as = [&](int rank, const char* key, Deadline deadline) {
    return rendezvous({rank, 2, rank, Launcher::kSwitchyardRun, "a test"}, getter(variables(key)), deadline);
  };
  std::vector<Result<UniqueId>> inside(2, Status::internal("did not run"));
  std::thread rank_0([&] { inside[0] = come_as(0, "the job key of these two", in_seconds(30)); });
  const auto outsider = come_as(1, "quite another job key", Deadline::after_ns(500 * kMillisecond));
  EXPECT_EQ(outsider.status().code(), Code::kRemoteError);
  inside[1] = come_as(1, "the job key of these two", in_seconds(30));
  rank_0.join();
  expect_met(inside);
}

TEST_F(RendezvousTest, BeyondLoopbackAKeyIsNeeded) {
  const LaunchEnv launch{1, 2, 1, Launcher::kSwitchyardRun, "a test"};
  const auto status_of = [&](const Variables& variables) {
    return rendezvous(launch, getter(variables), in_seconds(1)).status();
  };
  const Status none = status_of({{"SWITCHYARD_STORE", "tcp://192.0.2.1:4000"}});
  EXPECT_EQ(none.code(), Code::kInvalidUsage);
  EXPECT_NE(none.message().find("SWITCHYARD_JOB_KEY"), std::string::npos);
  EXPECT_EQ(status_of({{"SWITCHYARD_STORE", "tcp://192.0.2.1:4000"}, {"SWITCHYARD_JOB_KEY", "short"}}).code(),
            Code::kInvalidArgument);
}

TEST_F(RendezvousTest, RankThatNeverComesIsNamedAtTheDeadline) {
  const Variables variables = {{"SWITCHYARD_STORE", "file://" + folder_ + "/store"}};
  const uint64_t begin_ns = now_ns();
  const auto id = rendezvous({0, 2, 0, Launcher::kSwitchyardRun, "a test"}, getter(variables),
                             Deadline::after_ns(300 * kMillisecond));
  EXPECT_NE(id.status().message().find("missing: rank 1"), std::string::npos) << id.status().message();
  EXPECT_LT(now_ns() - begin_ns, 2 * kSecond);
  EXPECT_TRUE(folder_is_empty());
  const auto late = rendezvous({1, 2, 1, Launcher::kSwitchyardRun, "a test"}, getter(variables),
                               Deadline::after_ns(100 * kMillisecond));
  EXPECT_NE(late.status().message().find("rank 0 has not opened"), std::string::npos) << late.status().message();
}

TEST_F(RendezvousTest, SaysWhatToSetWhenHostsCannotFindEachOther) {
  const auto status_of = [](Launcher launcher, const Variables& variables) {
    return rendezvous({0, 4, 0, launcher, "a launcher"}, getter(variables), in_seconds(1)).status();
  };
  for (const Status& status :
       {status_of(Launcher::kSwitchyardRun, {}),
        status_of(Launcher::kOpenMpi, {{"PMIX_NAMESPACE", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
        status_of(Launcher::kSlurm, {{"SLURM_JOB_ID", "1"}, {"SLURM_NNODES", "2"}}),
        status_of(Launcher::kTorchrun, {{"MASTER_ADDR", "127.0.0.1"}})}) {
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_NE(status.message().find("SWITCHYARD_STORE=tcp://"), std::string::npos) << status.message();
  }
}

TEST(StoreSpec, ParsesFilesAndAddresses) {
  EXPECT_EQ(parse_store("file:///a/b")->path, "/a/b");
  EXPECT_EQ(parse_store("tcp://host.example:80")->host, "host.example");
  EXPECT_EQ(parse_store("tcp://[::1]:65535")->host, "::1");
  EXPECT_EQ(parse_store("tcp://[::1]:65535")->port, 65535);
}

TEST(StoreSpec, RefusesEverythingElse) {
  for (const char* bad :
       {"", "file://", "file://relative", "file:///folder/", "tcp://", "tcp://host", "tcp://:80", "tcp://host:0",
        "tcp://host:65536", "tcp://host:8x", "tcp://::1:80", "tcp://[]:80", "http://host:80", "/tmp/x"}) {
    EXPECT_EQ(parse_store(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace switchyard::test
