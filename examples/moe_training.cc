// A training step of a mixture-of-experts layer with the high-throughput algorithm: forward, backward, and gradients of every
// kind checked against finite differences. One rank a process:
//
//   switchyard run -n 4 --nodes 2 -- moe_training          (or mpirun, torchrun, srun)
//
// The layer: y[t] = sum over k of w[t,k] * M[e] x[t], where e is token t's k-th expert and M[e] its matrix. The loss is half the
// squared distance of y from a target. It is quadratic in each of x, w and M, so central differences are exact but for rounding.
//
//   forward    dispatch x and w to the experts, combine w M x
//   backward   dispatch dL/dy to the experts (nothing but rows: the routing is known), combine w M^T dL/dy into dL/dx, and the
//              weights' gradients dL/dy . M x with it
#include <cmath>
#include <cstdio>
#include <vector>

#include "switchyard/device/gin.hpp"
#include "switchyard/ep.hpp"
#include "switchyard/platform/host.hpp"

using namespace switchyard;      // NOLINT: an example
using namespace switchyard::ep;  // NOLINT

constexpr size_t kNumTokens = 32, kHidden = 16, kTopk = 2, kExpertsPerRank = 2;

// The greater error; what is no number is the worst.
double worse(double a, double b) { return b <= a ? a : b; }

// A reproducible number in [-1, 1).
float noise(size_t seed) { return float((seed * 2654435761u >> 8) % 2000) / 1000.0f - 1.0f; }

// A number of every rank, added up in rank order, the same on all: one put with a signal to each, a wait for all.
class Sum {
 public:
  explicit Sum(const Comm& comm)
      : comm_(comm.device_comm({.num_signals = 1})), memory_(comm, size_t(comm.num_ranks()) * sizeof(double)) {}
  double over_ranks(double mine, HostStream& stream) {
    const uint64_t goal = ++num_sums_ * uint64_t(comm_.world.num_ranks);
    GinStatus status = GinStatus::kOk;
    stream.launch([&](const HostPlatform& platform) {
      const Gin<HostPlatform> gin(platform, comm_, 0);
      const uint64_t place = uint64_t(comm_.world.rank) * sizeof(double);
      for (int peer = 0; peer < comm_.world.num_ranks; ++peer) {
        static_cast<void>(gin.put_value(peer, memory_.view(), place, mine, SignalAdd{0}));
      }
      status = gin.wait_signal(0, goal);
    });
    stream.synchronize();
    if (status != GinStatus::kOk) throw Error(Status::remote("a rank did not come to a sum"));
    double sum = 0;
    for (int rank = 0; rank < comm_.world.num_ranks; ++rank) sum += static_cast<double*>(memory_.data())[rank];
    return sum;
  }

 private:
  DeviceComm comm_;
  SymmetricMemory memory_;
  uint64_t num_sums_ = 0;
};

class Layer {
 public:
  Layer(const Comm& comm, const GroupConfig& config)
      : me_(size_t(comm.rank())),
        group_(comm, config),
        handle_(group_, Layout::kExpertMajor, kTopk),
        sum_(comm),
        num_rows_(size_t(config.max_recv_tokens_per_rank)),
        counts_(kExpertsPerRank),
        offsets_(kExpertsPerRank),
        received_(num_rows_ * kHidden),
        results_(num_rows_ * kHidden),
        row_weights_(num_rows_),
        row_gradients_(num_rows_) {
    const size_t num_experts = config.num_experts;
    for (size_t i = 0; i < kNumTokens * kTopk; ++i) {  // distinct experts of every token, spread over the ranks
      topk_idx.push_back(int64_t((me_ * 5 + i / kTopk * 7 + i % kTopk * (num_experts / kTopk)) % num_experts));
      weights.push_back(0.5f + noise(i + 11 * me_) / 4);
    }
    for (size_t i = 0; i < kNumTokens * kHidden; ++i) {
      x.push_back(noise(i + 1000 * me_));
      target.push_back(noise(i + 77777 + 3000 * me_));
    }
    for (size_t i = 0; i < kExpertsPerRank * kHidden * kHidden; ++i) matrices.push_back(noise(i + 5000 * me_) / 4);
    // The routing does not change here, so it is exchanged once.
    LayoutInfo info;
    info.expert_counters = Tensor::of(counts_.data(), DType::kInt32, {counts_.size()});
    info.expert_offsets = Tensor::of(offsets_.data(), DType::kInt32, {offsets_.size()});
    handle_.update(Tensor::of(topk_idx.data(), DType::kInt64, {kNumTokens, kTopk}), info, stream_);
    stream_.synchronize();
  }

  // The loss over all ranks.
  double forward() {
    DispatchArgs dispatch;
    dispatch.tokens = rows(x);
    dispatch.topk_weights = Tensor::of(weights.data(), DType::kFloat32, {kNumTokens, kTopk});
    dispatch.out_tokens = slots(received_);
    dispatch.out_topk_weights = Tensor::of(row_weights_.data(), DType::kFloat32, {num_rows_});
    handle_.dispatch(dispatch, stream_);
    stream_.synchronize();
    for_each_row([&](size_t row, const float* matrix) {
      for (size_t i = 0; i < kHidden; ++i) {
        results_[row * kHidden + i] = row_weights_[row] * dot(matrix + i * kHidden, &received_[row * kHidden]);
      }
    });
    CombineArgs combine;
    combine.tokens = slots(results_);
    combine.out_tokens = rows(y_);
    handle_.combine(combine, stream_);
    stream_.synchronize();
    double loss = 0;
    for (size_t i = 0; i < y_.size(); ++i) loss += 0.5 * std::pow(double(y_[i]) - target[i], 2);
    return sum_.over_ranks(loss, stream_);
  }

