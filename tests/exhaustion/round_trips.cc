#include "round_trips.hpp"

#include <algorithm>
#include <array>

#include "base/guarded.hpp"
#include "coll/collectives.hpp"
#include "ep/group.hpp"
#include "ep/handle.hpp"

namespace switchyard::testing {
namespace {

constexpr size_t kNumTokens = 5, kHidden = 32, kTopk = 2, kNumExperts = 4, kMaxRanks = 2;
constexpr size_t kNumLocal = kNumExperts / kMaxRanks;

// All that the operations read and write. The experts give back what they get, and the weights of a token add up to 1:
// so tokens come back as they were.
struct Buffers {
  alignas(64) std::array<float, kNumTokens * kHidden> tokens;
  alignas(64) std::array<float, kNumLocal * kMaxRanks * kNumTokens * kHidden> rows;
  alignas(64) std::array<float, kNumTokens * kHidden> combined;
  alignas(64) std::array<int64_t, kNumTokens * kTopk> indices;
  alignas(64) std::array<float, kNumTokens * kTopk> weights;
  alignas(64) std::array<float, kMaxRanks * kNumTokens * kTopk> row_weights;
  alignas(64) std::array<int64_t, kMaxRanks * kNumTokens * kTopk> row_indices;
  alignas(64) std::array<int32_t, kNumLocal> counters;

  explicit Buffers(int rank) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = float(1000 * rank) + float(i);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = int64_t((i + i / kTopk + size_t(rank)) % kNumExperts);
    weights.fill(0.5f);
    rows.fill(-1);
    combined.fill(-1);
  }
  ep::Tensor topk_idx() { return ep::Tensor::of(indices.data(), DType::kInt64, {kNumTokens, kTopk}); }
  ep::Tensor topk_weights() { return ep::Tensor::of(weights.data(), DType::kFloat32, {kNumTokens, kTopk}); }
  ep::Tensor sent() { return ep::Tensor::of(tokens.data(), DType::kFloat32, {kNumTokens, kHidden}); }
  ep::Tensor returned() { return ep::Tensor::of(combined.data(), DType::kFloat32, {kNumTokens, kHidden}); }

