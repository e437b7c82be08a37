// Buffers of rows under test, whatever their layout: what is wrong with them.
//
// THREADS    pure functions over the caller's buffers.
// OWNERSHIP  borrowed for the call.
// ERRORS     what differs first, in words, or an empty string.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "oracle/exchange.hpp"

namespace switchyard::oracle {

struct Rows {
  const char* name;
  const uint8_t* bytes;
  size_t num_bytes;
  size_t row_bytes;

  const uint8_t* row(size_t row_idx) const { return bytes + row_idx * row_bytes; }
};

template <class T>
Rows rows_of(const char* name, std::span<const T> buffer, size_t row_bytes) {
  return {name, reinterpret_cast<const uint8_t*>(buffer.data()), buffer.size_bytes(), row_bytes};
}

// The buffer against the size that its shape has.
std::string size_fault(int rank, const Rows& rows, size_t num_rows);
// One row against what it must hold; null: every byte must still be `untouched`. The caller names the place before it.
std::string row_fault(const Rows& rows, size_t row_idx, const uint8_t* expected, uint8_t untouched);
// A rank's combined tokens, rows of combine_row_bytes(), against the model's.
std::string check_combine(const ExchangeShape& shape, int rank, std::span<const uint8_t> expected,
                          std::span<const uint8_t> actual);

}  // namespace switchyard::oracle
