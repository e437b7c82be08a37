// Draws from short lists; the same for the same seed on every machine.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>

namespace switchyard::testing {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  template <class List>
  auto one_of(const List& list) {
    return list[engine_() % std::size(list)];
  }
  bool flip() { return engine_() % 2 != 0; }
  int between(int low, int high) { return low + int(engine_() % uint64_t(high - low + 1)); }

 private:
  std::mt19937_64 engine_;
};

// For so many ranks and entries a token: experts that divide, that don't, no more than a token names, fewer than ranks.
inline int draw_num_experts(Draw& draw, int num_ranks, int topk) {
  enum class Experts { kDivide, kUneven, kOnlyTopk, kFewerThanRanks };
  using enum Experts;
  const int at_least = std::max(topk, 2 * num_ranks);
  const int multiple = (at_least + num_ranks - 1) / num_ranks * num_ranks;
  constexpr Experts kAll[] = {kDivide, kUneven, kOnlyTopk, kFewerThanRanks};
  switch (draw.one_of(kAll)) {
    case kDivide: return multiple;
    case kUneven: return multiple + draw.between(1, num_ranks);
    case kOnlyTopk: return topk;
    case kFewerThanRanks: return std::max(topk, num_ranks - 1);
  }
  return multiple;
}

}  // namespace switchyard::testing
