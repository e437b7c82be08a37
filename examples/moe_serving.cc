// A server that switches between the two algorithms on one communicator: prompts come in large batches (prefill: high throughput),
// answers token by token (decode: low latency). One rank a process:
//
//   switchyard run -n 4 -- moe_serving          (or mpirun, torchrun, srun)
//
// Both groups live side by side on the communicator; each has memory of its own. Every expert multiplies its rows by a factor of
// its own, so that each rank can work out alone what has to come back.
#include <cmath>
#include <cstdio>
#include <vector>

#include "switchyard/ep.hpp"

using namespace switchyard;      // NOLINT: an example
using namespace switchyard::ep;  // NOLINT

constexpr size_t kHidden = 256, kTopk = 4, kExpertsPerRank = 4, kPromptTokens = 512, kDecodeTokens = 8, kNumRequests = 3;

// The greater error; what is no number is the worst.
double worse(double a, double b) { return b <= a ? a : b; }

float expert_factor(size_t expert) { return 1.0f + float(expert % 7) / 4.0f; }

struct Batch {
  std::vector<float> tokens, weights, combined;
  std::vector<int64_t> topk_idx;

  Batch(size_t num_tokens, size_t rank, size_t num_experts) : combined(num_tokens * kHidden) {
    for (size_t i = 0; i < num_tokens * kTopk; ++i) {  // distinct experts, spread over the ranks
      topk_idx.push_back(int64_t((rank * 13 + i / kTopk * 5 + i % kTopk * (num_experts / kTopk)) % num_experts));
      weights.push_back(1.0f / float(i % kTopk + 2));
    }
    for (size_t i = 0; i < num_tokens * kHidden; ++i) tokens.push_back(float((rank + i * 3) % 101) / 8.0f);
  }
  size_t size() const { return tokens.size() / kHidden; }
  Tensor rows(std::vector<float>& values) const { return Tensor::of(values.data(), DType::kFloat32, {size(), kHidden}); }
  Tensor per_k(std::vector<float>& values) const { return Tensor::of(values.data(), DType::kFloat32, {size(), kTopk}); }

  // The weighted sum over the token's experts. The two algorithms multiply by the weight at different times, so they may differ in
  // the last bit.
  double worst_error() const {
    double worst = 0;
    for (size_t i = 0; i < combined.size(); ++i) {
      double sum = 0;
      for (size_t at = i / kHidden * kTopk; at < (i / kHidden + 1) * kTopk; ++at) {
        sum += double(weights[at]) * double(expert_factor(size_t(topk_idx[at]))) * double(tokens[i]);
      }
      worst = worse(worst, std::abs(sum - double(combined[i])) / std::fmax(1.0, std::abs(sum)));
    }
    return worst;
  }
};

GroupConfig config_for(Algorithm algorithm, size_t num_tokens, size_t num_experts) {
  GroupConfig config;
  config.algorithm = algorithm;
  config.num_experts = uint32_t(num_experts);
  config.max_tokens_per_rank = uint32_t(num_tokens);
  config.max_token_bytes = kHidden * sizeof(float);
  config.num_topk = kTopk;  // high throughput without a budget: the rank looks how many rows come
  return config;
}

// Many tokens at once: exchange the routing, look how many rows come, make room for them.
class Prefill {
 public:
  Prefill(const Comm& comm, size_t num_experts)
      : first_expert_(size_t(comm.rank()) * kExpertsPerRank),
        group_(comm, config_for(Algorithm::kHighThroughput, kPromptTokens, num_experts)),
        handle_(group_, Layout::kExpertMajor, kTopk) {}

