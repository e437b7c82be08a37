// The low-latency matrix on 1, 2, 3, 4 and 8 ranks; ctest runs it one rank count at a time.
#include "ep/ll_matrix.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <set>

#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

using namespace ll_matrix;
using oracle::Fill;
using oracle::Layout;
using oracle::Routing;

constexpr int kRankCounts[] = {1, 2, 3, 4, 8};
constexpr size_t kMinNumCases = 1'500;

class LowLatencyMatrix : public ::testing::TestWithParam<int> {};

TEST_P(LowLatencyMatrix, EveryCaseMatchesTheOracle) {
  ThreadRanks ranks(GetParam());
  size_t num_passed = 0;
  for (const Case& matrix_case : cases_for(ranks.size())) {
    const LlScenario scenario = matrix_case.scenario();
    ranks.on_all([&](int rank) {
      EXPECT_EQ(run_ll_case(ranks.comm(rank), ranks.stream_ref(rank), scenario, matrix_case.mode), "");
    });
    // A failure ends the communicator.
    if (HasFailure()) FAIL() << "after " << num_passed << " cases: " << matrix_case.name();
    ++num_passed;
  }
  std::cout << num_passed << " cases on " << ranks.size() << " ranks\n";
}

INSTANTIATE_TEST_SUITE_P(Ranks, LowLatencyMatrix, ::testing::ValuesIn(kRankCounts),
                         ::testing::PrintToStringParamName());

TEST(LowLatencyMatrixList, IsLongEnough) {
  size_t num_cases = 0;
  for (const int num_ranks : kRankCounts) num_cases += cases_for(num_ranks).size();
  std::cout << num_cases << " cases in all\n";
  EXPECT_GE(num_cases, kMinNumCases);
}

// For each layout and memory kind, on each number of ranks: no value of any list is left out.
TEST(LowLatencyMatrixList, HasEveryValueInEveryPath) {
  for (const int num_ranks : kRankCounts) {
    std::set<std::tuple<Layout, bool, std::string>> seen;
    for (const Case& m : cases_for(num_ranks)) {
      const auto note = [&](const std::string& value) { seen.insert({m.shape.layout, m.mode.windows, value}); };
      note(text("top-k ", m.shape.topk));
      note(oracle::routing_name(m.routing));
      note(oracle::fill_name(m.fill));
      note(text("int32 ", m.shape.int32_indices));
      note(text("global ", m.shape.id_kind == oracle::IdKind::kGlobal));
      note(text("row bytes ", m.shape.input_token_bytes()));
      note(text("tokens ", m.shape.max_tokens));
      note(m.shape.num_experts % num_ranks != 0 ? "uneven experts" : "even experts");
      if (m.shape.num_experts < num_ranks) note("fewer experts than ranks");
    }
    for (const Layout layout : {Layout::kExpertMajor, Layout::kRankMajor}) {
      for (const bool windows : {false, true}) {
        const auto expect = [&](const std::string& value) {
          EXPECT_TRUE(seen.contains({layout, windows, value})) << num_ranks << " ranks, " << windows << ": " << value;
        };
        for (const int topk : kTopks) expect(text("top-k ", topk));
        for (const Routing routing : oracle::kAllRoutings) expect(oracle::routing_name(routing));
        for (const Fill fill : oracle::kAllFills) expect(oracle::fill_name(fill));
        for (const int units : kRowUnits) expect(text("row bytes ", units * 16));
        for (const int num_tokens : kNumTokens) expect(text("tokens ", num_tokens));
        for (const char* flag : {"int32 0", "int32 1", "global 0", "global 1", "even experts"}) expect(flag);
        if (num_ranks > 1) expect("uneven experts");
        if (num_ranks > 2) expect("fewer experts than ranks");
      }
    }
  }
}

}  // namespace
}  // namespace switchyard::testing
