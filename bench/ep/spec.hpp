// What `switchyard bench ep` measures: one job of the benchmark, as the command line gives it and as it travels to the
// ranks. Values equal those of the command line and of the JSON result.
//
// THREADS    a value.
// ERRORS     validate() names the option, what is allowed and why.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/routing.hpp"
#include "switchyard/dtype.hpp"
#include "switchyard/quantise.hpp"
#include "switchyard/status.hpp"

namespace switchyard::bench {

struct EpSpec {
  std::string job = "round_trip";  // which measurement (jobs.hpp)
  std::string mode = "ll";
  std::string layout = "em";
  std::string platform = "host";
  std::string net;  // empty: the library's choice
  int ranks = 8;
  int nodes = 1;
  int tokens = 128;
  int hidden = 7168;
  int topk = 8;
  int experts = 256;
  std::string dtype = "bf16";
  std::string quant = "none";
  bool zero_copy = false;
  double skew = 0;
  uint64_t seed = 1;
  int iters = 30;
  int warmup = 5;
  bool verify = true;
  bool threads = false;  // ranks are threads of one process
  bool bound_to_cores = false;  // each rank with all its threads, where ranks are processes
  bool gather_scatter = false;  // also measure all-gather + reduce-scatter, in turns

  bool high_throughput() const { return mode == "ht"; }
  bool expert_major() const { return layout == "em"; }
  bool fp8() const { return quant == "fp8"; }
  bool nvfp4() const { return quant == "nvfp4"; }
  RoutingSpec routing() const { return {seed, experts, topk, skew}; }
  Placement placement() const { return {experts, ranks}; }

  DType element() const {
    return dtype == "fp32" ? DType::kFloat32 : dtype == "fp16" ? DType::kFloat16 : DType::kBfloat16;
  }
  // Rows as they are sent in, as they arrive, and as experts give them back.
  size_t input_bytes() const { return size_t(hidden) * dtype_bytes(element()); }
  size_t num_scales() const { return fp8() ? num_fp8_scales(size_t(hidden)) : 0; }
  size_t scale_bytes() const { return num_scales() * sizeof(float); }
  size_t arriving_bytes() const { return fp8() ? size_t(hidden) : input_bytes(); }
  size_t result_bytes() const { return input_bytes(); }
  // What a token's owner has to read of each result.
  size_t contribution_bytes() const { return nvfp4() ? Nvfp4Layout{size_t(hidden)}.packet_bytes() : result_bytes(); }
  // Rows of a low-latency output tensor: [outer, inner, hidden].
  size_t outer(int rank) const { return size_t(expert_major() ? placement().num_local(rank) : ranks); }
  size_t inner() const { return expert_major() ? size_t(ranks) * size_t(tokens) : size_t(tokens); }
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EpSpec, job, mode, layout, platform, net, ranks, nodes, tokens, hidden, topk,
                                   experts, dtype, quant, zero_copy, skew, seed, iters, warmup, verify, threads, bound_to_cores,
                                   gather_scatter)

inline Status validate(const EpSpec& spec) {
  if (spec.platform == "cuda") {
#if !defined(SWITCHYARD_HAVE_CUDA)
    return Status::invalid_usage(
        "--platform cuda: built without CUDA; configure with -DSWITCHYARD_CUDA=ON, or use "
        "--platform host");
#else
    if (!spec.threads) return Status::internal("ranks that share a GPU are threads of one process");
#endif
  }
  if (spec.layout == "flat" ? !spec.high_throughput() : spec.layout == "rm" && spec.high_throughput()) {
    return Status::invalid_argument(text("--layout ", spec.layout, " with --mode ", spec.mode,
                                         ": low latency (ll) has em and rm, high throughput (ht) has flat and em"));
  }
  if (spec.mode == "auto" && (spec.quant != "none" || spec.platform != "host")) {
    return Status::invalid_argument("--mode auto compares plain rows on --platform host: leave --quant and --platform out");
  }
  if (spec.high_throughput() && (spec.quant != "none" || spec.platform != "host")) {
    return Status::invalid_argument("--mode ht moves plain rows on --platform host: leave --quant and --platform out");
  }
  if (spec.topk > spec.experts) {
    return Status::invalid_argument(
        text("--topk is ", spec.topk, ", allowed 1..", spec.experts, " with --experts ", spec.experts));
  }
  if (spec.nodes > spec.ranks) {
    return Status::invalid_argument(text("--nodes is ", spec.nodes, ", allowed 1..", spec.ranks, " with --ranks ",
                                         spec.ranks, ": every node needs a rank"));
  }
  if (spec.threads && spec.nodes > 1) {
    return Status::invalid_argument("--threads and --nodes exclude each other: threads of one process are on one node");
  }
  if (spec.quant != "none" && spec.dtype != "bf16") {
    return Status::invalid_argument(text("--quant ", spec.quant, " needs --dtype bf16, not ", spec.dtype));
  }
  const int multiple = spec.fp8() ? 128 : spec.nvfp4() ? 32 : int(16 / dtype_bytes(spec.element()));
  if (spec.hidden % multiple != 0) {
    return Status::invalid_argument(text("--hidden is ", spec.hidden, ", must be a multiple of ", multiple,
                                         " with --dtype ", spec.dtype, " and --quant ", spec.quant));
  }
  return {};
}

}  // namespace switchyard::bench
