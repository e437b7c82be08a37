// When handles, groups and communicators end: twice, too early, by an abort, with calls and operations under way.
#include <dirent.h>

#include "base/failpoint.hpp"
#include "capi/ep_rank.hpp"

namespace switchyard::testing {
namespace {

using oracle::Layout;

const Scenario& one_rank_scenario() {
  static const Scenario scenario = full_scenario(40, small_shape(1, Layout::kExpertMajor));
  return scenario;
}

ncclComm_t join_alone() {
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  expect_success(ncclCommInitRank(&comm, 1, id, 0));
  return comm;
}

void expect_refused(ncclResult_t result, ncclResult_t expected, const std::string& word) {
  EXPECT_EQ(result, expected);
  const std::string message = ncclGetLastError(nullptr);
  EXPECT_NE(message.find(word), std::string::npos) << "no \"" << word << "\" in: " << message;
}

std::string address_text(const void* address) {
  std::ostringstream out;
  out << address;
  return out.str();
}

int count_entries(const char* folder) {
  DIR* const dir = opendir(folder);
  int num_entries = 0;
  while (readdir(dir) != nullptr) ++num_entries;
  closedir(dir);
  return num_entries;
}

struct Holdings {
  int num_descriptors = count_entries("/proc/self/fd");
  int num_threads = count_entries("/proc/self/task");
};

// Runs `cycle` again and again; whatever it leaves behind each time shows.
void expect_nothing_left(const std::function<void()>& cycle) {
  constexpr int kNumCycles = 20;
  cycle();
  cycle();
  const Holdings before;
  for (int i = 0; i < kNumCycles; ++i) cycle();
  const Holdings after;
  // The meeting point of the last id ends a moment after its ranks have left; it is not one a cycle.
  EXPECT_LT(after.num_descriptors, before.num_descriptors + kNumCycles);
  EXPECT_LT(after.num_threads, before.num_threads + kNumCycles);
}

// ---- Twice ----

TEST(Lifetime, AHandleIsDestroyedOnce) {
  const CommRanks ranks(1);
  const GroupOwner group = make_group(ranks.comm(0), group_config_for(one_rank_scenario().c));
  EpRank ep(one_rank_scenario(), ranks.comm(0), 0);
  const ncclEpHandle_t handle = ep.open(group.get()).release();
  expect_success(ncclEpHandleDestroy(handle));
  expect_refused(ncclEpHandleDestroy(handle), ncclInvalidArgument, "not alive");
  expect_refused(ncclEpUpdateHandle(handle, ep.topk_idx.get(), nullptr, nullptr), ncclInvalidArgument, "not alive");
  expect_refused(DispatchCall(ep, handle, nullptr).issue(), ncclInvalidArgument, "not alive");
  expect_refused(CombineCall(ep, handle, nullptr).issue(), ncclInvalidArgument, "not alive");
  expect_refused(ncclEpComplete(handle, nullptr, nullptr), ncclInvalidArgument, "not alive");
}

TEST(Lifetime, AGroupIsDestroyedOnce) {
  const CommRanks ranks(1);
  const ncclEpGroup_t group = make_group(ranks.comm(0), group_config_for(one_rank_scenario().c)).release();
  expect_success(ncclEpGroupDestroy(group));
  expect_refused(ncclEpGroupDestroy(group), ncclInvalidArgument, "not alive");
  ncclEpHandle_t handle = nullptr;
  expect_refused(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_EXPERT_MAJOR, nullptr, 2, nullptr),
                 ncclInvalidArgument, "not alive");
  expect_refused(ncclEpErrorClear(group), ncclInvalidArgument, "not alive");
}

TEST(Lifetime, ACommunicatorIsDestroyedOnce) {
  const ncclComm_t comm = join_alone();
  expect_success(ncclCommDestroy(comm));
  expect_refused(ncclCommDestroy(comm), ncclInvalidArgument, "not alive");
  expect_refused(ncclCommAbort(comm), ncclInvalidArgument, "not alive");
  int num_ranks = 0;
  expect_refused(ncclCommCount(comm, &num_ranks), ncclInvalidArgument, "not alive");
  expect_refused(ncclAllReduce(&num_ranks, &num_ranks, 1, ncclInt32, ncclSum, comm, nullptr), ncclInvalidArgument,
                 "not alive");
  ncclEpGroup_t group = nullptr;
  const ncclEpGroupConfig_t config = group_config_for(one_rank_scenario().c);
  expect_refused(ncclEpCreateGroup(&group, comm, &config), ncclInvalidArgument, "not alive");
}

// A handle that was found alive is looked up no more until one is destroyed, wherever that happens.
TEST(Lifetime, AHandleThatAnotherThreadDestroyedIsNotAlive) {
  const CommRanks ranks(1);
  const GroupOwner group = make_group(ranks.comm(0), group_config_for(one_rank_scenario().c));
  EpRank ep(one_rank_scenario(), ranks.comm(0), 0);
  const ncclEpHandle_t handle = ep.open(group.get()).release();
  EXPECT_EQ(run_round_trip(ep, handle, nullptr), "");
  std::thread([&] { expect_success(ncclEpHandleDestroy(handle)); }).join();
  expect_refused(DispatchCall(ep, handle, nullptr).issue(), ncclInvalidArgument, "not alive");
}

// ---- Too early ----

TEST(Lifetime, ACommunicatorOutlivesItsGroups) {
  const CommRanks ranks(1);
  const GroupOwner group = make_group(ranks.comm(0), group_config_for(one_rank_scenario().c));
  expect_refused(ncclCommDestroy(ranks.comm(0)), ncclInvalidUsage, address_text(group.get()));
  EpRank ep(one_rank_scenario(), ranks.comm(0), 0);
  EXPECT_EQ(run_round_trip(ep, ep.open(group.get()).get(), nullptr), "") << "nothing was destroyed";
}

// ---- By an abort ----

TEST(Lifetime, AbortEndsACommunicator) {
  const ncclComm_t comm = join_alone();
  expect_success(ncclCommAbort(comm));
  expect_refused(ncclCommAbort(comm), ncclInvalidArgument, "not alive");
  expect_refused(ncclCommDestroy(comm), ncclInvalidArgument, "not alive");
}

TEST(Lifetime, AbortLeavesNeitherDescriptorsNorThreads) {
  expect_nothing_left([] { expect_success(ncclCommAbort(join_alone())); });
}

TEST(Lifetime, AGroupIsDestroyedAfterTheAbortOfItsCommunicator) {
  expect_nothing_left([] {
    const ncclComm_t comm = join_alone();
    EpRank ep(one_rank_scenario(), comm, 0);
    const GroupOwner group = make_group(comm, group_config_for(ep.c));
    const HandleOwner handle = ep.open(group.get());
    EXPECT_EQ(run_round_trip(ep, handle.get(), nullptr), "");
    expect_success(ncclCommAbort(comm));
    EXPECT_NE(DispatchCall(ep, handle.get(), nullptr).issue(), ncclSuccess) << "the group can't go on";
  });
}

TEST(Lifetime, ACallUnderWayWhileItsCommunicatorIsAbortedReturnsAnError) {
  CommRanks ranks(2);
  ASSERT_TRUE(set_failpoint("comm.before_split", "delay:50").ok());  // inside the call, long enough for the abort
  std::thread calling([&, comm = ranks.comm(0)] {
    ncclComm_t child = nullptr;
    EXPECT_NE(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclSuccess) << "rank 1 never comes";
    EXPECT_EQ(child, nullptr);
  });
  const auto called = [] {
    const std::vector<std::string> places = failpoint_names();
    return std::find(places.begin(), places.end(), "comm.before_split") != places.end();
  };
  while (!called()) std::this_thread::yield();
  ranks.abort(0);
  calling.join();
  clear_failpoints();
}

TEST(Lifetime, TheEndOfAGroupSaysThatAnotherRankDidNotCome) {
  CommRanks ranks(2);
  const Scenario scenario = full_scenario(41, small_shape(2, Layout::kExpertMajor));
  std::array<ncclEpGroup_t, 2> groups{};
  ranks.on_all([&](int rank) {
    groups[size_t(rank)] = make_group(ranks.comm(rank), group_config_for(scenario.c)).release();
  });
  std::thread leaving([&] { expect_refused(ncclEpGroupDestroy(groups[0]), ncclRemoteError, "rank 1 aborted"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it waits for rank 1 by now
  ranks.abort(1);
  leaving.join();
  expect_refused(ncclEpGroupDestroy(groups[0]), ncclInvalidArgument, "not alive");
  expect_success(ncclEpGroupDestroy(groups[1]));  // whose rank aborted and waits for nobody
}

TEST(Lifetime, ACommunicatorStaysUntilTheStreamHasPassedItsCollectives) {
  CommRanks ranks(2);
  const DeviceBuffer value(sizeof(int));
  const StreamOwner stream;
  expect_success(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, ranks.comm(0), stream));
  expect_success(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, ranks.comm(0), stream));
  ranks.abort(0);
  EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
}

// ---- What is said ----

TEST(Messages, CreateHandleNamesOnlyItself) {
  const CommRanks ranks(1);
  const GroupOwner group = make_group(ranks.comm(0), group_config_for(one_rank_scenario().c));
  EpRank ep(one_rank_scenario(), ranks.comm(0), 0);
  ncclEpHandle_t handle = nullptr;
  const ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
  for (const bool bad_layout : {true, false}) {
    const ncclEpLayout_t layout = bad_layout ? NCCL_EP_LAYOUT_FLAT : NCCL_EP_LAYOUT_EXPERT_MAJOR;
    EXPECT_EQ(ncclEpCreateHandle(&handle, group.get(), layout, ep.topk_idx.get(), &info, nullptr, nullptr),
              ncclInvalidArgument);
    const std::string message = ncclGetLastError(nullptr);
    EXPECT_EQ(message.rfind("ncclEpCreateHandle: ", 0), 0u) << message;
    EXPECT_EQ(message.find("ncclEp", 1), message.find("ncclEpDispatch")) << message;  // where to pass layout_info
    EXPECT_EQ(message.find("invalid argument"), message.rfind("invalid argument")) << message;
  }
}

}  // namespace
}  // namespace switchyard::testing
