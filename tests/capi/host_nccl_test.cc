// NCCL's host names on CPUs: communicators, windows and collectives, against plain computation.
#include <chrono>

#include "capi/comm_ranks.hpp"
#include "oracle/float_formats.hpp"

namespace switchyard::testing {
namespace {

// ---- Element types as numbers ----

struct Type {
  ncclDataType_t datatype;
  const char* name;
  size_t num_bytes;
};
constexpr Type kTypes[] = {
    {ncclInt8, "int8", 1},         {ncclUint8, "uint8", 1},     {ncclInt32, "int32", 4},
    {ncclUint32, "uint32", 4},     {ncclInt64, "int64", 8},     {ncclUint64, "uint64", 8},
    {ncclFloat16, "float16", 2},   {ncclFloat32, "float32", 4}, {ncclFloat64, "float64", 8},
    {ncclBfloat16, "bfloat16", 2},
};

template <class T>
void append(std::vector<uint8_t>& bytes, double value) {
  const T element = T(value);
  const auto* raw = reinterpret_cast<const uint8_t*>(&element);
  bytes.insert(bytes.end(), raw, raw + sizeof(T));
}

// Small whole numbers, which every type holds exactly: all results can be compared for equality.
std::vector<uint8_t> encode(ncclDataType_t datatype, const std::vector<double>& values) {
  std::vector<uint8_t> bytes;
  for (const double value : values) {
    switch (datatype) {
      case ncclInt8: append<int8_t>(bytes, value); break;
      case ncclUint8: append<uint8_t>(bytes, value); break;
      case ncclInt32: append<int32_t>(bytes, value); break;
      case ncclUint32: append<uint32_t>(bytes, value); break;
      case ncclInt64: append<int64_t>(bytes, value); break;
      case ncclUint64: append<uint64_t>(bytes, value); break;
      case ncclFloat32: append<float>(bytes, value); break;
      case ncclFloat64: append<double>(bytes, value); break;
      case ncclFloat16: append<uint16_t>(bytes, oracle::encode(DType::kFloat16, float(value))); break;
      case ncclBfloat16: append<uint16_t>(bytes, oracle::encode(DType::kBfloat16, float(value))); break;
      default: ADD_FAILURE() << "no such type";
    }
  }
  return bytes;
}

// Each op's inputs keep its results small and, for the mean, whole.
double input(ncclRedOp_t op, int num_ranks, int rank, size_t idx) {
  const int turn = int((size_t(rank) + idx) % size_t(num_ranks));
  if (op == ncclProd) return 1.0 + double((size_t(rank) + idx) % 2);
  return double(idx % 4) + 2.0 * turn;
}

double reduced(ncclRedOp_t op, int num_ranks, size_t idx) {
  double result = input(op, num_ranks, 0, idx);
  for (int rank = 1; rank < num_ranks; ++rank) {
    const double value = input(op, num_ranks, rank, idx);
    switch (op) {
      case ncclProd: result *= value; break;
      case ncclMax: result = std::max(result, value); break;
      case ncclMin: result = std::min(result, value); break;
      default: result += value; break;
    }
  }
  return op == ncclAvg ? result / num_ranks : result;
}

template <class Value>
std::vector<uint8_t> encode_range(ncclDataType_t datatype, size_t first, size_t count, Value value) {
  std::vector<double> values;
  values.reserve(count);
  for (size_t idx = first; idx < first + count; ++idx) values.push_back(value(idx));
  return encode(datatype, values);
}

class HostCollectives : public ::testing::TestWithParam<int> {
 protected:
  // Runs `body` on every rank for small, odd and staged-in-pieces sizes of some types.
  void for_each_size(const std::function<void(const CommRanks&, int rank, const Type&, size_t count)>& body) {
    const CommRanks ranks(GetParam());
    ranks.on_all([&](int rank) {
      for (const Type& type : kTypes) {
        SCOPED_TRACE(type.name);
        body(ranks, rank, type, 1);
        body(ranks, rank, type, 1003);
      }
      for (const Type& type : {kTypes[7], kTypes[9]}) {
        SCOPED_TRACE(type.name);
        body(ranks, rank, type, (size_t(5) << 18) / type.num_bytes + 7);  // beyond 1 MiB, no round number
      }
      body(ranks, rank, kTypes[7], 0);
    });
  }
};

TEST_P(HostCollectives, AllReduceEqualsTheSumsByHand) {
  for_each_size([&](const CommRanks& ranks, int rank, const Type& type, size_t count) {
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      const int n = ranks.size();
      const DeviceBuffer in(count * type.num_bytes), out(count * type.num_bytes);
      in.upload(encode_range(type.datatype, 0, count, [&](size_t idx) { return input(op, n, rank, idx); }));
      const auto expected = encode_range(type.datatype, 0, count, [&](size_t idx) { return reduced(op, n, idx); });
      expect_success(ncclAllReduce(in.data(), out.data(), count, type.datatype, op, ranks.comm(rank), nullptr));
      expect_success(ncclAllReduce(in.data(), in.data(), count, type.datatype, op, ranks.comm(rank), nullptr));
      expect_success(cudaStreamSynchronize(nullptr));
      EXPECT_TRUE(out.download() == expected) << "op " << op << ", count " << count;
      EXPECT_TRUE(in.download() == expected) << "in place, op " << op << ", count " << count;
    }
  });
}

TEST_P(HostCollectives, ReduceScatterGivesEachRankItsShare) {
  for_each_size([&](const CommRanks& ranks, int rank, const Type& type, size_t count) {
    for (const ncclRedOp_t op : {ncclSum, ncclMax}) {
      const int n = ranks.size();
      const size_t share_bytes = count * type.num_bytes;
      const DeviceBuffer in(share_bytes * size_t(n)), out(share_bytes);
      in.upload(encode_range(type.datatype, 0, count * size_t(n), [&](size_t idx) { return input(op, n, rank, idx); }));
      const auto expected =
          encode_range(type.datatype, count * size_t(rank), count, [&](size_t idx) { return reduced(op, n, idx); });
      uint8_t* const mine = in.data() + share_bytes * size_t(rank);
      expect_success(ncclReduceScatter(in.data(), out.data(), count, type.datatype, op, ranks.comm(rank), nullptr));
      expect_success(ncclReduceScatter(in.data(), mine, count, type.datatype, op, ranks.comm(rank), nullptr));
      expect_success(cudaStreamSynchronize(nullptr));
      EXPECT_TRUE(out.download() == expected) << "op " << op << ", count " << count;
      const auto all = in.download();
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), all.begin() + std::ptrdiff_t(share_bytes) * rank))
          << "in place, op " << op << ", count " << count;
    }
  });
}

