// Every combination of layout, budget, overflow policy, memory kind and recipe on 1 to 8 ranks, with draws of sizes,
// routing, fill, alignment, index and counter form. The list is the same on every run; ctest runs it one rank count at
// a time.
#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "ep/draw.hpp"
#include "ep/ht_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using oracle::Budget;
using oracle::DispatchRecipe;
using oracle::Fill;
using oracle::HtLayout;
using oracle::HtShape;
using oracle::Overflow;
using oracle::Routing;

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 6, 7, 8};
constexpr size_t kMinNumCases = 1'500;
// Bytes of the dense tensors of all ranks, if every token went everywhere: tokens are left out until a case fits.
constexpr size_t kMaxCaseBytes = 1u << 20;

constexpr int kTopks[] = {1, 2, 3, 5, 8, 9, 33, 64};
constexpr int kNumTokens[] = {1, 2, 3, 7, 16, 33};
// Row widths in units of 16 bytes: one vector, odd numbers, cache lines and beyond.
constexpr int kRowUnits[] = {1, 3, 7, 8, 33, 66};
constexpr int kAlignments[] = {1, 4, 16, 128};

struct Limit {
  Budget budget;
  Overflow overflow;
};
constexpr Limit kLimits[] = {{Budget::kEager, Overflow::kTrap},    {Budget::kExact, Overflow::kTrap},
                             {Budget::kGenerous, Overflow::kTrap}, {Budget::kTight, Overflow::kTrap},
                             {Budget::kExact, Overflow::kDrop},    {Budget::kGenerous, Overflow::kDrop},
                             {Budget::kTight, Overflow::kDrop}};

struct Recipe {
  DispatchRecipe dispatch = DispatchRecipe::kNone;
  DType dtype = DType::kBfloat16;
  DType combine_dtype = DType::kBfloat16;
};
constexpr Recipe kRecipes[] = {
    {.dtype = DType::kBfloat16, .combine_dtype = DType::kBfloat16},
    {.dtype = DType::kFloat16, .combine_dtype = DType::kFloat16},
    {.dtype = DType::kFloat32, .combine_dtype = DType::kFloat32},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat8E4M3},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat8E5M2},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kFloat4x2},
    {.dispatch = DispatchRecipe::kForward, .dtype = DType::kBfloat16},
};
constexpr DType kScaleTypes[] = {DType::kFloat32,    DType::kFloat16,    DType::kBfloat16,
                                 DType::kFloat8E4M3, DType::kFloat8E5M2, DType::kUint8};

struct MatrixCase {
  HtShape shape;
  Routing routing;
  Fill fill;
  Budget budget;
  HtMode mode;
  uint64_t seed;

  std::string name() const { return text(describe(shape, routing, fill, budget), mode.name(), ", seed ", seed); }
};

void set_widths(Draw& draw, HtShape& shape, const Recipe& recipe) {
  const int units = draw.one_of(kRowUnits);
  shape.hidden = units * 16 / int(dtype_bytes(recipe.dtype));
  if (recipe.dispatch != DispatchRecipe::kForward) return;
  shape.scale_dtype = draw.one_of(kScaleTypes);
  shape.scale_width = std::max(1, units / 8) * 16 / int(dtype_bytes(shape.scale_dtype));
  // What was sent as FP4 comes back in BF16, four times as wide.
  if (recipe.dtype == DType::kFloat4x2) shape.combine_hidden = 2 * shape.hidden;
}

size_t most_bytes(const HtShape& shape) {
  const int rows_per_token = shape.layout == HtLayout::kFlat ? shape.num_ranks : shape.topk;
  const size_t row_bytes = shape.input_token_bytes() + shape.input_scale_bytes() + shape.combine_row_bytes();
  return size_t(shape.num_ranks) * size_t(shape.max_tokens) * size_t(rows_per_token) * row_bytes;
}

MatrixCase make_matrix_case(uint64_t seed, int num_ranks, HtLayout layout, const Limit& limit, const Recipe& recipe,
                            bool windows) {
  Draw draw(seed);
  HtShape shape;
  shape.num_ranks = num_ranks;
  shape.layout = layout;
  shape.overflow = limit.overflow;
  shape.topk = draw.one_of(kTopks);
  shape.num_experts = draw_num_experts(draw, num_ranks, shape.topk);
  shape.dispatch_recipe = recipe.dispatch;
  shape.dtype = recipe.dtype;
  shape.combine_dtype = recipe.combine_dtype;
  shape.id_kind = draw.flip() ? oracle::IdKind::kGlobal : oracle::IdKind::kLocal;
  shape.int32_indices = draw.flip();
  if (layout == HtLayout::kExpertMajor) shape.alignment = draw.one_of(kAlignments);
  set_widths(draw, shape, recipe);
  shape.max_tokens = draw.one_of(kNumTokens);
  while (shape.max_tokens > 1 && most_bytes(shape) > kMaxCaseBytes) shape.max_tokens /= 2;
  shape.node_of_rank = ThreadRanks::default_nodes(num_ranks);
  HtMode mode;
  mode.windows = windows;
  mode.pipelined = draw.flip();
  mode.num_rounds = draw.between(1, 2);
  mode.updates_once = draw.flip();
  mode.num_spare_rows = draw.between(0, 2);
  mode.int64_counters = draw.flip();
  return {shape, draw.one_of(oracle::kAllRoutings), draw.one_of(oracle::kAllFills), limit.budget, mode, seed};
}

