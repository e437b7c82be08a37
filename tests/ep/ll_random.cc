#include "ep/ll_random.hpp"

#include <algorithm>

#include "ep/random_draws.hpp"

namespace switchyard::testing::ll_random {
namespace {

// Rows of a few vectors, now and then of a few KiB: edges of the copy loops are at both.
int draw_row_units() { return between(0, 15) == 15 ? between(64, 300) : between(1, 40); }

void draw_dispatch_recipe(oracle::Shape& shape) {
  using enum oracle::DispatchRecipe;
  using enum DType;
  shape.dispatch_recipe = one_of({kNone, kForward, kDsFp8});
  if (shape.dispatch_recipe == kDsFp8) {
    shape.hidden = 128 * between(1, 5);
    shape.round_scales = between(0, 1) != 0;
    return;
  }
  shape.dtype = shape.dispatch_recipe == kNone
                    ? one_of({kBfloat16, kFloat16, kFloat32})
                    : one_of({kBfloat16, kFloat16, kFloat32, kFloat8E4M3, kFloat8E5M2, kFloat4x2});
  shape.hidden = draw_row_units() * 16 / int(dtype_bytes(shape.dtype));
  if (shape.dispatch_recipe == kForward) {
    shape.scale_dtype = one_of({kFloat32, kFloat16, kBfloat16, kFloat8E4M3, kFloat8E5M2, kUint8});
    shape.scale_width = between(1, 6) * 16 / int(dtype_bytes(shape.scale_dtype));
  }
}

// Results need not look like what was dispatched.
void draw_combine_recipe(oracle::Shape& shape) {
  if (between(0, 3) == 3) {
    shape.combine_recipe = oracle::CombineRecipe::kNvfp4;
    shape.combine_hidden = 32 * between(1, 20);
    return;
  }
  shape.combine_dtype = one_of({DType::kBfloat16, DType::kFloat16, DType::kFloat32});
  shape.combine_hidden = draw_row_units() * 16 / int(dtype_bytes(shape.combine_dtype));
}

}  // namespace

Case draw_case(int num_ranks) {
  Case random_case;
  oracle::Shape& shape = random_case.shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = between(1, 3) == 3 ? between(1, 80) : between(1, 12);
  shape.topk = between(1, std::min(shape.num_experts, 64));
  // An expert-major output has a row for every (expert, rank, token).
  shape.max_tokens = between(1, std::clamp(1'200 / (shape.num_ranks * shape.num_experts), 2, 40));
  shape.layout = one_of({oracle::Layout::kExpertMajor, oracle::Layout::kRankMajor});
  shape.id_kind = one_of({oracle::IdKind::kLocal, oracle::IdKind::kGlobal});
  shape.int32_indices = between(0, 1) != 0;
  draw_dispatch_recipe(shape);
  draw_combine_recipe(shape);
  random_case.routing = oracle::kAllRoutings[between(0, std::size(oracle::kAllRoutings) - 1)];
  random_case.fill = oracle::kAllFills[between(0, std::size(oracle::kAllFills) - 1)];
  random_case.windows = between(0, 1) != 0;
  random_case.staged = unsigned(between(0, (1 << shape.num_ranks) - 1));
  random_case.num_rounds = between(1, 3);
  random_case.seed = uint64_t(between(0, 1 << 30));
  const int num_pairs = shape.num_ranks * (shape.num_ranks - 1) / 2;
  if (between(0, 3) == 3) random_case.masked_pairs = between(0, (1 << num_pairs) - 1);
  return random_case;
}

std::vector<Case> cases_for(int num_ranks, size_t num_cases) {
  std::vector<Case> cases;
  while (cases.size() < num_cases) {
    cases.push_back(draw_with_seed(cases.size(), [&] { return draw_case(num_ranks); }));
  }
  return cases;
}

LlMode Case::mode_of(int rank) const {
  return {
      .windows = windows, .staged = (staged >> rank & 1) != 0, .num_rounds = num_rounds, .timeout_ns = 20 * kSecond};
}

LlScenario Case::scenario() const {
  return make_scenario(seed, shape, routing, fill,
                       masked_pairs ? masks_of_pairs(shape.num_ranks, uint64_t(*masked_pairs)) : oracle::Masks{});
}

std::string Case::name() const {
  return text(describe(shape, routing, fill), windows ? ", windows" : "", ", staged ranks 0x", std::hex, staged,
              std::dec, ", rounds ", num_rounds, masked_pairs ? text(", masked pairs 0x", std::hex, *masked_pairs) : "",
              ", seed ", seed);
}

}  // namespace switchyard::testing::ll_random
