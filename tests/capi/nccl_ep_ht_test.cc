// High throughput through the C API, on numbers that can be said by hand: what every field of the structs does. The model covers
// everything else in C++ (tests/ep/ht_*).
#include <latch>

#include "capi/ht_rank.hpp"

namespace switchyard::testing {
namespace {

using T = HtTiny;

// Sums of equal rows: x times how many contribute.
void expect_combined(const HtRankC& ep, const std::function<int(size_t token)>& num_rows) {
  const std::vector<float> combined = ep.combined.download<float>();
  for (size_t token = 0; token < T::kTokens; ++token) {
    for (size_t i = 0; i < T::kHidden; ++i) {
      EXPECT_EQ(combined[token * T::kHidden + i], float(num_rows(token)) * T::value(ep.rank, token, i)) << token << " " << i;
    }
  }
}
int num_ranks_of(size_t rank, size_t token) {
  return T::expert(rank, token, 0) / int64_t(T::kLocal) == T::expert(rank, token, 1) / int64_t(T::kLocal) ? 1 : 2;
}

void expect_row(const std::vector<float>& rows, size_t row, const T::Arrival& arrival) {
  for (size_t i = 0; i < T::kHidden; ++i) {
    EXPECT_EQ(rows[row * T::kHidden + i], T::value(arrival.source, arrival.token, i)) << "row " << row;
  }
}

class NcclEpHt : public ::testing::TestWithParam<bool> {};  // windows

TEST_P(NcclEpHt, FlatThereAndBackAndBackward) {
  const CommRanks ranks(T::kRanks);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), T::config());
    HtRankC ep(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT, T::kBudget, GetParam());
    const HandleOwner handle = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT);
    const StreamOwner stream;
    const std::vector<T::Arrival> arrivals = T::flat_arrivals(ep.rank);

    HtUpdateCall update(ep, handle.get(), stream);
    expect_success(update.issue());
    HtDispatchCall dispatch(ep, handle.get(), stream);
    dispatch.info.recv_topk_idx_kind = NCCL_EP_EXPERT_ID_GLOBAL;
    dispatch.info_arg = &dispatch.info;
    expect_success(dispatch.issue());
    expect_success(ncclEpComplete(handle.get(), nullptr, stream));  // nothing is staged: harmless
    expect_success(cudaStreamSynchronize(stream));
    EXPECT_EQ(ep.total.download<int32_t>()[0], int32_t(arrivals.size()));
    const std::vector<int32_t> counts = ep.counts.download<int32_t>();
    for (size_t local = 0; local < T::kLocal; ++local) {
      EXPECT_EQ(size_t(counts[local]), T::expert_arrivals(ep.rank * T::kLocal + local).size());
    }
    const std::vector<float> rows = ep.out_tokens->download<float>(), weights = ep.out_weights.download<float>();
    const std::vector<int64_t> ids = ep.out_idx.download<int64_t>();
    for (size_t row = 0; row < arrivals.size(); ++row) {
      const auto [source, token, k] = arrivals[row];
      expect_row(rows, row, arrivals[row]);
      std::vector<std::pair<int64_t, float>> expected;
      for (size_t other = 0; other < T::kTopk; ++other) {
        const int64_t expert = T::expert(source, token, other);
        if (size_t(expert) / T::kLocal == ep.rank) expected.emplace_back(expert, T::weight(source, token, other));
      }
      std::sort(expected.begin(), expected.end());
      expected.resize(T::kTopk, {-1, 0.0f});
      for (size_t other = 0; other < T::kTopk; ++other) {
        EXPECT_EQ(ids[row * T::kTopk + other], expected[other].first) << row;
        EXPECT_EQ(weights[row * T::kTopk + other], expected[other].second) << row;
      }
    }

    HtCombineCall combine(ep, handle.get(), stream);
    expect_success(combine.issue());
    expect_success(cudaStreamSynchronize(stream));
    expect_combined(ep, [&](size_t token) { return num_ranks_of(ep.rank, token); });

    // Backward: rows again, and for each (row, place) a gradient that names its expert.
    HtDispatchCall backward(ep, handle.get(), stream, true);
    expect_success(backward.issue());
    std::vector<float> gradients(ep.num_rows * T::kTopk, -1);
    for (size_t row = 0; row < arrivals.size(); ++row) {
      for (size_t place = 0; place < T::kTopk; ++place) {
        gradients[row * T::kTopk + place] = float(1000 * arrivals[row].source + 10 * arrivals[row].token) + float(ids[row * T::kTopk + place]);
      }
    }
    expect_success(cudaStreamSynchronize(stream));
    ep.gradients.upload(gradients);
    HtCombineCall backward_combine(ep, handle.get(), stream, true);
    expect_success(backward_combine.issue());
    expect_success(cudaStreamSynchronize(stream));
    expect_combined(ep, [&](size_t token) { return num_ranks_of(ep.rank, token); });
    const std::vector<float> out = ep.out_gradients.download<float>();
    for (size_t token = 0; token < T::kTokens; ++token) {
      for (size_t k = 0; k < T::kTopk; ++k) {
        EXPECT_EQ(out[token * T::kTopk + k], float(1000 * ep.rank + 10 * token) + float(T::expert(ep.rank, token, k)));
      }
    }
  });
}