std::vector<MatrixCase> cases_for(int num_ranks) {
  std::vector<MatrixCase> cases;
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const Limit& limit : kLimits) {
      for (const bool windows : {false, true}) {
        for (const Recipe& recipe : kRecipes) {
          const uint64_t seed = uint64_t(num_ranks) * 100'000 + cases.size();
          cases.push_back(make_matrix_case(seed, num_ranks, layout, limit, recipe, windows));
        }
      }
    }
  }
  return cases;
}

class HighThroughputMatrix : public ::testing::TestWithParam<int> {};

TEST_P(HighThroughputMatrix, EveryCaseMatchesTheOracle) {
  ThreadRanks ranks(GetParam());
  size_t num_passed = 0;
  for (const MatrixCase& m : cases_for(ranks.size())) {
    const HtScenario scenario = make_ht_scenario(m.seed, m.shape, m.routing, m.fill, m.budget);
    ranks.on_all(
        [&](int rank) { EXPECT_EQ(run_ht_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, m.mode), ""); });
    // A failure ends the communicator.
    if (HasFailure()) FAIL() << "after " << num_passed << " cases: " << m.name();
    ++num_passed;
  }
  std::cout << num_passed << " cases on " << ranks.size() << " ranks\n";
}

INSTANTIATE_TEST_SUITE_P(Ranks, HighThroughputMatrix, ::testing::ValuesIn(kRankCounts),
                         ::testing::PrintToStringParamName());

TEST(HighThroughputMatrixList, IsLongEnough) {
  size_t num_cases = 0;
  for (const int num_ranks : kRankCounts) num_cases += cases_for(num_ranks).size();
  std::cout << num_cases << " cases in all\n";
  EXPECT_GE(num_cases, kMinNumCases);
}

// For each layout and memory kind: no value of any list is left out, and budgets do what they are there for.
TEST(HighThroughputMatrixList, HasEveryValueInEveryPath) {
  std::set<std::tuple<HtLayout, bool, std::string>> seen;
  for (const int num_ranks : kRankCounts) {
    for (const MatrixCase& m : cases_for(num_ranks)) {
      const auto note = [&](const std::string& value) { seen.insert({m.shape.layout, m.mode.windows, value}); };
      note(text("top-k ", m.shape.topk));
      note(text("row bytes ", m.shape.input_token_bytes()));
      note(text("tokens ", m.shape.max_tokens));
      note(text("alignment ", m.shape.alignment));
      note(text("scales ", dtype_name(m.shape.scale_dtype)));
      note(oracle::routing_name(m.routing));
      note(oracle::fill_name(m.fill));
      note(text("int32 ", m.shape.int32_indices));
      note(text("int64 counters ", m.mode.int64_counters));
      note(text("pipelined ", m.mode.pipelined));
      note(text("global ", m.shape.id_kind == oracle::IdKind::kGlobal));
      note(m.shape.num_experts % num_ranks != 0 ? "uneven experts" : "even experts");
      if (m.shape.num_experts < num_ranks) note("fewer experts than ranks");
      const oracle::HtCase c = oracle::make_ht_case(m.seed, m.shape, m.routing, m.fill, m.budget);
      if (!oracle::find_overflowing(c).empty()) note(c.overflow == Overflow::kDrop ? "drops" : "traps");
    }
  }
  for (const HtLayout layout : {HtLayout::kFlat, HtLayout::kExpertMajor}) {
    for (const bool windows : {false, true}) {
      const auto expect = [&](const std::string& value) {
        EXPECT_TRUE(seen.contains({layout, windows, value})) << int(layout) << ", windows " << windows << ": " << value;
      };
      for (const int topk : kTopks) expect(text("top-k ", topk));
      for (const int units : kRowUnits) expect(text("row bytes ", units * 16));
      for (const int num_tokens : kNumTokens) expect(text("tokens ", num_tokens));
      for (const DType type : kScaleTypes) expect(text("scales ", dtype_name(type)));
      for (const Routing routing : oracle::kAllRoutings) expect(oracle::routing_name(routing));
      for (const Fill fill : oracle::kAllFills) expect(oracle::fill_name(fill));
      for (const int flag : {0, 1}) {
        for (const char* name : {"int32 ", "int64 counters ", "pipelined ", "global "}) expect(text(name, flag));
      }
      for (const char* value : {"even experts", "uneven experts", "fewer experts than ranks", "drops", "traps"}) {
        expect(value);
      }
      if (layout == HtLayout::kExpertMajor) {
        for (const int alignment : kAlignments) expect(text("alignment ", alignment));
      }
    }
  }
}

}  // namespace
}  // namespace switchyard::testing
