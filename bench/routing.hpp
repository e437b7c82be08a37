// The inputs of every expert-parallel benchmark: who sends which token to which experts, with which weights, and
// what the rows hold. Everything is a pure function of (seed, rank, token), so that the library, the baselines and
// the check of the results see the same rows without exchanging them.
//
// THREADS    a Routing is immutable once made; any thread may ask it.
// OWNERSHIP  values.
// ERRORS     none: REQUIRES 1 <= topk <= num_experts, num_ranks >= 1, skew >= 0.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace switchyard::bench {

// The splitmix64 generator: a counter through a mixing function, so any (seed, rank, token) can start a stream.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound) without a division; its bias is below bound / 2^64.
  uint64_t below(uint64_t bound) { return uint64_t((static_cast<unsigned __int128>(next()) * bound) >> 64); }

 private:
  uint64_t state_;
};

// A stream of its own for one token; `purpose` keeps a token's routing and its row contents independent.
inline SplitMix64 token_stream(uint64_t seed, uint64_t purpose, int rank, int token_idx) {
  const uint64_t job = SplitMix64(seed ^ (purpose << 56)).next();
  return SplitMix64(SplitMix64(job ^ (uint64_t(uint32_t(rank)) << 32 | uint32_t(token_idx))).next());
}

// Contiguous blocks of experts; where they don't divide evenly the first ranks hold one more.
struct Placement {
  int num_experts;
  int num_ranks;

  int num_local(int rank) const { return num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0); }
  int max_local() const { return num_local(0); }
  int first(int rank) const {
    return rank * (num_experts / num_ranks) + std::min(rank, num_experts % num_ranks);
  }
  int owner(int expert) const {
    const int base = num_experts / num_ranks, extra = num_experts % num_ranks;
    const int in_larger_blocks = extra * (base + 1);
    return expert < in_larger_blocks ? expert / (base + 1) : extra + (expert - in_larger_blocks) / base;
  }
};

struct RoutingSpec {
  uint64_t seed = 1;
  int num_experts = 256;
  int topk = 8;
  double skew = 0;  // Zipf exponent of the experts' popularity; 0 is uniform
};

class Routing {
 public:
  explicit Routing(const RoutingSpec& spec) : spec_(spec), popularity_(size_t(spec.num_experts)) {
    // Popular experts are strewn over the ranks by a seeded shuffle: real models don't sort theirs by load either.
    std::vector<int> order(popularity_.size());
    std::iota(order.begin(), order.end(), 0);
    SplitMix64 random = token_stream(spec.seed, kPopularity, 0, 0);
    for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[random.below(i)]);
    for (size_t place = 0; place < order.size(); place++) {
      const double share = std::pow(double(place + 1), -spec.skew);
      popularity_[size_t(order[place])] = std::max<uint64_t>(1, uint64_t(share * double(kTopPopularity)));
    }
    total_popularity_ = std::accumulate(popularity_.begin(), popularity_.end(), uint64_t{0});
  }

  const RoutingSpec& spec() const { return spec_; }

  // EFFECTS fills `experts` (topk distinct ones, in order of drawing) and `weights` (positive, summing to about 1).
  // Drawing without replacement by removal rather than by rejection: its cost doesn't explode with skew or topk.
  void token(int rank, int token_idx, std::span<int64_t> experts, std::span<float> weights) const {
    SplitMix64 random = token_stream(spec_.seed, kExperts, rank, token_idx);
    uint64_t remaining = total_popularity_;
    for (size_t k = 0; k < size_t(spec_.topk); k++) {
      experts[k] = draw(random.below(remaining), experts.first(k));
      remaining -= popularity_[size_t(experts[k])];
    }
    float sum = 0;
    for (size_t k = 0; k < size_t(spec_.topk); k++) {
      weights[k] = float((random.next() >> 40) + 1) * 0x1p-24f;
      sum += weights[k];
    }
    for (size_t k = 0; k < size_t(spec_.topk); k++) weights[k] /= sum;
  }

  // EFFECTS fills a BF16 row: normal numbers of both signs with magnitudes in [0.25, 2), so that sums neither
  // overflow nor meet subnormals and any row differs from any other.
  void row(int rank, int token_idx, std::span<uint16_t> bf16) const {
    SplitMix64 random = token_stream(spec_.seed, kRows, rank, token_idx);
    uint64_t bits = 0;
    for (size_t i = 0; i < bf16.size(); i++) {
      if (i % 4 == 0) bits = random.next();
      const uint16_t sign_and_mantissa = uint16_t(bits) & 0x807f;
      const uint16_t exponent = uint16_t(125 + (bits >> 7 & 0xff) % 3);
      bf16[i] = uint16_t(sign_and_mantissa | exponent << 7);
      bits >>= 16;
    }
  }

 private:
  enum Purpose : uint64_t { kPopularity = 1, kExperts = 2, kRows = 3 };
  static constexpr uint64_t kTopPopularity = uint64_t{1} << 32;

  // The expert whose share of the not yet taken popularity holds `point`.
  int64_t draw(uint64_t point, std::span<const int64_t> taken) const {
    for (size_t expert = 0; expert + 1 < popularity_.size(); expert++) {
      if (std::find(taken.begin(), taken.end(), int64_t(expert)) != taken.end()) continue;
      if (point < popularity_[expert]) return int64_t(expert);
      point -= popularity_[expert];
    }
    return int64_t(popularity_.size() - 1);
  }

  RoutingSpec spec_;
  std::vector<uint64_t> popularity_;
  uint64_t total_popularity_ = 0;
};

}  // namespace switchyard::bench
