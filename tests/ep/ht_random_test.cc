// Random cases, found and shrunk by RapidCheck. A failure prints the smallest case it could find and the RC_PARAMS that
// bring it back.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "ep/ht_harness.hpp"
#include "ep/random_cases.hpp"

namespace switchyard::testing {
namespace {

constexpr uint64_t kDefaultNumCases = 5'000;
constexpr int kMaxRanks = 8;

struct RandomCase {
  oracle::HtShape shape;
  oracle::Routing routing = oracle::Routing::kUniform;
  oracle::Fill fill = oracle::Fill::kFull;
  oracle::Budget budget = oracle::Budget::kExact;
  HtMode mode;
  uint64_t seed = 0;

  std::string name() const { return text(describe(shape, routing, fill, budget), mode.name(), ", seed ", seed); }
};

// One split for every number of ranks, because each needs communicators of its own: half of the ranks, most of the
// others, the last one. Where the environment says how many nodes there are, that is it.
std::vector<int> draw_nodes(int num_ranks) {
  std::vector<int> nodes = ThreadRanks::default_nodes(num_ranks);
  if (!nodes.empty() || between(0, 2) != 2) return nodes;
  const int num_first = (num_ranks + 1) / 2;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const bool is_alone = rank == num_ranks - 1 && rank > num_first;
    nodes.push_back(rank < num_first ? 0 : is_alone ? 2 : 1);
  }
  return nodes;
}

// Rows of a few vectors, now and then of a few KiB: edges of the copy loops are at both.
int draw_row_units() { return between(0, 15) == 15 ? between(64, 300) : between(1, 12); }

void draw_recipe(oracle::HtShape& shape) {
  using enum DType;
  if (flip()) {
    shape.dispatch_recipe = oracle::DispatchRecipe::kForward;
    shape.dtype = one_of({kBfloat16, kFloat16, kFloat32, kFloat8E4M3, kFloat8E5M2, kFloat4x2});
    shape.scale_dtype = one_of({kFloat32, kFloat16, kBfloat16, kFloat8E4M3, kFloat8E5M2, kUint8});
    shape.scale_width = between(1, 3) * 16 / int(dtype_bytes(shape.scale_dtype));
  } else {
    shape.dtype = one_of({kBfloat16, kFloat16, kFloat32});
  }
  shape.hidden = draw_row_units() * 16 / int(dtype_bytes(shape.dtype));
  // Results need not look like what was dispatched.
  shape.combine_dtype = one_of({kBfloat16, kFloat16, kFloat32});
  shape.combine_hidden = draw_row_units() * 16 / int(dtype_bytes(shape.combine_dtype));
}

HtMode draw_mode() {
  HtMode mode;
  mode.windows = flip();
  if (mode.windows) mode.zero_copy = one_of({ep::ZeroCopy::kAuto, ep::ZeroCopy::kOff, ep::ZeroCopy::kOn});
  mode.backward = !flip();
  mode.pipelined = flip();
  mode.num_rounds = between(1, 3);
  mode.updates_once = flip();
  mode.num_spare_rows = between(0, 3);
  mode.expert_counters = !flip();
  mode.expert_offsets = !flip();
  mode.recv_total = !flip();
  mode.int64_counters = flip();
  mode.timeout_ns = 20 * kSecond;
  return mode;
}

RandomCase draw_case() {
  RandomCase random_case;
  oracle::HtShape& shape = random_case.shape;
  shape.num_ranks = between(1, kMaxRanks);
  shape.node_of_rank = draw_nodes(shape.num_ranks);
  shape.num_experts = between(1, 4) == 4 ? between(1, 80) : between(1, 12);
  shape.topk = between(1, std::min(shape.num_experts, between(1, 8) == 8 ? 64 : 6));
  shape.max_tokens = between(1, std::clamp(200 / (shape.num_ranks * shape.topk), 2, 20));
  shape.layout = one_of({oracle::HtLayout::kFlat, oracle::HtLayout::kExpertMajor});
  shape.alignment = shape.layout == oracle::HtLayout::kFlat ? 1 : one_of({1, 0, 2, 4, 16, 128});
  shape.overflow = one_of({oracle::Overflow::kTrap, oracle::Overflow::kDrop});
  shape.id_kind = one_of({oracle::IdKind::kLocal, oracle::IdKind::kGlobal});
  shape.int32_indices = flip();
  draw_recipe(shape);
  random_case.routing = oracle::kAllRoutings[between(0, std::size(oracle::kAllRoutings) - 1)];
  random_case.fill = oracle::kAllFills[between(0, std::size(oracle::kAllFills) - 1)];
  random_case.budget = oracle::kAllBudgets[between(0, std::size(oracle::kAllBudgets) - 1)];
  random_case.mode = draw_mode();
  random_case.seed = uint64_t(between(0, 1 << 30));
  return random_case;
}

TEST(HighThroughputRandom, EveryCaseMatchesTheOracle) {
  set_num_cases(kDefaultNumCases);
  RankPool pool;
  const bool passed = rc::check("forward and backward passes give every rank what the oracle says", [&] {
    const RandomCase random_case = draw_case();
    RC_LOG() << random_case.name() << "\n";
    const HtScenario scenario = make_ht_scenario(random_case.seed, random_case.shape, random_case.routing,
                                                 random_case.fill, random_case.budget);
    const std::string faults = pool.run(
        random_case.shape.num_ranks, random_case.shape.node_of_rank,
        [&](Communicator& comm, StreamRef stream) { return run_ht_case(comm, stream, scenario, random_case.mode); });
    if (!faults.empty()) RC_FAIL(faults);
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace switchyard::testing
