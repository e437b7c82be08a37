// The high-throughput matrix on 1 to 8 ranks; ctest runs it one rank count at a time.
#include "ep/ht_matrix.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using namespace ht_matrix;
using oracle::Fill;
using oracle::HtLayout;
using oracle::Overflow;
using oracle::Routing;

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 6, 7, 8};
constexpr size_t kMinNumCases = 1'500;

// On the nodes that the environment wants.
std::vector<Case> cases_for(int num_ranks) {
  return ht_matrix::cases_for(num_ranks, ThreadRanks::default_nodes(num_ranks));
}

class HighThroughputMatrix : public ::testing::TestWithParam<int> {};

TEST_P(HighThroughputMatrix, EveryCaseMatchesTheOracle) {
  ThreadRanks ranks(GetParam());
  size_t num_passed = 0;
  for (const Case& m : cases_for(ranks.size())) {
    const HtScenario scenario = m.scenario();
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
    for (const Case& m : cases_for(num_ranks)) {
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
