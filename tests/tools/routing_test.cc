#include "bench/routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace switchyard::bench {
namespace {

struct Drawn {
  std::vector<int64_t> experts;
  std::vector<float> weights;
  bool operator==(const Drawn&) const = default;
};

Drawn draw(const Routing& routing, int rank, int token_idx) {
  const auto topk = size_t(routing.spec().topk);
  Drawn drawn{std::vector<int64_t>(topk), std::vector<float>(topk)};
  routing.token(rank, token_idx, drawn.experts, drawn.weights);
  return drawn;
}

std::vector<uint16_t> make_row(const Routing& routing, int rank, int token_idx) {
  std::vector<uint16_t> row(64);
  routing.row(rank, token_idx, row);
  return row;
}

// How often each expert is chosen by `num_tokens` tokens.
std::vector<int> loads(const Routing& routing, int num_tokens) {
  std::vector<int> counts(size_t(routing.spec().num_experts));
  for (int t = 0; t < num_tokens; t++) {
    for (const int64_t expert : draw(routing, 0, t).experts) counts[size_t(expert)]++;
  }
  return counts;
}

TEST(Routing, ChoosesDistinctExpertsOfThoseThereAre) {
  for (const double skew : {0.0, 1.2}) {
    const Routing routing({.seed = 3, .num_experts = 16, .topk = 8, .skew = skew});
    for (int t = 0; t < 200; t++) {
      const Drawn drawn = draw(routing, 1, t);
      EXPECT_EQ(std::set(drawn.experts.begin(), drawn.experts.end()).size(), 8u);
      EXPECT_GE(*std::min_element(drawn.experts.begin(), drawn.experts.end()), 0);
      EXPECT_LT(*std::max_element(drawn.experts.begin(), drawn.experts.end()), 16);
    }
  }
}

TEST(Routing, CanChooseAllExpertsEvenWhenMostAreRare) {
  const Routing routing({.seed = 1, .num_experts = 64, .topk = 64, .skew = 8});
  std::vector<int64_t> experts = draw(routing, 0, 0).experts;
  std::sort(experts.begin(), experts.end());
  for (size_t i = 0; i < experts.size(); i++) EXPECT_EQ(experts[i], int64_t(i));
}

TEST(Routing, IsAFunctionOfSeedRankAndToken) {
  const Routing routing({.seed = 5}), same({.seed = 5}), other({.seed = 6});
  EXPECT_EQ(draw(routing, 2, 9), draw(same, 2, 9));
  EXPECT_NE(draw(routing, 2, 9), draw(other, 2, 9));
  EXPECT_NE(draw(routing, 2, 9), draw(routing, 3, 9));
  EXPECT_NE(draw(routing, 2, 9), draw(routing, 2, 10));
  EXPECT_EQ(make_row(routing, 2, 9), make_row(same, 2, 9));
  EXPECT_NE(make_row(routing, 2, 9), make_row(other, 2, 9));
  EXPECT_NE(make_row(routing, 2, 9), make_row(routing, 9, 2));
}

TEST(Routing, StaysTheSameFromReleaseToRelease) {
  // Figures of different versions are comparable only as long as these numbers hold.
  const Drawn drawn = draw(Routing({.seed = 1, .num_experts = 256, .topk = 4}), 0, 0);
  EXPECT_EQ(drawn.experts, (std::vector<int64_t>{63, 126, 145, 76}));
  EXPECT_EQ(make_row(Routing({.seed = 1}), 0, 0)[0], 0xbeb0);
}

TEST(Routing, LoadsExpertsEvenlyWithoutSkew) {
  const auto counts = loads(Routing({.num_experts = 32, .topk = 4}), 8000);  // 1000 expected, deviation about 30
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 850);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 1150);
}

TEST(Routing, LoadsAFewExpertsMostWithSkew) {
  auto counts = loads(Routing({.num_experts = 32, .topk = 1, .skew = 1}), 8000);
  std::sort(counts.rbegin(), counts.rend());
  EXPECT_NEAR(counts[0] / 8000.0, 1 / 4.058, 0.02);  // the 32nd harmonic number
  EXPECT_NEAR(counts[0] / double(counts[1]), 2.0, 0.3);
}

TEST(Routing, GivesPositiveWeightsThatSumToOne) {
  const Routing routing({.topk = 8});
  for (int t = 0; t < 100; t++) {
    float sum = 0;
    for (const float weight : draw(routing, 0, t).weights) {
      EXPECT_GT(weight, 0);
      sum += weight;
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(Routing, FillsRowsWithNormalNumbersOfBothSigns) {
  int num_negative = 0;
  for (const uint16_t element : make_row(Routing({}), 0, 0)) {
    const int exponent = element >> 7 & 0xff;
    EXPECT_GE(exponent, 125);
    EXPECT_LE(exponent, 127);
    num_negative += element >> 15;
  }
  EXPECT_GT(num_negative, 16);
  EXPECT_LT(num_negative, 48);
}

TEST(Placement, GivesEveryExpertOneOwnerInContiguousBlocks) {
  for (const int num_experts : {1, 3, 8, 13, 256}) {
    for (const int num_ranks : {1, 2, 3, 5, 8}) {
      const Placement placement{num_experts, num_ranks};
      int expert = 0;
      for (int rank = 0; rank < num_ranks; rank++) {
        EXPECT_EQ(placement.first(rank), expert);
        EXPECT_LE(placement.num_local(rank), placement.max_local());
        for (int local = 0; local < placement.num_local(rank); local++) EXPECT_EQ(placement.owner(expert++), rank);
      }
      EXPECT_EQ(expert, num_experts);
    }
  }
}

}  // namespace
}  // namespace switchyard::bench