  Status check(const char* algorithm) const {
    if (combined == tokens) return {};
    return Status::internal(text("WRONG RESULT: tokens came back changed, ", algorithm));
  }
};

ep::GroupConfig config_of(ep::Algorithm algorithm, uint64_t timeout_ns) {
  ep::GroupConfig config;
  config.algorithm = algorithm;
  config.num_experts = kNumExperts;
  config.max_tokens_per_rank = kNumTokens;
  config.max_token_bytes = kHidden * sizeof(float);
  config.timeout_ns = timeout_ns;
  if (algorithm == ep::Algorithm::kHighThroughput) config.max_recv_tokens_per_rank = kMaxRanks * kNumTokens;
  return config;
}

Status await(Communicator& comm, StreamRef stream, uint64_t timeout_ns, ep::Group& group) {
  SWITCHYARD_TRY(comm.runtime().synchronize(stream, Deadline::after_ns(4 * timeout_ns)));
  return group.health();
}

Status low_latency(Communicator& comm, StreamRef stream, uint64_t timeout_ns) {
  Buffers buffers(comm.rank());
  SWITCHYARD_ASSIGN(const std::unique_ptr<ep::Group> group,
                    ep::Group::create(comm, config_of(ep::Algorithm::kLowLatency, timeout_ns)));
  SWITCHYARD_ASSIGN(const std::unique_ptr<ep::Handle> handle,
                    ep::Handle::create(*group, ep::Layout::kExpertMajor, kTopk));
  SWITCHYARD_TRY(handle->update(buffers.topk_idx()));
  const size_t per_expert = size_t(comm.num_ranks()) * kNumTokens;
  ep::DispatchArgs dispatch;
  dispatch.tokens = buffers.sent();
  dispatch.out_tokens = ep::Tensor::of(buffers.rows.data(), DType::kFloat32, {kNumLocal, per_expert, kHidden});
  dispatch.has_layout_info = true;
  dispatch.layout_info.expert_counters = ep::Tensor::of(buffers.counters.data(), DType::kInt32, {kNumLocal});
  SWITCHYARD_TRY(handle->dispatch(dispatch, stream));
  ep::CombineArgs combine;
  combine.tokens = dispatch.out_tokens;
  combine.out_tokens = buffers.returned();
  combine.out_topk_weights = buffers.topk_weights();
  SWITCHYARD_TRY(handle->combine(combine, stream));
  SWITCHYARD_TRY(await(comm, stream, timeout_ns, *group));
  return buffers.check("low latency");
}

// Experts of a rank add up in a row of its own: as many rows as tokens come, and each is weighed before it returns.
Status high_throughput(Communicator& comm, StreamRef stream, uint64_t timeout_ns) {
  Buffers buffers(comm.rank());
  SWITCHYARD_ASSIGN(const std::unique_ptr<ep::Group> group,
                    ep::Group::create(comm, config_of(ep::Algorithm::kHighThroughput, timeout_ns)));
  SWITCHYARD_ASSIGN(const std::unique_ptr<ep::Handle> handle, ep::Handle::create(*group, ep::Layout::kFlat, kTopk));
  SWITCHYARD_TRY(handle->update(buffers.topk_idx(), {}, stream));
  const size_t num_rows = size_t(comm.num_ranks()) * kNumTokens;
  ep::DispatchArgs dispatch;
  dispatch.tokens = buffers.sent();
  dispatch.topk_weights = buffers.topk_weights();
  dispatch.out_tokens = ep::Tensor::of(buffers.rows.data(), DType::kFloat32, {num_rows, kHidden});
  dispatch.out_topk_weights = ep::Tensor::of(buffers.row_weights.data(), DType::kFloat32, {num_rows, kTopk});
  dispatch.out_topk_idx = ep::Tensor::of(buffers.row_indices.data(), DType::kInt64, {num_rows, kTopk});
  SWITCHYARD_TRY(handle->dispatch(dispatch, stream));
  SWITCHYARD_TRY(await(comm, stream, timeout_ns, *group));
  for (size_t row = 0; row < num_rows; ++row) {
    float weight = 0;
    for (size_t k = 0; k < kTopk; ++k) {
      if (buffers.row_indices[row * kTopk + k] >= 0) weight += buffers.row_weights[row * kTopk + k];
    }
    for (size_t i = 0; i < kHidden; ++i) buffers.rows[row * kHidden + i] *= weight;
  }
  ep::CombineArgs combine;
  combine.tokens = dispatch.out_tokens;
  combine.out_tokens = buffers.returned();
  SWITCHYARD_TRY(handle->combine(combine, stream));
  SWITCHYARD_TRY(await(comm, stream, timeout_ns, *group));
  return buffers.check("high throughput");
}

// A sum, and numbers from everybody to everybody, as many as who gets them has for a number.
Status collectives(Communicator& comm, StreamRef stream, uint64_t timeout_ns) {
  const auto num_ranks = size_t(comm.num_ranks()), rank = size_t(comm.rank());
  std::array<float, 16> sum;
  sum.fill(float(rank + 1));
  std::array<int32_t, kMaxRanks + 1> sent;
  std::array<int32_t, kMaxRanks * kMaxRanks> received;
  sent.fill(int32_t(rank));
  received.fill(-1);
  std::array<coll::Part, kMaxRanks> from_me{}, to_me{};
  for (size_t peer = 0; peer < num_ranks; ++peer) {
    from_me[peer] = {peer, peer + 1};
    to_me[peer] = {peer * (rank + 1), rank + 1};
  }
  SWITCHYARD_ASSIGN(const std::unique_ptr<coll::Collectives> all, coll::Collectives::create(comm));
  // Whatever was posted must be over before what it works on goes.
  const Status posted = guarded([&]() -> Status {
    SWITCHYARD_TRY(all->all_reduce(sum.data(), sum.data(), sum.size(), DType::kFloat32, coll::ReduceOp::kSum, stream));
    return all->all_to_all_v(sent.data(), {from_me.data(), num_ranks}, received.data(), {to_me.data(), num_ranks},
                             DType::kInt32, stream);
  });
  SWITCHYARD_TRY(comm.runtime().synchronize(stream, Deadline::after_ns(4 * timeout_ns)));
  SWITCHYARD_TRY(posted);
  bool right = sum.front() == float(num_ranks * (num_ranks + 1) / 2) && sum.back() == sum.front();
  for (size_t peer = 0; peer < num_ranks; ++peer) right &= received[peer * (rank + 1)] == int32_t(peer);
  return right ? Status() : Status::internal("WRONG RESULT: of a collective");
}

}  // namespace

Status make_round_trips(Communicator& comm, StreamRef stream, uint64_t timeout_ns) {
  SWITCHYARD_TRY(low_latency(comm, stream, timeout_ns));
  SWITCHYARD_TRY(high_throughput(comm, stream, timeout_ns));
  return collectives(comm, stream, timeout_ns);
}

}  // namespace switchyard::testing
