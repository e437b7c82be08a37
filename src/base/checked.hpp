// Arithmetic on numbers that may lie: sizes from callers, and numbers that peers sent.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace switchyard {

template <std::integral T>
std::optional<T> checked_add(T a, T b) {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::integral T>
std::optional<T> checked_mul(T a, T b) {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Is [offset, offset + length) inside [0, capacity)? Written so that nothing can wrap.
constexpr bool range_fits(uint64_t offset, uint64_t length, uint64_t capacity) {
  return offset <= capacity && length <= capacity - offset;
}

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr uint64_t div_up(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

// A number that a peer supplied. It can't be used until somebody states its allowed range.
template <std::integral T>
class Untrusted {
 public:
  Untrusted() = default;
  explicit Untrusted(T value) : value_(value) {}
  // The number if low <= number <= high, else nothing.
  std::optional<T> within(T low, T high) const {
    if (value_ < low || value_ > high) return std::nullopt;
    return value_;
  }

 private:
  T value_{};
};

}  // namespace switchyard