TEST_P(NcclEpHt, ExpertMajorEagerWithPadding) {
  constexpr size_t kAlignment = 8;
  const CommRanks ranks(T::kRanks);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), T::config(/*eager=*/true));
    const HandleOwner handle = make_ht_handle(group.get(), NCCL_EP_LAYOUT_EXPERT_MAJOR, nullptr, kAlignment);
    const StreamOwner stream;
    HtRankC ep(ranks.comm(rank), rank, NCCL_EP_LAYOUT_EXPERT_MAJOR, T::kLocal * kAlignment, GetParam());
    HtUpdateCall update(ep, handle.get(), stream);
    expect_success(update.issue());
    expect_success(cudaStreamSynchronize(stream));
    ASSERT_EQ(ep.total.download<int32_t>()[0], int32_t(T::kLocal * kAlignment));  // 4 rows an expert, padded to 8
    HtDispatchCall dispatch(ep, handle.get(), stream);
    expect_success(dispatch.issue());
    expect_success(cudaStreamSynchronize(stream));
    const std::vector<float> rows = ep.out_tokens->download<float>(), weights = ep.out_weights.download<float>();
    for (size_t local = 0; local < T::kLocal; ++local) {
      const std::vector<T::Arrival> arrivals = T::expert_arrivals(ep.rank * T::kLocal + local);
      EXPECT_EQ(ep.counts.download<int32_t>()[local], int32_t(kAlignment));
      EXPECT_EQ(ep.offsets.download<int32_t>()[local], int32_t(local * kAlignment));
      for (size_t i = 0; i < kAlignment; ++i) {
        const size_t row = local * kAlignment + i;
        if (i < arrivals.size()) {
          expect_row(rows, row, arrivals[i]);
          EXPECT_EQ(weights[row], T::weight(arrivals[i].source, arrivals[i].token, arrivals[i].k));
        } else {
          for (size_t column = 0; column < T::kHidden; ++column) EXPECT_EQ(rows[row * T::kHidden + column], 0);
          EXPECT_EQ(weights[row], 0);
        }
      }
    }
    HtCombineCall combine(ep, handle.get(), stream);
    expect_success(combine.issue());
    expect_success(cudaStreamSynchronize(stream));
    expect_combined(ep, [](size_t) { return int(T::kTopk); });
  });
}

INSTANTIATE_TEST_SUITE_P(Tensors, NcclEpHt, ::testing::Bool());

