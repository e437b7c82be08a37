// The combines of the model, worked out on paper; the case is in ht_small_case.hpp.
#include <gtest/gtest.h>

#include "oracle/ht_oracle.hpp"
#include "oracle/ht_small_case.hpp"

namespace switchyard::oracle {
namespace {

using Floats = std::vector<float>;

HtCombine combine(const HtCase& c, const HtExpertOutputs& outputs) {
  return expected_ht_combine(c, expected_ht_dispatch(c), outputs);
}

// Rows of the flat case: rank 0: tokens 0.0, 0.1, 1.0, 1.1; rank 1: tokens 0.0, 1.0, 1.1.
HtExpertOutputs flat_outputs() {
  return {.rows = {bf16({1, 2, 3, 4, 5, 6, 7, 8}), bf16({10, 20, 30, 40, 50, 60})},
          .weight_gradients = {{0, 1, 2, 100, 101, 102, 200, 201, 202, 300, 301, 302},
                               {1000, 1001, 1002, 1100, 1101, 1102, 1200, 1201, 1202}}};
}

TEST(HtFlatCombine, SumsOneUnweightedRowPerRank) {
  const HtCombine combined = combine(small_ht_case(HtLayout::kFlat), flat_outputs());
  EXPECT_EQ(combined.tokens[0], bf16({1 + 10, 2 + 20, 3, 4, 0, 0}));
  EXPECT_EQ(combined.tokens[1], bf16({5 + 30, 6 + 40, 7 + 50, 8 + 60}));
}

TEST(HtFlatCombine, LeavesDroppedRowsOut) {
  HtExpertOutputs outputs = flat_outputs();
  outputs.rows[0].resize(3 * 4);
  const HtCombine combined = combine(small_drop_case(HtLayout::kFlat, 3), outputs);
  EXPECT_EQ(combined.tokens[1], bf16({5 + 30, 6 + 40, 50, 60}));
}

TEST(HtFlatCombine, ReturnsGradientsInTheOrderOfTheEntries) {
  for (const IdKind id_kind : {IdKind::kLocal, IdKind::kGlobal}) {
    HtCase c = small_ht_case(HtLayout::kFlat);
    c.id_kind = id_kind;
    const HtCombine combined = combine(c, flat_outputs());
    EXPECT_EQ(combined.weight_gradients[0], (Floats{1000, 0, 1001, 100, 100, 0, 0, 0, 0}));
    EXPECT_EQ(combined.weight_gradients[1], (Floats{200, 201, 1100, 1200, 300, 1200}));
  }
}

TEST(HtFlatCombine, ReturnsNoGradientOfDroppedRows) {
  HtExpertOutputs outputs = flat_outputs();
  outputs.rows[0].resize(3 * 4);
  outputs.weight_gradients[0].resize(9);
  const HtCombine combined = combine(small_drop_case(HtLayout::kFlat, 3), outputs);
  EXPECT_EQ(combined.weight_gradients[1], (Floats{200, 201, 1100, 1200, 0, 1200}));
}

// Rows of the expert-major case: rank 0: expert 0: tokens 0.0, 1.0, 1.1, expert 1: 0.1, 1.0; rank 1: expert 2:
// 0.0, 1.0, expert 3: 0.0, 1.1.
HtExpertOutputs expert_major_outputs() {
  return {.rows = {bf16({1, 1, 2, 2, 3, 3, 4, 4, 5, 5}), bf16({10, 10, 20, 20, 30, 30, 40, 40})},
          .weight_gradients = {{1, 2, 3, 4, 5}, {101, 102, 103, 104}}};
}

// A duplicate counts once.
TEST(HtExpertMajorCombine, SumsOneUnweightedRowPerExpert) {
  const HtCombine combined = combine(small_ht_case(HtLayout::kExpertMajor), expert_major_outputs());
  EXPECT_EQ(combined.tokens[0], bf16({10 + 1 + 30, 41, 4, 4, 0, 0}));
  EXPECT_EQ(combined.tokens[1], bf16({2 + 5 + 20, 27, 40 + 3, 43}));
}

TEST(HtExpertMajorCombine, ReturnsGradientsInTheOrderOfTheEntries) {
  const HtCombine combined = combine(small_ht_case(HtLayout::kExpertMajor), expert_major_outputs());
  EXPECT_EQ(combined.weight_gradients[0], (Floats{101, 1, 103, 4, 4, 0, 0, 0, 0}));
  EXPECT_EQ(combined.weight_gradients[1], (Floats{2, 5, 102, 104, 3, 104}));
}

TEST(HtExpertMajorCombine, LeavesDroppedRowsOut) {
  HtExpertOutputs outputs = expert_major_outputs();
  outputs.rows[0].resize(3 * 4);
  outputs.rows[1].resize(3 * 4);
  const HtCombine combined = combine(small_drop_case(HtLayout::kExpertMajor, 3), outputs);
  EXPECT_EQ(combined.tokens[0], bf16({41, 41, 0, 0, 0, 0}));  // token 1 lost its only row
  EXPECT_EQ(combined.tokens[1], bf16({2 + 20, 22, 3, 3}));
  EXPECT_EQ(combined.weight_gradients[0], (Floats{101, 1, 103, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(combined.weight_gradients[1], (Floats{2, 0, 102, 0, 3, 0}));
}

TEST(HtExpertMajorCombine, LeavesPaddingOut) {
  HtCase c = small_ht_case(HtLayout::kExpertMajor);
  c.alignment = 4;
  HtExpertOutputs outputs;
  outputs.rows = {bf16({1, 1, 2, 2, 3, 3, 99, 99, 4, 4, 5, 5, 99, 99, 99, 99}),
                  bf16({10, 10, 20, 20, 99, 99, 99, 99, 30, 30, 40, 40, 99, 99, 99, 99})};
  outputs.weight_gradients = {Floats(8, 0), Floats(8, 0)};
  const HtCombine combined = combine(c, outputs);
  EXPECT_EQ(combined.tokens[0], bf16({41, 41, 4, 4, 0, 0}));
  EXPECT_EQ(combined.tokens[1], bf16({27, 27, 43, 43}));
}

// ---- arithmetic: every rank has one expert, one element a row; only `home` has a token ----

struct Lone {
  int home = 0;
  std::vector<int64_t> entries;
  std::vector<int> nodes;
  DType dtype = DType::kFloat32;
};

// values: by expert; an expert that no entry names has no row.
float combine_lone(const Lone& lone, const Floats& values) {
  HtCase c;
  c.num_ranks = c.num_experts = static_cast<int>(values.size());
  c.topk = static_cast<int>(lone.entries.size());
  c.hidden = 1;
  c.combine_dtype = lone.dtype;
  c.node_of_rank = lone.nodes;
  HtExpertOutputs outputs;
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    const bool is_home = rank == lone.home;
    c.num_tokens.push_back(is_home ? 1 : 0);
    c.topk_idx.push_back(is_home ? lone.entries : std::vector<int64_t>{});
    c.topk_weights.push_back(Floats(is_home ? lone.entries.size() : 0, 1.0f));
    c.tokens.push_back(std::vector<uint8_t>(is_home ? 2 : 0));
    outputs.rows.push_back(encode_row(lone.dtype, Floats{values[rank]}));
    outputs.weight_gradients.push_back(Floats(c.topk, 0));
  }
  return decode_row(lone.dtype, combine(c, outputs).tokens[lone.home])[0];
}

constexpr float kBig = 0x1p30f;  // takes a 1 that is added to it away

TEST(HtCombine, AddsRowsOfTheOwnNodeInTheOrderOfTheEntries) {
  EXPECT_EQ(combine_lone({0, {0, 1, 2}, {}}, {1, kBig, -kBig}), 0);
  EXPECT_EQ(combine_lone({0, {1, 2, 0}, {}}, {1, kBig, -kBig}), 1);
  EXPECT_EQ(combine_lone({2, {1, -1, 2, 0}, {}}, {1, kBig, -kBig}), 1);
}

TEST(HtCombine, RoundsOnceAtTheEnd) {
  // Rounding to BF16 after each step would lose both ones.
  EXPECT_EQ(combine_lone({0, {0, 1, 2}, {}, DType::kBfloat16}, {256, 1, 1}), 258);
}

// Nodes of two ranks and of one.
TEST(HtCombine, RoundsTheSumOfARemoteNodeBeforeItTravels) {
  const std::vector<int> nodes{0, 0, 1};
  EXPECT_EQ(combine_lone({0, {0, 1, 2}, nodes, DType::kBfloat16}, {256, 1, 1}), 258);  // one row there, nothing lost
  EXPECT_EQ(combine_lone({2, {0, 1, 2}, nodes, DType::kBfloat16}, {256, 1, 1}), 256);  // 257 there becomes 256
  EXPECT_EQ(combine_lone({2, {2, 0, 1}, nodes, DType::kBfloat16}, {256, 1, 1}), 256);
}

TEST(HtCombine, AddsTheSumOfARemoteNodeWhereItIsMetFirst) {
  const std::vector<int> nodes{0, 1, 1, 2};
  // Entry by entry 2^30 + 1 - 2^30 would be 0.
  EXPECT_EQ(combine_lone({0, {1, 0, 2}, nodes}, {1, kBig, -kBig, 0}), 1);
  EXPECT_EQ(combine_lone({0, {1, 0, 3, 2}, nodes}, {1, kBig, 0, -kBig}), 0);
  EXPECT_EQ(combine_lone({0, {3, 1, 0, 2}, nodes}, {1, kBig, 0, -kBig}), 1);
}

// The remote node's rows are summed in the order of the entries, too.
TEST(HtCombine, SumsARemoteNodeInTheOrderOfTheEntries) {
  const std::vector<int> nodes{0, 1, 1, 1};
  EXPECT_EQ(combine_lone({0, {1, 2, 3}, nodes}, {0, 1, kBig, -kBig}), 0);
  EXPECT_EQ(combine_lone({0, {2, 3, 1}, nodes}, {0, 1, kBig, -kBig}), 1);
}

TEST(HtCombine, OverflowsFloat16PartialsToInfinity) {
  const float sum = combine_lone({0, {1, 2, 0}, {0, 1, 1}, DType::kFloat16}, {-65504, 65504, 65504});
  EXPECT_TRUE(sum > 65504);
  EXPECT_EQ(combine_lone({0, {1, 2, 0}, {}, DType::kFloat16}, {-65504, 65504, 65504}), 65504);
}

// A flat token that names two experts of one rank of another node has one row there.
TEST(HtCombine, CountsARankOfAnotherNodeOnce) {
  HtCase c = small_ht_case(HtLayout::kFlat);
  c.node_of_rank = {0, 1};
  const HtCombine combined = combine(c, flat_outputs());
  EXPECT_EQ(combined.tokens[0], bf16({11, 22, 3, 4, 0, 0}));
  EXPECT_EQ(combined.tokens[1], bf16({35, 46, 57, 68}));
}

TEST(HtCombine, GetsNothingFromANodeThatDroppedAllItsRows) {
  HtCase c = small_drop_case(HtLayout::kFlat, 3);
  c.node_of_rank = {0, 1};
  HtExpertOutputs outputs = flat_outputs();
  outputs.rows[0].resize(3 * 4);
  const HtCombine combined = combine(c, outputs);
  EXPECT_EQ(combined.tokens[1], bf16({35, 46, 50, 60}));
}

// Rank 1, another node, has room for both tokens' rows of expert 2 and none for expert 3, which the token names first.
// It is as if it had not: the sum of that node comes last, -2^30 + 1 + 2^30.
TEST(HtCombine, DoesNotMeetARemoteNodeAtADroppedRow) {
  HtCase c;
  c.num_ranks = 2;
  c.num_experts = 4;
  c.topk = 4;
  c.hidden = 1;
  c.layout = HtLayout::kExpertMajor;
  c.budget = 2;
  c.overflow = Overflow::kDrop;
  c.combine_dtype = DType::kFloat32;
  c.node_of_rank = {0, 1};
  c.num_tokens = {1, 1};
  c.topk_idx = {{3, 0, 1, 2}, {2, -1, -1, -1}};
  c.topk_weights = {Floats(4, 1), Floats(4, 1)};
  c.tokens = {{0, 0}, {0, 0}};
  const HtExpertOutputs outputs{
      .rows = {encode_row(DType::kFloat32, Floats{-kBig, 1}), encode_row(DType::kFloat32, Floats{kBig, 5})},
      .weight_gradients = {Floats(2, 0), Floats(2, 0)}};
  EXPECT_EQ(combine(c, outputs).tokens[0], encode_row(DType::kFloat32, Floats{0}));
  c.budget = 3;  // now there is room for the row of expert 3, and the sum comes first: 2^30 - 2^30 + 1
  const HtExpertOutputs roomy{
      .rows = {encode_row(DType::kFloat32, Floats{-kBig, 1}), encode_row(DType::kFloat32, Floats{kBig, 7, 0})},
      .weight_gradients = {Floats(2, 0), Floats(3, 0)}};
  EXPECT_EQ(combine(c, roomy).tokens[0], encode_row(DType::kFloat32, Floats{1}));
}

}  // namespace
}  // namespace switchyard::oracle
