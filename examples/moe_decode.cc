// One decode step of a mixture-of-experts layer through the C++ face: dispatch, experts, combine. One rank a process:
//
//   switchyard run -n 4 -- moe_decode_cpp          (or mpirun, torchrun, srun)
//
// Every expert multiplies its rows by a factor of its own, so that each rank can work out alone what has to come back,
// and compares it bit for bit. examples/moe_decode.c is the same in C.
#include <cmath>
#include <cstdio>
#include <vector>

#include "switchyard/ep.hpp"

using namespace switchyard;      // NOLINT: an example
using namespace switchyard::ep;  // NOLINT

constexpr size_t kNumTokens = 64, kHidden = 1024, kTopk = 4, kExpertsPerRank = 8, kNumSteps = 10;

float expert_factor(size_t expert) { return 1.0f + float(expert % 7) / 4.0f; }

// What one rank feeds into the layer, and what it gets back.
struct Batch {
  std::vector<float> tokens, combined = std::vector<float>(kNumTokens * kHidden);
  std::vector<int64_t> topk_idx;
  std::vector<float> topk_weights;

  Batch(size_t rank, size_t num_experts) {
    for (size_t token = 0; token < kNumTokens; ++token) {
      for (size_t k = 0; k < kTopk; ++k) {  // distinct experts, spread over the ranks
        topk_idx.push_back(int64_t((rank * 13 + token * 5 + k * (num_experts / kTopk)) % num_experts));
        topk_weights.push_back(1.0f / float(k + 2));
      }
      for (size_t i = 0; i < kHidden; ++i) tokens.push_back(float((rank + token * 3 + i) % 101) / 8.0f);
    }
  }

  // The layer in one loop: the weighted sum over the token's experts, in the order of k.
  size_t num_wrong() const {
    size_t num_wrong = 0;
    for (size_t i = 0; i < combined.size(); ++i) {
      float sum = 0;
      for (size_t at = i / kHidden * kTopk; at < (i / kHidden + 1) * kTopk; ++at) {
        sum = std::fmaf(expert_factor(size_t(topk_idx[at])) * tokens[i], topk_weights[at], sum);
      }
      num_wrong += combined[i] != sum;
    }
    return num_wrong;
  }
};

// The experts of this rank, in place. A real program multiplies matrices here; it, too, reads how many rows each got.
void run_experts(float* rows, size_t rows_per_expert, const std::vector<int32_t>& num_rows, size_t first_expert) {
  for (size_t expert = 0; expert < num_rows.size(); ++expert) {
    float* const block = rows + expert * rows_per_expert * kHidden;
    for (size_t i = 0; i < size_t(num_rows[expert]) * kHidden; ++i) block[i] *= expert_factor(first_expert + expert);
  }
}

int main() try {
  const Comm comm = Comm::from_environment();
  const size_t num_experts = size_t(comm.num_ranks()) * kExpertsPerRank, me = size_t(comm.rank());
  GroupConfig config;
  config.num_experts = uint32_t(num_experts);
  config.max_tokens_per_rank = kNumTokens;
  config.max_token_bytes = kHidden * sizeof(float);
  EpGroup group(comm, config);
  EpHandle handle(group, Layout::kExpertMajor, kTopk);
  HostStream stream;

  Batch batch(me, num_experts);
  std::vector<int32_t> num_rows(size_t(group.num_local_experts()));
  // In symmetric memory the ranks of a node write rows straight to their places.
  const size_t rows_per_expert = group.rows_per_expert();
  const SymmetricMemory received(comm, num_rows.size() * rows_per_expert * kHidden * sizeof(float));
  const Tensor rows = Tensor::in(received.window(), 0, DType::kFloat32, {num_rows.size(), rows_per_expert, kHidden});

  handle.update(Tensor::of(batch.topk_idx.data(), DType::kInt64, {kNumTokens, kTopk}));
  DispatchArgs dispatch;
  dispatch.tokens = Tensor::of(batch.tokens.data(), DType::kFloat32, {kNumTokens, kHidden});
  dispatch.out_tokens = rows;
  dispatch.has_layout_info = true;
  dispatch.layout_info.expert_counters = Tensor::of(num_rows.data(), DType::kInt32, {num_rows.size()});
  CombineArgs combine;
  combine.tokens = rows;
  combine.out_tokens = Tensor::of(batch.combined.data(), DType::kFloat32, {kNumTokens, kHidden});
  combine.out_topk_weights = Tensor::of(batch.topk_weights.data(), DType::kFloat32, {kNumTokens, kTopk});

  for (size_t step = 0; step < kNumSteps; ++step) {
    handle.dispatch(dispatch, stream);
    stream.synchronize();
    run_experts(static_cast<float*>(received.data()), rows_per_expert, num_rows, me * kExpertsPerRank);
    handle.combine(combine, stream);
    stream.synchronize();
  }

  const size_t num_wrong = batch.num_wrong();
  std::printf(
      "moe_decode_cpp: rank %zu of %d, %zu experts, %zu tokens of %zu floats, top-%zu, %zu steps: %zu wrong values\n",
      me, comm.num_ranks(), num_experts, kNumTokens, kHidden, kTopk, kNumSteps, num_wrong);
  return num_wrong == 0 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "moe_decode_cpp: %s\n", error.what());
  return 1;
}
