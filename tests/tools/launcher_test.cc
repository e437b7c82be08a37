// A program that calls Comm::from_environment(), started by other launchers than `switchyard run`: by a real mpirun,
// and with the variables that torchrun and Slurm set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "tool_process.hpp"

namespace switchyard::tools {
namespace {

using testing::HasSubstr;

constexpr int kNumRanks = 2;

void expect_right(const Captured& captured, const std::string& output_of_rank) {
  EXPECT_EQ(captured.report.exit_code, 0) << captured.report.reason << ":\n" << captured.error << captured.output;
  EXPECT_THAT(captured.output, HasSubstr(output_of_rank));
  EXPECT_THAT(captured.output, HasSubstr(" 0 wrong words"));
}

// Starts the example once a rank, as a launcher does on one machine, with that rank's variables.
void expect_ranks_meet(const std::function<std::vector<std::string>(int rank)>& environment) {
  std::vector<Result<ChildProcess>> ranks;
  for (int rank = 0; rank < kNumRanks; ++rank)
    ranks.push_back(start_program({SWITCHYARD_EXAMPLE_PATH}, environment(rank)));
  for (int rank = 0; rank < kNumRanks; ++rank) {
    expect_right(finish(std::move(ranks[size_t(rank)])), text("rank ", rank, " of ", kNumRanks));
  }
}

TEST(Mpirun, StartsRanksThatMeet) {
  const auto mpirun = find_program("mpirun", getenv("PATH"));
  if (!mpirun.ok()) GTEST_SKIP() << "no Open MPI here: " << mpirun.status().to_string();
  const Captured job = finish(start_program({mpirun.value(), "--allow-run-as-root", "--oversubscribe", "-n",
                                             std::to_string(kNumRanks), SWITCHYARD_EXAMPLE_PATH},
                                            {}));
  for (int rank = 0; rank < kNumRanks; ++rank) expect_right(job, text("rank ", rank, " of ", kNumRanks));
  EXPECT_EQ(num_occurrences(job.output, " 0 wrong words"), size_t(kNumRanks));
}

// Several hosts, for all that the ranks know: without LOCAL_WORLD_SIZE they meet at rank 0's address.
TEST(Launcher, TorchrunsVariablesLetRanksMeetAtItsAddress) {
  const int port = free_port() - 1;  // torchrun's own store has MASTER_PORT; ours is the next
  expect_ranks_meet([&](int rank) {
    return std::vector<std::string>{text("RANK=", rank), text("WORLD_SIZE=", kNumRanks), text("LOCAL_RANK=", rank),
                                    "MASTER_ADDR=127.0.0.1", text("MASTER_PORT=", port)};
  });
}

TEST(Launcher, TorchrunsVariablesLetRanksOfOneHostMeetInAFile) {
  expect_ranks_meet([](int rank) {
    return std::vector<std::string>{text("RANK=", rank),
                                    text("WORLD_SIZE=", kNumRanks),
                                    text("LOCAL_RANK=", rank),
                                    text("LOCAL_WORLD_SIZE=", kNumRanks),
                                    text("TORCHELASTIC_RUN_ID=launcher_test_", getpid()),
                                    "MASTER_ADDR=127.0.0.1",
                                    "MASTER_PORT=29500"};
  });
}

TEST(Launcher, SlurmsVariablesLetRanksOfOneHostMeet) {
  expect_ranks_meet([](int rank) {
    return std::vector<std::string>{text("SLURM_PROCID=", rank),
                                    text("SLURM_NTASKS=", kNumRanks),
                                    text("SLURM_LOCALID=", rank),
                                    text("SLURM_JOB_ID=", getpid()),
                                    "SLURM_STEP_ID=0",
                                    "SLURM_STEP_NUM_NODES=1"};
  });
}

}  // namespace
}  // namespace switchyard::tools