// The rank whose experts nobody wants passes tensors of no rows and no address, while the others' are in windows.
TEST(NcclEpHtEager, ARankThatGetsNothingPassesEmptyTensors) {
  for (const ncclEpLayout_t layout : {NCCL_EP_LAYOUT_FLAT, NCCL_EP_LAYOUT_EXPERT_MAJOR}) {
    const CommRanks ranks(T::kRanks);
    ranks.on_all([&](int rank) {
      ncclEpGroupConfig_t config = T::config(/*eager=*/true);
      config.zero_copy = NCCL_EP_ZERO_COPY_ON;  // AUTO leaves the windows of so few rows aside
      const GroupOwner group = make_group(ranks.comm(rank), config);
      const HandleOwner handle = make_ht_handle(group.get(), layout);
      const StreamOwner stream;
      HtRankC ep(ranks.comm(rank), rank, layout, T::kBudget, /*windows=*/true);
      std::vector<int64_t> ids;
      for (size_t token = 0; token < T::kTokens; ++token) ids.insert(ids.end(), {0, 1});  // both are rank 0's
      ep.indices.upload(ids);
      expect_success(HtUpdateCall(ep, handle.get(), stream).issue());
      expect_success(cudaStreamSynchronize(stream));
      const size_t rows = layout == NCCL_EP_LAYOUT_FLAT ? T::kRanks * T::kTokens : T::kRanks * T::kTokens * T::kTopk;
      ASSERT_EQ(ep.total.download<int32_t>()[0], rank == 0 ? int32_t(rows) : 0);
      const auto resize = [&](std::initializer_list<TensorArg*> tensors) {
        for (TensorArg* tensor : tensors) {
          tensor->sizes[0] = rank == 0 ? rows : 0;
          if (rank == 0) continue;
          tensor->desc.data = nullptr;
          tensor->desc.win_hdl = nullptr;
        }
      };
      for (const bool backward : {false, true}) {
        HtDispatchCall dispatch(ep, handle.get(), stream, backward);
        resize({&dispatch.out_tokens, &dispatch.out_idx});
        if (rank != 0 && !backward) {
          EXPECT_EQ(dispatch.issue(), ncclInvalidArgument) << "rows for weights, none for tokens";
        }
        resize({&dispatch.out_weights});
        expect_success(dispatch.issue());
        HtCombineCall combine(ep, handle.get(), stream, backward);
        resize({&combine.tokens, &combine.weights});
        expect_success(combine.issue());
        expect_success(cudaStreamSynchronize(stream));
        expect_combined(ep, [&](size_t) { return ep.flat() ? 1 : int(T::kTopk); });
        ep.spoil();
      }
    });
  }
}

// Rank 1 has no rows, and has taken the window away that rank 0's results are in.
TEST(NcclEpHtEager, RanksThatCannotFindAWindowAreTold) {
  const CommRanks ranks(T::kRanks);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = T::config(/*eager=*/true);
    config.zero_copy = NCCL_EP_ZERO_COPY_ON;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    const HandleOwner handle = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT);
    const StreamOwner stream;
    HtRankC ep(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT);
    std::vector<int64_t> ids;
    for (size_t token = 0; token < T::kTokens; ++token) ids.insert(ids.end(), {0, 1});  // both are rank 0's
    ep.indices.upload(ids);
    expect_success(HtUpdateCall(ep, handle.get(), stream).issue());
    expect_success(cudaStreamSynchronize(stream));
    constexpr size_t kNumBytes = T::kBudget * T::kHidden * sizeof(float);
    auto results = std::make_unique<DeviceBuffer>(kNumBytes, ranks.comm(rank), kNumBytes);
    HtCombineCall combine(ep, handle.get(), stream);
    if (rank == 0) {
      combine.tokens.set(*results, ncclFloat32, {T::kRanks * T::kTokens, T::kHidden});
    } else {
      combine.tokens.sizes[0] = 0;
      combine.tokens.desc.data = nullptr;
      results.reset();
    }
    expect_success(combine.issue());
    EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
    const std::string why = ncclGetLastError(ranks.comm(rank));
    EXPECT_NE(why.find("rank " + std::to_string(1 - rank) + " and this rank don't agree about the window"), std::string::npos) << why;
  });
}

