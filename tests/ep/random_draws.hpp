// Draws of RapidCheck: inside a property, which shrinks what fails, or outside with a seed.
#pragma once
#include <rapidcheck.h>

#include <cstdint>
#include <initializer_list>

namespace switchyard::testing {

// [low, high], shrinking towards low, which is therefore the simplest.
inline int between(int low, int high) { return *rc::gen::inRange(low, high + 1); }
inline bool flip() { return between(0, 1) != 0; }
template <class T>
T one_of(std::initializer_list<T> simplest_first) {
  return simplest_first.begin()[between(0, int(simplest_first.size()) - 1)];
}

// What draw() gives, outside of a property; the same for the same seed in every process. Nothing of it is shrunk.
template <class Draw>
auto draw_with_seed(uint64_t seed, const Draw& draw) {
  return rc::gen::exec(draw)(rc::Random(seed)).value();
}

}  // namespace switchyard::testing
