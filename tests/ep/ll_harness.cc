#include "ep/ll_harness.hpp"

#include <cstring>
#include <numeric>

namespace switchyard::testing {
namespace {

constexpr uint8_t kUntouched = 0xa5;

// Memory of the runtime, as a window when asked for; freed in order.
class Buffer {
 public:
  Buffer(Communicator& comm, size_t num_bytes, bool window, uint8_t fill) : comm_(comm), num_bytes_(num_bytes) {
    // A window has one size on all ranks; a tensor in it may be smaller.
    size_t allocated = std::max<size_t>(num_bytes, 16);
    if (window) {
      const auto sizes = comm.exchange(uint64_t(allocated));
      for (const uint64_t size : sizes.value()) allocated = std::max<size_t>(allocated, size);
    }
    data_ = comm.runtime().allocate(allocated).value();
    std::memset(data_, fill, num_bytes);
    if (window) window_ = comm.register_window(data_, allocated).value();
  }
  ~Buffer() {
    if (window_ != nullptr) EXPECT_OK(comm_.deregister_window(window_));
    EXPECT_OK(comm_.runtime().free(data_));
  }
  Buffer(const Buffer&) = delete;

  template <class T = uint8_t>
  T* as() const {
    return static_cast<T*>(data_);
  }
  template <class T = uint8_t>
  std::span<T> span() const {
    return {as<T>(), num_bytes_ / sizeof(T)};
  }
  ep::Tensor tensor(DType dtype, std::initializer_list<size_t> sizes) const {
    return window_ ? ep::Tensor::in(*window_, 0, dtype, sizes) : ep::Tensor::of(data_, dtype, sizes);
  }

 private:
  static void EXPECT_OK(const Status& status) {
    if (!status.ok()) fprintf(stderr, "%s\n", status.to_string().c_str());
  }
  Communicator& comm_;
  size_t num_bytes_;
  void* data_;
  Window* window_ = nullptr;
};

class RankCase {
 public:
  RankCase(Communicator& comm, StreamRef stream, const oracle::Case& c, LlMode mode)
      : comm_(comm),
        stream_(stream),
        c_(c),
        mode_(mode),
        rank_(comm.rank()),
        num_tokens_(size_t(c.num_tokens[size_t(rank_)])),
        num_rows_(size_t(c.num_blocks(rank_)) * size_t(c.rows_per_block())),
        topk_(size_t(c.topk)),
        out_tokens_(comm, num_rows_ * c.output_token_bytes(), mode.windows, kUntouched),
        out_scales_(comm, num_rows_ * c.output_scale_bytes(), mode.windows && c.output_scale_bytes() > 0, kUntouched),
        results_(comm, num_rows_ * c.combine_row_bytes(), mode.windows, 0x5a) {}

  std::string run(const oracle::Dispatch& expected, const oracle::ExpertOutputs& outputs,
                  const std::vector<uint8_t>& combined) {
    auto group = ep::Group::create(comm_, group_config_for(c_));
    if (!group.ok()) return group.status().to_string();
    const auto layout =
        c_.layout == oracle::Layout::kExpertMajor ? ep::Layout::kExpertMajor : ep::Layout::kRankMajor;
    auto handle = ep::Handle::create(*group.value(), layout, c_.topk, nullptr, 0);
    if (!handle.ok()) return handle.status().to_string();
    if (Status updated = handle.value()->update(indices()); !updated.ok()) return updated.to_string();
    for (int round = 0; round < mode_.num_rounds; ++round) {
      std::string difference = dispatch(*handle.value(), expected);
      if (difference.empty()) difference = combine(*handle.value(), outputs, combined);
      if (!difference.empty()) {
        comm_.abort(difference);
        return text("rank ", rank_, " round ", round, ": ", difference);
      }
    }
    return {};
  }

 private:
  ep::Tensor indices() {
    const auto& idx = c_.topk_idx[size_t(rank_)];
    idx64_ = idx;
    idx32_.assign(idx.begin(), idx.end());
    if (c_.int32_indices) return ep::Tensor::of(idx32_.data(), DType::kInt32, {num_tokens_, topk_});
    return ep::Tensor::of(idx64_.data(), DType::kInt64, {num_tokens_, topk_});
  }

  std::string finish(ep::Handle& handle, const Status& posted) {
    if (!posted.ok()) return posted.to_string();
    if (Status completed = handle.complete(stream_); !completed.ok()) return completed.to_string();
    const Status done = comm_.runtime().synchronize(stream_, Deadline::after_ns(60 * kSecond));
    return done.ok() ? "" : done.to_string();
  }