TEST(NcclEpHtMask, LeavesARankOutAndTakesItBack) {
  const CommRanks ranks(T::kRanks);
  std::latch alone_is_through(1);
  ranks.on_all([&](int rank) {
    ncclEpGroupConfig_t config = T::config();
    config.enable_mask = 1;
    const GroupOwner group = make_group(ranks.comm(rank), config);
    const HandleOwner handle = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT);
    const StreamOwner stream;
    HtRankC ep(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT);
    const auto expect_round_trip = [&](const std::function<int(size_t)>& num_rows) {
      ep.spoil();
      expect_success(HtUpdateCall(ep, handle.get(), stream).issue());
      expect_success(HtDispatchCall(ep, handle.get(), stream).issue());
      expect_success(HtCombineCall(ep, handle.get(), stream).issue());
      expect_success(cudaStreamSynchronize(stream));
      expect_combined(ep, num_rows);
    };
    const auto with_all = [&](size_t token) { return num_ranks_of(ep.rank, token); };
    expect_round_trip(with_all);
    if (rank == 0) {
      const int mask[] = {1, 0};
      expect_success(ncclEpMaskUpdate(group.get(), mask, stream));
      expect_success(HtDispatchCall(ep, handle.get(), stream).issue());
      EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess) << "the routing is of both";
      expect_round_trip([](size_t token) { return int(T::expert(0, token, 0) < 2 || T::expert(0, token, 1) < 2); });
      EXPECT_EQ(ep.total.download<int32_t>()[0], 3) << "of my own tokens";
      expect_success(ncclEpMaskClean(group.get(), stream));
      expect_success(cudaStreamSynchronize(stream));
      alone_is_through.count_down();
    }
    alone_is_through.wait();
    expect_round_trip(with_all);
  });
}

TEST(NcclEpHtHandle, AnotherOneOverItsMemoryGoesOnWithItsRouting) {
  const CommRanks ranks(T::kRanks);
  ranks.on_all([&](int rank) {
    const GroupOwner group = make_group(ranks.comm(rank), T::config());
    size_t num_bytes = 0;
    expect_success(ncclEpHandleMemSize(group.get(), NCCL_EP_LAYOUT_FLAT, nullptr, &num_bytes, T::kTopk));
    const DeviceBuffer memory(num_bytes);
    TensorArg handle_mem;
    handle_mem.set(memory, ncclUint8, {num_bytes});
    HtRankC ep(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT);
    const StreamOwner stream;
    {
      const HandleOwner first = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT, handle_mem.get());
      HtUpdateCall update(ep, first.get(), stream);
      expect_success(update.issue());
      expect_success(cudaStreamSynchronize(stream));
    }
    const HandleOwner second = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT, handle_mem.get());
    expect_success(HtDispatchCall(ep, second.get(), stream, true).issue());
    expect_success(HtCombineCall(ep, second.get(), stream).issue());
    expect_success(cudaStreamSynchronize(stream));
    expect_combined(ep, [&](size_t token) { return num_ranks_of(ep.rank, token); });
  });
}

TEST(NcclEpHtOverflow, TrapIsAnErrorThatReachesTheCallerAndDropIsNone) {
  const CommRanks ranks(T::kRanks);
  for (const bool drop : {false, true}) {
    ranks.on_all([&](int rank) {
      ncclEpGroupConfig_t config = T::config();
      config.max_recv_tokens_per_rank = T::kTokens;  // 6 rows come
      config.overflow_policy = drop ? NCCL_EP_OVERFLOW_DROP : NCCL_EP_OVERFLOW_TRAP;
      const GroupOwner group = make_group(ranks.comm(rank), config);
      HtRankC ep(ranks.comm(rank), rank, NCCL_EP_LAYOUT_FLAT, T::kTokens);
      const HandleOwner handle = make_ht_handle(group.get(), NCCL_EP_LAYOUT_FLAT);
      const StreamOwner stream;
      expect_success(HtUpdateCall(ep, handle.get(), stream).issue());
      const cudaError_t updated = cudaStreamSynchronize(stream);
      EXPECT_EQ(updated == cudaSuccess, drop);
      EXPECT_EQ(ep.total.download<int32_t>()[0], 6) << "before dropping";
      if (!drop) {
        EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("rows"), std::string::npos) << ncclGetLastError(nullptr);
        EXPECT_EQ(HtDispatchCall(ep, handle.get(), stream).issue(), ncclSuccess);  // the stream has the error
        EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
        EXPECT_TRUE(ep.untouched());
        return;
      }
      expect_success(HtDispatchCall(ep, handle.get(), stream).issue());
      expect_success(HtCombineCall(ep, handle.get(), stream).issue());
      expect_success(cudaStreamSynchronize(stream));
      const std::vector<T::Arrival> arrivals = T::flat_arrivals(ep.rank);
      for (size_t row = 0; row < T::kTokens; ++row) expect_row(ep.out_tokens->download<float>(), row, arrivals[row]);
    });
  }
}

}  // namespace
}  // namespace switchyard::testing