TEST_P(HostCollectives, AllGatherPutsRanksSideBySide) {
  for_each_size([&](const CommRanks& ranks, int rank, const Type& type, size_t count) {
    const auto n = size_t(ranks.size());
    const size_t share_bytes = count * type.num_bytes;
    const auto value = [&](size_t idx) { return double((idx * 7 + idx / 100) % 120); };
    const auto mine = encode_range(type.datatype, count * size_t(rank), count, value);
    const auto expected = encode_range(type.datatype, 0, count * n, value);
    const DeviceBuffer in(share_bytes), out(share_bytes * n), both(share_bytes * n);
    in.upload(mine);
    uint8_t* const place = both.data() + share_bytes * size_t(rank);
    if (count > 0) expect_success(cudaMemcpy(place, mine.data(), share_bytes, cudaMemcpyHostToDevice));
    expect_success(ncclAllGather(in.data(), out.data(), count, type.datatype, ranks.comm(rank), nullptr));
    expect_success(ncclAllGather(place, both.data(), count, type.datatype, ranks.comm(rank), nullptr));
    expect_success(cudaStreamSynchronize(nullptr));
    EXPECT_TRUE(out.download() == expected) << "count " << count;
    EXPECT_TRUE(both.download() == expected) << "in place, count " << count;
  });
}