  // After forward(): gradients of x, weights and matrices. Keeps what the experts received.
  void backward() {
    std::vector<float> dy(y_.size()), dy_rows(received_.size());
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = y_[i] - target[i];
    DispatchArgs dispatch;
    dispatch.direction = PassDirection::kBackward;
    dispatch.tokens = rows(dy);
    dispatch.out_tokens = slots(dy_rows);
    handle_.dispatch(dispatch, stream_);
    stream_.synchronize();
    matrix_gradients.assign(matrices.size(), 0);
    for_each_row([&](size_t row, const float* matrix) {
      const float* input = &received_[row * kHidden];
      const float* gradient = &dy_rows[row * kHidden];
      float* matrix_gradient = &matrix_gradients[size_t(matrix - matrices.data())];
      row_gradients_[row] = 0;
      for (size_t i = 0; i < kHidden; ++i) {
        row_gradients_[row] += gradient[i] * dot(matrix + i * kHidden, input);
        results_[row * kHidden + i] = 0;
        for (size_t j = 0; j < kHidden; ++j) {
          results_[row * kHidden + i] += row_weights_[row] * matrix[j * kHidden + i] * gradient[j];
          matrix_gradient[i * kHidden + j] += row_weights_[row] * gradient[i] * input[j];
        }
      }
    });
    CombineArgs combine;
    combine.direction = PassDirection::kBackward;
    combine.tokens = slots(results_);
    combine.topk_weights = Tensor::of(row_gradients_.data(), DType::kFloat32, {num_rows_});
    combine.out_tokens = rows(x_gradients);
    combine.out_topk_weights = Tensor::of(weight_gradients.data(), DType::kFloat32, {kNumTokens, kTopk});
    handle_.combine(combine, stream_);
    stream_.synchronize();
  }

  // How far the gradient at one place is from the loss's change there; other ranks change nothing. COLLECTIVE.
  double error_at(std::vector<float>& values, size_t place, float gradient, bool mine) {
    constexpr float kStep = 0.125f;
    const float value = values[place];
    if (mine) values[place] = value + kStep;
    const double above = forward();
    if (mine) values[place] = value - kStep;
    const double below = forward();
    values[place] = value;
    return mine ? std::abs((above - below) / (2 * kStep) - gradient) : 0;
  }

  std::vector<int64_t> topk_idx;
  std::vector<float> x, weights, target, matrices;
  std::vector<float> x_gradients = std::vector<float>(kNumTokens * kHidden);
  std::vector<float> weight_gradients = std::vector<float>(kNumTokens * kTopk), matrix_gradients;

 private:
  static Tensor rows(std::vector<float>& values) { return Tensor::of(values.data(), DType::kFloat32, {kNumTokens, kHidden}); }
  Tensor slots(std::vector<float>& values) const { return Tensor::of(values.data(), DType::kFloat32, {num_rows_, kHidden}); }
  static float dot(const float* a, const float* b) {
    float sum = 0;
    for (size_t i = 0; i < kHidden; ++i) sum += a[i] * b[i];
    return sum;
  }
  // Calls body(row, matrix of its expert) for the rows of this rank's experts.
  template <class Body>
  void for_each_row(Body body) {
    for (size_t expert = 0; expert < kExpertsPerRank; ++expert) {
      for (int i = 0; i < counts_[expert]; ++i) body(size_t(offsets_[expert] + i), &matrices[expert * kHidden * kHidden]);
    }
  }

  const size_t me_;
  HostStream stream_;
  EpGroup group_;
  EpHandle handle_;
  Sum sum_;
  const size_t num_rows_;
  std::vector<int32_t> counts_, offsets_;
  std::vector<float> received_, results_, row_weights_, row_gradients_;
  std::vector<float> y_ = std::vector<float>(kNumTokens * kHidden);
};

int main() try {
  const Comm comm = Comm::from_environment();
  const auto num_ranks = size_t(comm.num_ranks());
  GroupConfig config;
  config.algorithm = Algorithm::kHighThroughput;
  config.num_experts = uint32_t(num_ranks * kExpertsPerRank);
  config.max_tokens_per_rank = kNumTokens;
  config.max_recv_tokens_per_rank = uint32_t(num_ranks * kNumTokens * kTopk);
  config.max_token_bytes = kHidden * sizeof(float);
  Layer layer(comm, config);
  const double loss = layer.forward();
  layer.backward();

  double worst = 0;
  int num_checked = 0;
  for (size_t rank = 0; rank < num_ranks; ++rank) {  // one rank's values at a time, a few of each kind
    const bool mine = rank == size_t(comm.rank());
    for (size_t i = 0; i < 3; ++i) {
      const size_t token_place = (i * 211 + rank) % layer.x.size(), weight_place = (i * 31 + rank) % layer.weights.size();
      const size_t matrix_place = (i * 173 + rank) % layer.matrices.size();
      worst = worse(worst, layer.error_at(layer.x, token_place, layer.x_gradients[token_place], mine));
      worst = worse(worst, layer.error_at(layer.weights, weight_place, layer.weight_gradients[weight_place], mine));
      worst = worse(worst, layer.error_at(layer.matrices, matrix_place, layer.matrix_gradients[matrix_place], mine));
      num_checked += mine ? 3 : 0;
    }
  }
  std::printf("moe_training: rank %d of %zu, loss %.4f, %d gradients checked, the worst is off by %.1e\n", comm.rank(), num_ranks,
              loss, num_checked, worst);
  return worst < 1e-4 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "moe_training: %s\n", error.what());
  return 1;
}
