#include "comm/launch_env.hpp"

#include <gtest/gtest.h>

#include <map>

namespace switchyard {
namespace {

using Variables = std::map<std::string, std::string>;

Result<LaunchEnv> read(const Variables& variables) {
  return read_launch_env([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  });
}

const Variables kSwitchyard = {{"SWITCHYARD_RANK", "1"}, {"SWITCHYARD_NUM_RANKS", "4"}, {"SWITCHYARD_LOCAL_RANK", "0"}};
const Variables kTorchrun = {{"RANK", "2"}, {"WORLD_SIZE", "5"}, {"LOCAL_RANK", "1"}};
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "6"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "4"}, {"SLURM_NTASKS", "7"}, {"SLURM_LOCALID", "3"}};

Variables merged(Variables variables, const Variables& more) {
  variables.insert(more.begin(), more.end());
  return variables;
}

TEST(LaunchEnv, ReadsEveryLauncher) {
  const auto expect = [](const Variables& variables, Launcher launcher, int rank, int num_ranks, int local_rank) {
    const auto launch = read(variables);
    ASSERT_TRUE(launch.ok()) << launch.status().to_string();
    EXPECT_EQ(launch->launcher, launcher);
    EXPECT_EQ(launch->rank, rank);
    EXPECT_EQ(launch->num_ranks, num_ranks);
    EXPECT_EQ(launch->local_rank, local_rank);
    EXPECT_FALSE(launch->origin.empty());
  };
  expect(kSwitchyard, Launcher::kSwitchyardRun, 1, 4, 0);
  expect(kTorchrun, Launcher::kTorchrun, 2, 5, 1);
  expect(kOpenMpi, Launcher::kOpenMpi, 3, 6, 2);
  expect(kSlurm, Launcher::kSlurm, 4, 7, 3);
}

TEST(LaunchEnv, PrefersTheInnerLauncher) {
  Variables all = kSlurm;
  all = merged(all, kOpenMpi);
  EXPECT_EQ(read(all)->launcher, Launcher::kOpenMpi);
  all = merged(all, kTorchrun);
  EXPECT_EQ(read(all)->launcher, Launcher::kTorchrun);
  all = merged(all, kSwitchyard);
  EXPECT_EQ(read(all)->launcher, Launcher::kSwitchyardRun);
}

TEST(LaunchEnv, NeedsNoLocalRank) {
  const auto launch = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->local_rank, -1);
}

TEST(LaunchEnv, NamesTheMissingHalf) {
  const Status status = read({{"WORLD_SIZE", "4"}, {"RANK", ""}}).status();
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_NE(status.message().find("RANK is not"), std::string::npos) << status.message();
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}}).status().code(), Code::kInvalidUsage);
}

TEST(LaunchEnv, SaysHowToStartIfNothingIsSet) {
  const Status status = read({}).status();
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_NE(status.message().find("switchyard run"), std::string::npos);
}

TEST(LaunchEnv, RefusesNumbersThatCannotBe) {
  for (const auto& [rank, num_ranks] : std::vector<std::pair<std::string, std::string>>{{"4", "4"},
                                                                                        {"-1", "4"},
                                                                                        {"0", "0"},
                                                                                        {"0", "5000"},
                                                                                        {"1x", "4"},
                                                                                        {" 1", "4"},
                                                                                        {"1", "4.0"},
                                                                                        {"99999999999999999999", "4"},
                                                                                        {"0x1", "4"}}) {
    const Status status = read({{"RANK", rank}, {"WORLD_SIZE", num_ranks}}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << rank << " of " << num_ranks;
  }
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}).status().code(), Code::kInvalidArgument);
}

TEST(LaunchEnv, ProcessEnvironmentTakesEmptyForUnset) {
  ASSERT_EQ(setenv("SWITCHYARD_TEST_EMPTY", "", 1), 0);
  EXPECT_FALSE(process_environment()("SWITCHYARD_TEST_EMPTY").has_value());
  EXPECT_FALSE(process_environment()("SWITCHYARD_TEST_UNSET").has_value());
  EXPECT_TRUE(process_environment()("PATH").has_value());
}

}  // namespace
}  // namespace switchyard