TEST_P(HostCollectives, BroadcastReachesEverybodyFromEveryRoot) {
  for_each_size([&](const CommRanks& ranks, int rank, const Type& type, size_t count) {
    for (int root = 0; root < ranks.size(); ++root) {
      const auto expected =
          encode_range(type.datatype, 0, count, [&](size_t idx) { return double((idx + size_t(root)) % 100); });
      const DeviceBuffer in(rank == root ? expected.size() : 0), out(expected.size()), both(expected.size());
      if (rank == root) {
        in.upload(expected);
        both.upload(expected);
      }
      expect_success(ncclBroadcast(in.data(), out.data(), count, type.datatype, root, ranks.comm(rank), nullptr));
      expect_success(ncclBroadcast(both.data(), both.data(), count, type.datatype, root, ranks.comm(rank), nullptr));
      expect_success(cudaStreamSynchronize(nullptr));
      EXPECT_TRUE(out.download() == expected) << "root " << root << ", count " << count;
      EXPECT_TRUE(both.download() == expected) << "in place, root " << root << ", count " << count;
    }
  });
}

TEST_P(HostCollectives, AllToAllTransposes) {
  for_each_size([&](const CommRanks& ranks, int rank, const Type& type, size_t count) {
    const auto n = size_t(ranks.size());
    const size_t share_bytes = count * type.num_bytes;
    const auto part = [&](size_t from, size_t to) {
      return encode_range(type.datatype, 0, count, [&](size_t idx) { return double((idx * 3 + from * 5 + to * 11) % 100); });
    };
    std::vector<uint8_t> mine, expected;
    for (size_t peer = 0; peer < n; ++peer) {
      const auto sent = part(size_t(rank), peer), received = part(peer, size_t(rank));
      mine.insert(mine.end(), sent.begin(), sent.end());
      expected.insert(expected.end(), received.begin(), received.end());
    }
    const DeviceBuffer in(share_bytes * n), out(share_bytes * n);
    in.upload(mine);
    expect_success(ncclAlltoAll(in.data(), out.data(), count, type.datatype, ranks.comm(rank), nullptr));
    expect_success(ncclAlltoAll(in.data(), in.data(), count, type.datatype, ranks.comm(rank), nullptr));
    expect_success(cudaStreamSynchronize(nullptr));
    EXPECT_TRUE(out.download() == expected) << "count " << count;
    EXPECT_TRUE(in.download() == expected) << "in place, count " << count;
  });
}