  void run(Batch& batch, HostStream& stream) {
    std::vector<int32_t> counts(kExpertsPerRank), offsets(kExpertsPerRank), total(1);
    LayoutInfo info;
    info.expert_counters = Tensor::of(counts.data(), DType::kInt32, {counts.size()});
    info.expert_offsets = Tensor::of(offsets.data(), DType::kInt32, {offsets.size()});
    info.recv_total_counter = Tensor::of(total.data(), DType::kInt32, {1});
    handle_.update(Tensor::of(batch.topk_idx.data(), DType::kInt64, {batch.size(), kTopk}), info, stream);
    stream.synchronize();
    const auto num_rows = size_t(total[0]);
    std::vector<float> rows(num_rows * kHidden), row_weights(num_rows);
    const Tensor slots = Tensor::of(rows.data(), DType::kFloat32, {num_rows, kHidden});
    DispatchArgs dispatch;
    dispatch.tokens = batch.rows(batch.tokens);
    dispatch.topk_weights = batch.per_k(batch.weights);
    dispatch.out_tokens = slots;
    dispatch.out_topk_weights = Tensor::of(row_weights.data(), DType::kFloat32, {num_rows});
    handle_.dispatch(dispatch, stream);
    stream.synchronize();
    for (size_t expert = 0; expert < kExpertsPerRank; ++expert) {
      for (size_t row = size_t(offsets[expert]); row < size_t(offsets[expert] + counts[expert]); ++row) {
        const float factor = row_weights[row] * expert_factor(first_expert_ + expert);
        for (size_t i = 0; i < kHidden; ++i) rows[row * kHidden + i] *= factor;
      }
    }
    CombineArgs combine;
    combine.tokens = slots;
    combine.out_tokens = batch.rows(batch.combined);
    handle_.combine(combine, stream);
    stream.synchronize();
  }

 private:
  const size_t first_expert_;
  EpGroup group_;
  EpHandle handle_;
};

// A few tokens, again and again: everything has its place, nothing is asked first.
class Decode {
 public:
  Decode(const Comm& comm, size_t num_experts)
      : first_expert_(size_t(comm.rank()) * kExpertsPerRank),
        group_(comm, config_for(Algorithm::kLowLatency, kDecodeTokens, num_experts)),
        handle_(group_, Layout::kExpertMajor, kTopk),
        rows_per_expert_(group_.rows_per_expert()),
        counts_(kExpertsPerRank),
        rows_(kExpertsPerRank * rows_per_expert_ * kHidden) {}

  void run(Batch& batch, HostStream& stream) {
    const Tensor slots = Tensor::of(rows_.data(), DType::kFloat32, {kExpertsPerRank, rows_per_expert_, kHidden});
    handle_.update(Tensor::of(batch.topk_idx.data(), DType::kInt64, {batch.size(), kTopk}));
    DispatchArgs dispatch;
    dispatch.tokens = batch.rows(batch.tokens);
    dispatch.out_tokens = slots;
    dispatch.has_layout_info = true;
    dispatch.layout_info.expert_counters = Tensor::of(counts_.data(), DType::kInt32, {counts_.size()});
    handle_.dispatch(dispatch, stream);
    stream.synchronize();
    for (size_t expert = 0; expert < kExpertsPerRank; ++expert) {
      float* block = &rows_[expert * rows_per_expert_ * kHidden];
      for (size_t i = 0; i < size_t(counts_[expert]) * kHidden; ++i) block[i] *= expert_factor(first_expert_ + expert);
    }
    CombineArgs combine;
    combine.tokens = slots;
    combine.out_tokens = batch.rows(batch.combined);
    combine.out_topk_weights = batch.per_k(batch.weights);
    handle_.combine(combine, stream);
    stream.synchronize();
  }

 private:
  const size_t first_expert_;
  EpGroup group_;
  EpHandle handle_;
  const size_t rows_per_expert_;
  std::vector<int32_t> counts_;
  std::vector<float> rows_;
};

int main() try {
  const Comm comm = Comm::from_environment();
  const size_t num_experts = size_t(comm.num_ranks()) * kExpertsPerRank, me = size_t(comm.rank());
  Prefill prefill(comm, num_experts);
  Decode decode(comm, num_experts);
  HostStream stream;
  double worst = 0;
  for (size_t request = 0; request < kNumRequests; ++request) {
    Batch prompt(kPromptTokens - request * 100, me, num_experts);
    prefill.run(prompt, stream);
    worst = worse(worst, prompt.worst_error());
    for (size_t step = 0; step < 10; ++step) {
      Batch answer(kDecodeTokens, me, num_experts);
      decode.run(answer, stream);
      worst = worse(worst, answer.worst_error());
    }
  }
  std::printf("moe_serving: rank %zu of %d, %zu requests: prefill of up to %zu tokens, 10 decode steps of %zu each, worst relative "
              "error %.1e\n", me, comm.num_ranks(), kNumRequests, kPromptTokens, kDecodeTokens, worst);
  return worst < 1e-5 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "moe_serving: %s\n", error.what());
  return 1;
}
