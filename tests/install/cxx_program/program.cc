// Every token goes to one expert and comes back as it was.
#include <switchyard/ep.hpp>

#include <cstdio>
#include <vector>

using namespace switchyard;      // NOLINT: a program that uses nothing else
using namespace switchyard::ep;  // NOLINT

int main() try {
  const Comm comm = Comm::from_environment();
  comm.duplicate().barrier();
  const size_t num_tokens = 4, hidden = 64, num_experts = 8;
  EpGroup group(
      comm, {.num_experts = num_experts, .max_tokens_per_rank = num_tokens, .max_token_bytes = hidden * sizeof(float)});
  EpHandle handle(group, Layout::kExpertMajor, 1);
  const auto num_local = size_t(group.num_local_experts());

  std::vector<int64_t> experts;
  for (size_t token = 0; token < num_tokens; ++token) {
    experts.push_back(int64_t((3 * token + size_t(comm.rank())) % num_experts));
  }
  std::vector<float> tokens;
  for (size_t i = 0; i < num_tokens * hidden; ++i) tokens.push_back(float(i));
  std::vector<float> received(num_local * group.rows_per_expert() * hidden), combined(tokens.size());
  std::vector<float> weights(num_tokens, 1.0f);
  std::vector<int32_t> counts(num_local);

  HostStream stream;
  handle.update(Tensor::of(experts.data(), DType::kInt64, {num_tokens, 1}));
  DispatchArgs dispatch;
  dispatch.tokens = Tensor::of(tokens.data(), DType::kFloat32, {num_tokens, hidden});
  dispatch.out_tokens = Tensor::of(received.data(), DType::kFloat32, {num_local, group.rows_per_expert(), hidden});
  dispatch.layout_info.expert_counters = Tensor::of(counts.data(), DType::kInt32, {num_local});
  dispatch.has_layout_info = true;
  handle.dispatch(dispatch, stream);
  CombineArgs combine;
  combine.tokens = dispatch.out_tokens;
  combine.out_tokens = Tensor::of(combined.data(), DType::kFloat32, {num_tokens, hidden});
  combine.out_topk_weights = Tensor::of(weights.data(), DType::kFloat32, {num_tokens, 1});
  handle.combine(combine, stream);
  stream.synchronize();
  std::printf("rank %d of %d: %s\n", comm.rank(), comm.num_ranks(), combined == tokens ? "ok" : "wrong");
  return combined == tokens ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