// As libraries write an all-to-all-v: what is empty is left out, so that some ranks may have nothing to do.
TEST_P(HostCollectives, AGroupOfSendsAndReceivesIsAnAllToAllV) {
  const CommRanks ranks(GetParam());
  const auto count = [](int from, int to) { return size_t((from * 31 + to * 17) % 5 * 60'001); };
  const auto value = [](int from, int to) { return uint8_t(1 + from * 16 + to); };
  ranks.on_all([&](int rank) {
    const StreamOwner sending, receiving;
    std::vector<std::unique_ptr<DeviceBuffer>> sent, received;
    for (int round = 0; round < 3; ++round) {
      expect_success(ncclGroupStart());
      for (int peer = 0; peer < ranks.size(); ++peer) {
        sent.push_back(std::make_unique<DeviceBuffer>(count(rank, peer)));
        received.push_back(std::make_unique<DeviceBuffer>(count(peer, rank)));
        sent.back()->fill(value(rank, peer));
        received.back()->fill(0);
        expect_success(ncclGroupStart());  // groups may be nested
        if (sent.back()->size() > 0) {
          expect_success(ncclSend(sent.back()->data(), sent.back()->size(), ncclUint8, peer, ranks.comm(rank), sending));
        }
        if (received.back()->size() > 0) {
          expect_success(ncclRecv(received.back()->data(), received.back()->size(), ncclUint8, peer, ranks.comm(rank), receiving));
        }
        expect_success(ncclGroupEnd());
      }
      expect_success(ncclGroupEnd());
    }
    expect_success(cudaStreamSynchronize(receiving));
    for (size_t i = 0; i < received.size(); ++i) {
      const int peer = int(i) % ranks.size();
      EXPECT_TRUE(received[i]->holds_only(value(peer, rank))) << "from " << peer;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostCollectives, ::testing::Values(1, 3, 4),
                         [](const auto& num_ranks) { return std::to_string(num_ranks.param); });

// The sum over the ranks of a communicator of each one's number, or -1.
int sum_over(ncclComm_t comm, int number) {
  const DeviceBuffer value(sizeof(int));
  value.upload(std::vector<int>{number});
  const StreamOwner stream;
  if (ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, comm, stream) != ncclSuccess) return -1;
  if (cudaStreamSynchronize(stream) != cudaSuccess) return -1;
  int sum = -1;
  return cudaMemcpy(&sum, value.data(), sizeof(sum), cudaMemcpyDeviceToHost) == cudaSuccess ? sum : -1;
}

TEST(HostNccl, RefusesCollectivesThatCannotBe) {
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const ncclComm_t comm = ranks.comm(rank);
    const DeviceBuffer memory(64);
    void* const data = memory.data();
    EXPECT_EQ(ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(nullptr, data, 4, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(data, data, 4, ncclDataType_t(13), ncclSum, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(data, data, 4, ncclFloat32, ncclRedOp_t(5), comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(data, data, 4, ncclFloat8e4m3, ncclSum, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclReduceScatter(data, nullptr, 4, ncclFloat32, ncclSum, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclAllGather(data, data, ~size_t(0) / 4, ncclFloat64, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(data, data, 4, ncclFloat32, 1, comm, nullptr), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("root is 1, allowed 0..0"), std::string::npos);
    EXPECT_EQ(sum_over(comm, 5), 5);
  });
}

TEST(HostNccl, RefusesSendsAndGroupsThatCannotBe) {
  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const ncclComm_t comm = ranks.comm(rank);
    const DeviceBuffer memory(64), other(64);
    memory.fill(7);
    other.fill(0);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(ncclSend(memory.data(), 4, ncclFloat32, 1, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclRecv(memory.data(), 4, ncclFloat32, -1, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(nullptr, 4, ncclFloat32, 0, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclRecv(memory.data(), 4, ncclDataType_t(13), 0, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(memory.data(), 4, ncclFloat32, 0, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclAlltoAll(memory.data(), nullptr, 4, ncclFloat32, comm, nullptr), ncclInvalidArgument);
    // One bad call, and nothing of its group happens.
    expect_success(ncclGroupStart());
    expect_success(ncclSend(memory.data(), 64, ncclUint8, 0, comm, nullptr));
    EXPECT_EQ(ncclRecv(other.data(), 64, ncclUint8, 3, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("peer is 3, allowed 0..0"), std::string::npos);
    EXPECT_EQ(cudaStreamQuery(nullptr), cudaSuccess);
    expect_success(ncclGroupStart());
    expect_success(ncclSend(memory.data(), 64, ncclUint8, 0, comm, nullptr));
    expect_success(ncclRecv(other.data(), 64, ncclUint8, 0, comm, nullptr));
    EXPECT_TRUE(other.holds_only(0)) << "a group waits for its end";
    expect_success(ncclGroupEnd());
    expect_success(cudaStreamSynchronize(nullptr));
    EXPECT_TRUE(other.holds_only(7));
  });
}

TEST(HostNccl, RefusesCommunicatorsAndWindowsThatCannotBe) {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
  expect_success(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(&comm, 0, nullptr), ncclInvalidArgument);
  const int no_device[] = {-1};
  EXPECT_EQ(ncclCommInitAll(&comm, 1, no_device), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  int value = 0;
  ncclResult_t async = ncclSuccess;
  EXPECT_EQ(ncclCommCount(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommUserRank(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCuDevice(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(nullptr, &async), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSplit(nullptr, 0, 0, &comm, nullptr), ncclInvalidArgument);
  expect_success(ncclCommDestroy(nullptr));
  expect_success(ncclMemFree(nullptr));

  const CommRanks ranks(1);
  ranks.on_all([&](int rank) {
    const DeviceBuffer memory(8192);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(nullptr, memory.data(), 4096, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(ranks.comm(rank), memory.data(), 4096, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(ranks.comm(rank), memory.data(), 4096, &window, 0x40), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(ranks.comm(rank), memory.data(), size_t(1) << 40, &window, 0),
              ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(ranks.comm(rank), &window, sizeof(window), &window, 0), ncclInvalidArgument);
    EXPECT_EQ(window, nullptr);
    EXPECT_NE(ncclCommWindowDeregister(ranks.comm(rank), reinterpret_cast<ncclWindow_t>(&window)), ncclSuccess);
    expect_success(ncclCommWindowDeregister(ranks.comm(rank), nullptr));
  });
}

TEST(HostNccl, SplitsByColourInTheOrderOfTheKeys) {
  const CommRanks ranks(4);
  ranks.on_all([&](int rank) {
    ncclComm_t child = nullptr;
    expect_success(ncclCommSplit(ranks.comm(rank), rank % 2, -rank, &child, nullptr));
    ASSERT_NE(child, nullptr);
    int child_rank = -1, count = 0;
    expect_success(ncclCommUserRank(child, &child_rank));
    expect_success(ncclCommCount(child, &count));
    EXPECT_EQ(count, 2);
    EXPECT_EQ(child_rank, rank < 2 ? 1 : 0);  // lower keys first, so the higher rank
    EXPECT_EQ(sum_over(child, 1 << rank), rank % 2 == 0 ? 0b0101 : 0b1010);
    EXPECT_EQ(sum_over(ranks.comm(rank), 1 << rank), 0b1111);
    expect_success(ncclCommDestroy(child));
  });
}

TEST(HostNccl, RanksWithoutColourGetNoCommunicator) {
  const CommRanks ranks(3);
  ranks.on_all([&](int rank) {
    ncclComm_t child = reinterpret_cast<ncclComm_t>(&child);
    expect_success(ncclCommSplit(ranks.comm(rank), rank == 1 ? NCCL_SPLIT_NOCOLOR : 7, 0, &child, nullptr));
    EXPECT_EQ(child == nullptr, rank == 1);
    if (child == nullptr) return;
    EXPECT_EQ(sum_over(child, 1 << rank), 0b101);
    expect_success(ncclCommDestroy(child));
  });
}

TEST(HostNccl, OneThreadMayMakeAllRanks) {
  ncclComm_t comms[3] = {};
  const int devices[] = {5, 3, 4};
  expect_success(ncclCommInitAll(comms, 3, devices));
  on_ranks(3, [&](int rank) {
    int device = -1, user_rank = -1;
    expect_success(ncclCommCuDevice(comms[rank], &device));
    expect_success(ncclCommUserRank(comms[rank], &user_rank));
    EXPECT_EQ(device, devices[rank]);
    EXPECT_EQ(user_rank, rank);
    EXPECT_EQ(sum_over(comms[rank], 1 << rank), 0b111);
    expect_success(ncclCommDestroy(comms[rank]));
  });
}

TEST(HostNccl, AbortEndsACollectiveThatWaits) {
  using Clock = std::chrono::steady_clock;
  CommRanks ranks(2);
  expect_success(cudaSetDevice(0));
  const DeviceBuffer value(sizeof(int));
  const StreamOwner stream;
  expect_success(ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, ranks.comm(0), stream));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  const Clock::time_point start = Clock::now();
  std::thread([&] { ranks.abort(0); }).join();
  EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  ncclResult_t async = ncclSuccess;
  while (async == ncclSuccess) expect_success(ncclCommGetAsyncError(ranks.comm(1), &async));  // the others are told
  EXPECT_EQ(async, ncclRemoteError);
}

}  // namespace
}  // namespace switchyard::testing
