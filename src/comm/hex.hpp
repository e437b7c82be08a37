// Bytes as lower-case hexadecimal digits.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace switchyard {

inline std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const std::byte b : bytes) {
    hex += kDigits[int(b) >> 4];
    hex += kDigits[int(b) & 15];
  }
  return hex;
}

// The value of a digit of either case, or -1.
constexpr int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace switchyard
