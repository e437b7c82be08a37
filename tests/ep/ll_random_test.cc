// Random cases, found and shrunk by RapidCheck. A failure prints the smallest case it could find and the RC_PARAMS that
// bring it back.
//
//   SWITCHYARD_RANDOM_CASES   how many cases (default 5000)
//   RC_PARAMS                 RapidCheck's own settings, e.g. "seed=1 max_success=100"; they win
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/env.hpp"
#include "ep/ll_harness.hpp"
#include "support/thread_ranks.hpp"

namespace switchyard::testing {
namespace {

constexpr uint64_t kDefaultNumCases = 5'000;
constexpr int kMaxRanks = 8;

struct RandomCase {
  oracle::Shape shape;
  oracle::Routing routing = oracle::Routing::kUniform;
  oracle::Fill fill = oracle::Fill::kFull;
  bool windows = false;
  unsigned staged = 0;  // bit r: rank r stages. Ranks need not do the same.
  int num_rounds = 1;
  std::optional<int> masked_pairs;  // none: a group without masks
  uint64_t seed = 0;

  LlMode mode_of(int rank) const {
    return {.windows = windows, .staged = (staged >> rank & 1) != 0, .num_rounds = num_rounds,
            .timeout_ns = 20 * kSecond};
  }
  std::string name() const {
    return text(describe(shape, routing, fill), windows ? ", windows" : "", ", staged ranks 0x", std::hex, staged,
                std::dec, ", rounds ", num_rounds, masked_pairs ? text(", masked pairs 0x", std::hex, *masked_pairs) : "", ", seed ",
                seed);
  }
};

// [low, high], shrinking towards low, which is therefore the simplest.
int between(int low, int high) { return *rc::gen::inRange(low, high + 1); }
template <class T>
T one_of(std::initializer_list<T> simplest_first) {
  return simplest_first.begin()[between(0, int(simplest_first.size()) - 1)];
}

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

RandomCase draw_case() {
  RandomCase random_case;
  oracle::Shape& shape = random_case.shape;
  shape.num_ranks = between(1, kMaxRanks);
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

// Communicators are made once a rank count; one that a failure ended is made again.
class RankPool {
 public:
  std::string run(const RandomCase& random_case) {
    const LlScenario scenario =
        make_scenario(random_case.seed, random_case.shape, random_case.routing, random_case.fill,
                      random_case.masked_pairs ? masks_of_pairs(random_case.shape.num_ranks, uint64_t(*random_case.masked_pairs))
                                               : oracle::Masks{});
    std::unique_ptr<ThreadRanks>& ranks = by_count_[random_case.shape.num_ranks];
    if (ranks == nullptr) ranks = std::make_unique<ThreadRanks>(random_case.shape.num_ranks);
    std::string faults;
    std::mutex mutex;
    ranks->on_all([&](int rank) {
      const std::string fault =
          run_ll_case(ranks->comm(rank), ranks->stream_ref(rank), scenario, random_case.mode_of(rank));
      const std::lock_guard lock(mutex);
      if (!fault.empty()) faults += fault + "\n";
    });
    if (!faults.empty()) ranks.reset();
    return faults;
  }

 private:
  std::map<int, std::unique_ptr<ThreadRanks>> by_count_;
};

uint64_t num_cases() {
  const char* value = getenv("SWITCHYARD_RANDOM_CASES");
  return parse_number(value ? value : "", 1, 100'000'000).value_or(kDefaultNumCases);
}

// RapidCheck reads its settings once, before its first check.
void set_num_cases() {
  const char* given = getenv("RC_PARAMS");
  std::string params = given ? given : "";
  if (params.find("max_success") != std::string::npos) return;
  params += text(params.empty() ? "" : " ", "max_success=", num_cases());
  setenv("RC_PARAMS", params.c_str(), 1);
}

TEST(LowLatencyRandom, EveryCaseMatchesTheOracle) {
  set_num_cases();
  RankPool pool;
  const bool passed = rc::check("a round trip gives every rank what the oracle says", [&] {
    const RandomCase random_case = draw_case();
    RC_LOG() << random_case.name() << "\n";
    const std::string faults = pool.run(random_case);
    if (!faults.empty()) RC_FAIL(faults);
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace switchyard::testing