  std::string dispatch(ep::Handle& handle, const oracle::Dispatch& expected) {
    const bool rank_major = c_.layout == oracle::Layout::kRankMajor;
    const auto outer = size_t(c_.num_blocks(rank_));
    const auto inner = size_t(c_.rows_per_block());
    std::memset(out_tokens_.as(), kUntouched, out_tokens_.span().size());
    std::memset(out_scales_.as(), kUntouched, out_scales_.span().size());
    counters_.assign(outer, -7);
    out_idx_.assign(rank_major ? num_rows_ * topk_ : 0, -7);
    out_weights_.assign(rank_major ? num_rows_ * topk_ : 0, std::bit_cast<float>(0xa5a5a5a5u));
    weights_ = c_.topk_weights[size_t(rank_)];
    tokens_ = c_.tokens[size_t(rank_)];
    ep::DispatchArgs args;
    args.tokens = ep::Tensor::of(tokens_.data(), c_.dtype, {num_tokens_, size_t(c_.hidden)});
    DType out_dtype = c_.dtype;
    if (c_.dispatch_recipe == oracle::DispatchRecipe::kForward) {
      args.quant = ep::DispatchQuant::kForward;
      scales_ = c_.scales[size_t(rank_)];
      args.scales = ep::Tensor::of(scales_.data(), c_.scale_dtype, {num_tokens_, size_t(c_.scale_width)});
      args.out_scales = out_scales_.tensor(c_.scale_dtype, {outer, inner, size_t(c_.scale_width)});
    } else if (c_.dispatch_recipe == oracle::DispatchRecipe::kDsFp8) {
      args.quant = ep::DispatchQuant::kFusedFp8;
      args.round_scales = c_.round_scales;
      out_dtype = DType::kFloat8E4M3;
      args.out_scales = out_scales_.tensor(DType::kFloat32, {outer, inner, size_t(c_.hidden) / 128});
    }
    args.out_tokens = out_tokens_.tensor(out_dtype, {outer, inner, size_t(c_.hidden)});
    args.has_layout_info = true;
    const ep::Tensor counters = ep::Tensor::of(counters_.data(), DType::kInt32, {outer});
    if (rank_major) {
      args.topk_weights = ep::Tensor::of(weights_.data(), DType::kFloat32, {num_tokens_, topk_});
      args.out_topk_idx = ep::Tensor::of(out_idx_.data(), DType::kInt32, {outer, inner, topk_});
      args.out_topk_weights = ep::Tensor::of(out_weights_.data(), DType::kFloat32, {outer, inner, topk_});
      args.layout_info.src_rank_counters = counters;
      args.layout_info.id_kind = c_.id_kind == oracle::IdKind::kGlobal ? ep::IdKind::kGlobal : ep::IdKind::kLocal;
    } else {
      args.layout_info.expert_counters = counters;
    }
    args.send_only = mode_.staged;
    std::string failure = finish(handle, handle.dispatch(args, stream_));
    if (!failure.empty()) return "dispatch: " + failure;
    const oracle::DispatchView view{out_tokens_.span(), out_scales_.span(), counters_, out_idx_, out_weights_};
    return oracle::check_dispatch(c_, expected, rank_, view, kUntouched);
  }

  std::string combine(ep::Handle& handle, const oracle::ExpertOutputs& outputs, const std::vector<uint8_t>& expected) {
    const auto outer = size_t(c_.num_blocks(rank_));
    const auto inner = size_t(c_.rows_per_block());
    const size_t width = size_t(c_.combine_hidden ? c_.combine_hidden : c_.hidden);
    const bool nvfp4 = c_.combine_recipe == oracle::CombineRecipe::kNvfp4;
    row_scales_.assign(nvfp4 ? num_rows_ : 0, 0.0f);
    oracle::scatter_outputs(c_, outputs, rank_, results_.span(), row_scales_);
    out_.assign(num_tokens_ * c_.combine_row_bytes(), kUntouched);
    ep::CombineArgs args;
    args.tokens = results_.tensor(c_.combine_dtype, {outer, inner, width});
    args.out_tokens = ep::Tensor::of(out_.data(), c_.combine_dtype, {num_tokens_, width});
    args.out_topk_weights = ep::Tensor::of(weights_.data(), DType::kFloat32, {num_tokens_, topk_});
    if (nvfp4) {
      args.quant = ep::CombineQuant::kNvfp4;
      args.scales = ep::Tensor::of(row_scales_.data(), DType::kFloat32, {outer, inner, 1});
    }
    args.send_only = mode_.staged;
    std::string failure = finish(handle, handle.combine(args, stream_));
    if (!failure.empty()) return "combine: " + failure;
    return oracle::check_combine(c_, rank_, expected, out_);
  }

  Communicator& comm_;
  StreamRef stream_;
  const oracle::Case& c_;
  LlMode mode_;
  int rank_;
  size_t num_tokens_, num_rows_, topk_;
  Buffer out_tokens_, out_scales_, results_;
  std::vector<int64_t> idx64_;
  std::vector<int32_t> idx32_, counters_, out_idx_;
  std::vector<float> weights_, out_weights_, row_scales_;
  std::vector<uint8_t> tokens_, scales_, out_;
};

}  // namespace

ep::GroupConfig group_config_for(const oracle::Case& c) {
  ep::GroupConfig config;
  config.num_experts = uint32_t(c.num_experts);
  config.max_tokens_per_rank = uint32_t(c.max_tokens);
  config.max_token_bytes =
      uint32_t(std::max(c.output_token_bytes() + c.output_scale_bytes(), c.combine_row_bytes()));
  config.timeout_ns = 60 * kSecond;
  return config;
}

std::string run_ll_case(Communicator& comm, StreamRef stream, const oracle::Case& c, const oracle::Dispatch& dispatch,
                        const oracle::ExpertOutputs& outputs, const std::vector<std::vector<uint8_t>>& combined,
                        LlMode mode) {
  RankCase rank_case(comm, stream, c, mode);
  return rank_case.run(dispatch, outputs, combined[size_t(comm.rank())]);
}

}  // namespace switchyard::testing
