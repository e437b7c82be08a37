// Little-endian fields on the wire, whatever the machine. Readers are total: bad input gives a false complete(),
// never undefined behaviour, so that a parser may read all its fields first and check once at the end.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard {

class WireWriter {
 public:
  template <std::unsigned_integral T>
  void put(T value) {
    for (size_t i = 0; i < sizeof(T); i++) bytes_.push_back(std::byte(value >> (8 * i) & 0xff));
  }
  void put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void put_text(std::string_view text) { put_bytes(std::as_bytes(std::span(text))); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  // Zero once the input is too short.
  template <std::unsigned_integral T>
  T get() {
    T value = 0;
    const auto field = get_bytes(sizeof(T));
    for (size_t i = 0; i < field.size(); i++) value = T(value | T(T(field[i]) << (8 * i)));
    return value;
  }
  // Empty once the input is too short.
  std::span<const std::byte> get_bytes(size_t num_bytes) {
    if (num_bytes > rest_.size()) {
      short_ = true;
      rest_ = {};
      return {};
    }
    const auto field = rest_.first(num_bytes);
    rest_ = rest_.subspan(num_bytes);
    return field;
  }
  template <size_t kBytes>
  void get_into(std::span<std::byte, kBytes> out) {
    const auto field = get_bytes(kBytes);
    for (size_t i = 0; i < field.size(); i++) out[i] = field[i];
  }
  size_t remaining_bytes() const { return rest_.size(); }
  // Everything asked for was there, and nothing is left over.
  bool complete() const { return !short_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool short_ = false;
};

}  // namespace switchyard
