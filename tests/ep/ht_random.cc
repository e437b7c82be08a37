#include "ep/ht_random.hpp"

#include <algorithm>

#include "ep/random_draws.hpp"

namespace switchyard::testing::ht_random {
namespace {

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

}  // namespace

Case draw_case(int num_ranks, const std::vector<int>& node_of_rank) {
  Case random_case;
  oracle::HtShape& shape = random_case.shape;
  shape.num_ranks = num_ranks;
  shape.node_of_rank = node_of_rank;
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

std::vector<Case> cases_for(int num_ranks, const std::vector<int>& node_of_rank, size_t num_cases) {
  std::vector<Case> cases;
  while (cases.size() < num_cases) {
    cases.push_back(draw_with_seed(cases.size(), [&] { return draw_case(num_ranks, node_of_rank); }));
  }
  return cases;
}

}  // namespace switchyard::testing::ht_random
